//! One open directory's place in its listing.
//!
//! The server's cookies are the kernel's offsets, so seekdir(3) works without remembering anything: an offset is either in
//! the page at hand, or the next page is fetched from there. Pages are larger than the kernel's buffer; what is left of
//! one answers the next request.

use std::time::Instant;

use client::{DirEntry, Page, Session, Status};

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
    /// The entries behind the cookie `offset`, none at the end, and the page that they are of. `plus`: with handles and
    /// attributes, if the server has that.
    pub(crate) async fn behind(
        &mut self,
        session: &Session,
        directory: &Node,
        offset: u64,
        plus: bool,
    ) -> client::Result<(&[DirEntry], &Fetched)> {
        // rewinddir(3) shows what is there now, and begins anew after a server lost its cookies.
        if offset == 0 {
            (self.fetched, self.verifier) = (None, [0; 8]);
        }
        let at_hand = self.fetched.as_ref().is_some_and(|fetched| fetched.place(offset, plus).is_some());
        if !at_hand {
            let fetched = self.fetch(session, directory, offset, plus).await?;
            self.verifier = fetched.page.verifier;
            self.fetched = Some(fetched);
        }
        let missing = || client::Error::Protocol { object: "READDIR".to_owned(), what: "there is no page" };
        let fetched = self.fetched.as_ref().ok_or_else(missing)?;
        let place = fetched.place(offset, plus).unwrap_or_default();
        Ok((&fetched.page.entries[place..], fetched))
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
    /// Where in the page the entries behind `offset` begin; behind the last of them, if the directory ends there.
    fn place(&self, offset: u64, plus: bool) -> Option<usize> {
        if plus && !self.plus {
            return None;
        }
        let entries = &self.page.entries;
        let place = if self.begins == offset {
            0
        } else {
            entries.iter().position(|entry| entry.cookie == offset)? + 1
        };
        (place < entries.len() || self.page.eof).then_some(place)
    }
}
