//! One open directory's place in its listing.
//!
//! The server's cookies are the kernel's offsets, so seekdir(3) works without remembering anything: an offset
//! is either in the page at hand, or the next page is fetched from there. Pages are larger than the kernel's
//! buffer; what is left of one answers the next request.
//!
//! A server that can't go on from a cookie (NFS3ERR_BAD_COOKIE) is read from the beginning, and what the
//! reader has had is left out: applications don't know that this can happen to a directory.

use std::time::Instant;

use client::{DirEntry, Endless, Listed, Page, Session, Status};

use crate::inodes::Node;

/// Bytes of a page to begin with.
const PAGE: u32 = 32 << 10;

/// A page is never asked to be longer than this.
const PAGE_MAX: u32 = 1 << 20;

/// Where a listing is.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    fetched: Option<Fetched>,
    /// Of the last page, for the next.
    verifier: [u8; 8],
    /// The server has no READDIRPLUS.
    no_plus: bool,
    /// What the reader has had of the pages before the one at hand; `None`: it began in the middle
    /// (seekdir(3)).
    listed: Option<Listed>,
    /// Whether the pages lead in a circle.
    endless: Endless,
}

/// A page of a listing.
#[derive(Debug)]
pub(crate) struct Fetched {
    page: Page,
    /// The cookie behind which it begins.
    begins: u64,
    /// Whether it has handles and attributes.
    plus: bool,
    /// When it was asked for.
    pub(crate) asked: Instant,
    /// The directory's version then.
    pub(crate) version: u64,
}

impl Listing {
    /// The entries behind the cookie `offset`, none at the end, and the page that they are of. `plus`: with
    /// handles and attributes, if the server has that.
    pub(crate) async fn behind(
        &mut self,
        session: &Session,
        directory: &Node,
        offset: u64,
        plus: bool,
    ) -> client::Result<(&[DirEntry], &Fetched)> {
        // rewinddir(3) shows what is there now, and begins anew after a server lost its cookies.
        if offset == 0 {
            (self.fetched, self.verifier, self.listed) = (None, [0; 8], Some(Listed::default()));
            self.endless = Endless::default();
        }
        let mut place = self.fetched.as_ref().and_then(|fetched| fetched.place(offset, plus));
        if place.is_none() {
            self.leave_page(offset);
            self.fetched = Some(self.next_page(session, directory, offset, plus).await?);
            place = Some(0);
        }
        let missing = || client::Error::Protocol { object: "READDIR".to_owned(), what: "there is no page" };
        let fetched = self.fetched.as_ref().ok_or_else(missing)?;
        Ok((&fetched.page.entries[place.unwrap_or_default()..], fetched))
    }

    /// The reader goes on behind `offset`, and has had what is in front of it.
    fn leave_page(&mut self, offset: u64) {
        let had = self.fetched.as_ref().and_then(|page| Some(&page.page.entries[..page.index(offset)?]));
        match (had, &mut self.listed) {
            (Some(had), Some(listed)) => had.iter().for_each(|entry| listed.add(&entry.name)),
            _ if offset != 0 => (self.listed, self.endless) = (None, Endless::default()),
            _ => {}
        }
    }

    /// The page that begins behind `offset`, whatever the server makes of it.
    async fn next_page(
        &mut self,
        session: &Session,
        directory: &Node,
        offset: u64,
        plus: bool,
    ) -> client::Result<Fetched> {
        let mut from = offset;
        loop {
            let mut fetched = match self.fetch(session, directory, from, plus).await {
                Err(error) if from != 0 && error.status() == Some(Status::BadCookie) => {
                    if !self.listed.as_mut().is_some_and(Listed::start_over) {
                        return Err(error);
                    }
                    (from, self.verifier, self.endless) = (0, [0; 8], Endless::default());
                    continue;
                }
                fetched => fetched?,
            };
            if from != 0 && self.endless.goes_on(from) {
                let what = "its cookies repeat, and the listing would never end";
                return Err(client::Error::Protocol { object: "READDIR".to_owned(), what });
            }
            self.verifier = fetched.page.verifier;
            let reached = fetched.page.entries.last().map(|entry| entry.cookie);
            if let Some(listed) = &self.listed {
                fetched.page.entries.retain(|entry| !listed.leaves_out(&entry.name));
            }
            match reached {
                // The reader has had all of it.
                Some(reached) if fetched.page.entries.is_empty() && !fetched.page.eof && reached != from => {
                    from = reached;
                }
                _ => {
                    fetched.begins = offset;
                    return Ok(fetched);
                }
            }
        }
    }

    async fn fetch(
        &mut self,
        session: &Session,
        directory: &Node,
        begins: u64,
        plus: bool,
    ) -> client::Result<Fetched> {
        let mut count = session.sizes().dir_preferred.clamp(PAGE, PAGE_MAX);
        let (asked, version) = (Instant::now(), directory.version());
        loop {
            let with = plus && !self.no_plus;
            match session.read_dir_page(&directory.handle, (begins, self.verifier), count, with).await {
                Ok(page) => return Ok(Fetched { page, begins, plus, asked, version }),
                Err(error) => match error.status() {
                    Some(Status::NotSupported) if with => self.no_plus = true,
                    Some(Status::TooSmall) if count < PAGE_MAX => count *= 2,
                    _ => return Err(error),
                },
            }
        }
    }
}

impl Fetched {
    /// Whether the directory is all in it.
    pub(crate) const fn is_whole(&self) -> bool {
        self.begins == 0 && self.page.eof
    }

    /// Where in the page the entries behind `offset` begin; behind the last of them, if the directory ends
    /// there.
    fn place(&self, offset: u64, plus: bool) -> Option<usize> {
        if plus && !self.plus {
            return None;
        }
        let place = self.index(offset)?;
        (place < self.page.entries.len() || self.page.eof).then_some(place)
    }

    /// How many of its entries are in front of `offset`.
    fn index(&self, offset: u64) -> Option<usize> {
        // The cookie behind which it begins may be of before the listing started over: the page's own come
        // first. The last of several that are the same, for the reader of a broken server is to come to the
        // page's end.
        let place = self.page.entries.iter().rposition(|entry| entry.cookie == offset).map(|place| place + 1);
        place.or((self.begins == offset).then_some(0))
    }
}
