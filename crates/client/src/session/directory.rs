//! A directory's listing: pages, and a stream of them.

use std::collections::VecDeque;

use proto::nfs3::{self, Procedure};
use xdr::Opaque;

use super::Session;
use super::call::Replied;
use super::cookie_loop::CookieLoopDetector;
use super::listed::Listed;
use crate::convert;
use crate::error::{Error, Result, Status};
use crate::types::{DirEntry, Handle};

/// Bytes of a page to begin with.
const PAGE: u32 = 32 << 10;

/// A page is never asked to be longer than this.
const PAGE_MAX: u32 = 512 << 10;

/// A listing under way: pages come from the server as they are asked for.
#[derive(Debug)]
pub struct Directory {
    session: Session,
    directory: Handle,
    plus: bool,
    page: u32,
    cookie: u64,
    verifier: [u8; 8],
    entries: VecDeque<DirEntry>,
    eof: bool,
    listed: Listed,
    cookie_loop: CookieLoopDetector,
}

/// What one READDIR or READDIRPLUS brought.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// The entries as the server has them, `.` and `..` included.
    pub entries: Vec<DirEntry>,
    /// Goes with the entries' cookies.
    pub verifier: [u8; 8],
    /// The directory ends with the last of them.
    pub eof: bool,
}

impl Session {
    /// One READDIR, or (`plus`) READDIRPLUS: the entries behind a cookie of an earlier page, or from the
    /// beginning with cookie and verifier 0; `count`: how many bytes the results may have, handles and
    /// attributes included.
    ///
    /// # Errors
    /// The server's or the call's. [`Status::BadCookie`]: the directory has changed so that it must be read
    /// from the beginning. [`Status::TooSmall`]: `count` has no room for an entry.
    pub async fn read_dir_page(
        &self,
        directory: &Handle,
        (cookie, cookieverf): (u64, [u8; 8]),
        count: u32,
        plus: bool,
    ) -> Result<Page> {
        let dir = Opaque(directory.as_bytes());
        let page = if plus {
            let procedure = Procedure::Readdirplus;
            let args = nfs3::Readdirplus3Args { dir, cookie, cookieverf, dircount: count, maxcount: count };
            let replied = self.nfs(procedure, &args).await?;
            self.page_plus(procedure, &replied, directory)?
        } else {
            let procedure = Procedure::Readdir;
            let args = nfs3::Readdir3Args { dir, cookie, cookieverf, count };
            let replied = self.nfs(procedure, &args).await?;
            self.page(procedure, &replied, directory)?
        };
        if self.inner.lane.is_established() {
            self.inner.lane.open_prefetch.add_page(directory, cookie, &page);
        }
        Ok(page)
    }

    fn page_plus(&self, procedure: Procedure, replied: &Replied, directory: &Handle) -> Result<Page> {
        let page =
            self.body::<nfs3::Readdirplus3ResOk<'_>, nfs3::PostOpAttr>(procedure, replied, &[directory])?;
        let entries = page.reply.entries.0.into_iter().map(|entry| DirEntry {
            name: entry.name.0.to_vec(),
            fileid: entry.fileid,
            cookie: entry.cookie,
            handle: entry.name_handle.and_then(|handle| Handle::new(handle.0)),
            attributes: entry.name_attributes.as_ref().map(convert::attributes),
        });
        Ok(Page { entries: entries.collect(), verifier: page.head.cookieverf, eof: page.reply.eof })
    }

    fn page(&self, procedure: Procedure, replied: &Replied, directory: &Handle) -> Result<Page> {
        let page =
            self.body::<nfs3::Readdir3ResOk<'_>, nfs3::PostOpAttr>(procedure, replied, &[directory])?;
        let entries = page.reply.entries.0.into_iter().map(|entry| DirEntry {
            name: entry.name.0.to_vec(),
            fileid: entry.fileid,
            cookie: entry.cookie,
            handle: None,
            attributes: None,
        });
        Ok(Page { entries: entries.collect(), verifier: page.head.cookieverf, eof: page.reply.eof })
    }

    /// Lists a directory: names only (READDIR), or with handles and attributes (READDIRPLUS; a server that
    /// doesn't have it is asked for names only).
    #[must_use]
    pub fn read_dir(&self, directory: &Handle, plus: bool) -> Directory {
        Directory {
            session: self.clone(),
            directory: *directory,
            plus,
            page: self.inner.sizes.dir_preferred.clamp(PAGE, PAGE_MAX),
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
    /// The next entry, `.` and `..` left out; `None` at the end.
    ///
    /// # Errors
    /// The server's or the call's.
    pub async fn next(&mut self) -> Result<Option<DirEntry>> {
        loop {
            while let Some(entry) = self.entries.pop_front() {
                if matches!(&entry.name[..], b"." | b"..")
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
                Err(error) => self.cope(error)?,
            }
        }
    }

    /// The rest of the entries at once.
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

    /// Whether the listing can go on in spite of `error`, and from where.
    fn cope(&mut self, error: Error) -> Result<()> {
        match error.status() {
            Some(Status::BadCookie) if self.cookie != 0 && self.listed.start_over() => {
                (self.cookie, self.verifier, self.cookie_loop) = (0, [0; 8], CookieLoopDetector::default());
            }
            Some(Status::NotSupported) if self.plus => self.plus = false,
            Some(Status::TooSmall) if self.page < PAGE_MAX => self.page *= 2,
            _ => return Err(error),
        }
        Ok(())
    }

    /// The next page.
    async fn fetch(&mut self) -> Result<()> {
        let at = (self.cookie, self.verifier);
        let page = self.session.read_dir_page(&self.directory, at, self.page, self.plus).await?;
        let procedure = if self.plus { Procedure::Readdirplus } else { Procedure::Readdir };
        match page.entries.last() {
            Some(last) if last.cookie != self.cookie => self.cookie = last.cookie,
            _ if page.eof => {}
            _ => {
                return Err(Error::Protocol {
                    object: procedure.name().to_owned(),
                    what: "the listing neither ends nor goes on",
                });
            }
        }
        if !page.eof && self.cookie_loop.is_loop(self.cookie) {
            return Err(Error::Protocol {
                object: procedure.name().to_owned(),
                what: "its cookies repeat, and the listing would never end",
            });
        }
        (self.verifier, self.eof) = (page.verifier, page.eof);
        self.entries.extend(page.entries);
        Ok(())
    }
}
