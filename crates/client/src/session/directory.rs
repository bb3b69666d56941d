//! Directory listings: single pages, and all entries of a directory.

use std::collections::VecDeque;

use super::Session;
use super::cookie_loop::CookieLoopDetector;
use super::listed::Listed;
use crate::error::{Error, Result, Status};
use crate::operations::Operations as _;
use crate::types::{DirEntry, DirectoryPage, Handle, Page, Plus};

/// The smallest first page, in bytes.
const MIN_PAGE: u32 = 32 << 10;

/// The largest page, in bytes.
const MAX_PAGE: u32 = 512 << 10;

/// The entries of a directory, fetched from the server page by page as they are taken.
#[derive(Debug)]
pub struct Directory {
    session: Session,
    directory: Handle,
    plus: Plus<'static>,
    page: u32,
    cookie: u64,
    verifier: [u8; 8],
    entries: VecDeque<DirEntry>,
    eof: bool,
    listed: Listed,
    cookie_loop: CookieLoopDetector,
}

impl Session {
    /// One page of a directory (READDIR or READDIRPLUS): the entries behind a cookie of an earlier page, or
    /// from the beginning with cookie and verifier 0. `count` is the largest size of the reply in bytes,
    /// handles and attributes included.
    ///
    /// # Errors
    /// [`Status::BadCookie`] if the directory has changed so that it must be read from the beginning;
    /// [`Status::TooSmall`] if `count` has no room for an entry; the server's or the call's.
    pub async fn read_dir_page(
        &self,
        directory: &Handle,
        (cookie, verifier): (u64, [u8; 8]),
        count: u32,
        plus: Plus<'_>,
    ) -> Result<Page> {
        if plus.is_wanted() {
            self.settle_listed(&[directory]).await;
        }
        let at = (cookie, verifier);
        let (local_first, files) = (self.local_first(), [directory]);
        let page =
            local_first.perform(&files, |nfs, user| nfs.read_dir_page(user, directory, at, count, plus));
        let page = Box::pin(page).await?;
        self.prefetch_opens(directory, cookie, &page);
        Ok(page)
    }

    /// The first pages of directories, with handles and attributes ([`Plus::All`]): of the first directory,
    /// and of as many of the others as the same call can bring. That is none by NFSv3, and none behind one
    /// that can't be listed. `count` is the size of a page in bytes.
    ///
    /// # Errors
    /// As [`Session::read_dir_page`], of the first directory.
    pub async fn read_dir_first_pages(
        &self,
        directories: &[&Handle],
        count: u32,
    ) -> Result<Vec<DirectoryPage>> {
        self.settle_listed(directories).await;
        let local_first = self.local_first();
        let pages = local_first.perform(directories, |nfs, user| nfs.first_pages(user, directories, count));
        let pages = Box::pin(pages).await?;
        for (directory, listed) in directories.iter().zip(&pages) {
            self.prefetch_opens(directory, 0, &listed.page);
        }
        Ok(pages)
    }

    /// The attributes of the files that are listed tell what has been written.
    async fn settle_listed(&self, directories: &[&Handle]) {
        let is_listed = |file: &Handle| file.place().is_none_or(|(at, _)| directories.contains(&&at));
        self.settle_pending(is_listed).await;
    }

    /// Whoever lists a directory may open its files. Opens in a tree need no prefetching.
    fn prefetch_opens(&self, directory: &Handle, cookie: u64, page: &Page) {
        if self.inner.lane.is_established() && self.inner.lane.tree().is_none() {
            self.inner.lane.open_prefetch.add_page(directory, cookie, page);
        }
    }

    /// Lists a directory, and what `plus` says beside the names. A server without READDIRPLUS is asked for
    /// names only.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example_server.in")); }
    /// # let server = example::ExampleServer::start();
    /// # use samehost_client::{Options, Plus, Session};
    /// # let session = Session::connect(&server.url(), Options::new()).await?;
    /// let mut entries = session.read_dir(&session.root(), Plus::All);
    /// while let Some(entry) = entries.next().await? {
    ///     let size = entry.attributes.map(|attributes| attributes.size);
    ///     println!("{} {size:?}", String::from_utf8_lossy(&entry.name));
    /// #   assert_eq!((&entry.name[..], size), (&b"greeting"[..], Some(6)));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn read_dir(&self, directory: &Handle, plus: Plus<'static>) -> Directory {
        Directory {
            session: self.clone(),
            directory: directory.clone(),
            plus,
            page: self.inner.sizes.dir_preferred.clamp(MIN_PAGE, MAX_PAGE),
            cookie: 0,
            verifier: [0; 8],
            entries: VecDeque::new(),
            eof: false,
            listed: Listed::default(),
            cookie_loop: CookieLoopDetector::default(),
        }
    }
}

impl Directory {
    /// The next entry, without `.` and `..`; `None` at the end.
    ///
    /// # Errors
    /// The server's or the call's.
    pub async fn next(&mut self) -> Result<Option<DirEntry>> {
        loop {
            while let Some(entry) = self.entries.pop_front() {
                if matches!(&entry.name[..], b"" | b"." | b"..")
                    || entry.name.contains(&b'/')
                    || entry.name.contains(&0)
                    || self.listed.leaves_out(&entry.name)
                {
                    continue;
                }
                self.listed.add(&entry.name);
                return Ok(Some(entry));
            }
            if self.eof {
                return Ok(None);
            }
            match self.fetch().await {
                Ok(()) => {}
                Err(error) => self.recover(error)?,
            }
        }
    }

    /// All remaining entries.
    ///
    /// # Errors
    /// As [`Directory::next`].
    pub async fn collect(mut self) -> Result<Vec<DirEntry>> {
        let mut all = Vec::new();
        while let Some(entry) = self.next().await? {
            all.push(entry);
        }
        Ok(all)
    }

    /// Prepares another attempt after `error`, which is returned if none makes sense.
    fn recover(&mut self, error: Error) -> Result<()> {
        match error.status() {
            Some(Status::BadCookie) if self.cookie != 0 && self.listed.start_over() => {
                (self.cookie, self.verifier, self.cookie_loop) = (0, [0; 8], CookieLoopDetector::default());
            }
            Some(Status::NotSupported) if self.plus.is_wanted() => self.plus = Plus::None,
            Some(Status::TooSmall) if self.page < MAX_PAGE => self.page *= 2,
            _ => return Err(error),
        }
        Ok(())
    }

    /// The next page.
    async fn fetch(&mut self) -> Result<()> {
        let at = (self.cookie, self.verifier);
        let page = self.session.read_dir_page(&self.directory, at, self.page, self.plus).await?;
        let protocol_error = |what| Err(Error::Protocol { object: "directory listing".to_owned(), what });
        match page.entries.last() {
            Some(last) if last.cookie != self.cookie => self.cookie = last.cookie,
            _ if page.eof => {}
            _ => return protocol_error("the listing neither ends nor goes on"),
        }
        if !page.eof && self.cookie_loop.is_loop(self.cookie) {
            return protocol_error("its cookies repeat, and the listing would never end");
        }
        (self.verifier, self.eof) = (page.verifier, page.eof);
        self.entries.extend(page.entries);
        Ok(())
    }
}
