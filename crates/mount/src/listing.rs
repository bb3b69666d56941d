//! One open directory's place in its listing.
//!
//! The server's cookies are the kernel's offsets, so seekdir(3) works without remembering anything: an offset is either in
//! the page at hand, or the next page is fetched from there. Pages are larger than the kernel's buffer; what is left of
//! one answers the next request.

use client::{DirEntry, Page, Session, Status};

/// Bytes of a page to begin with.
const PAGE: u32 = 32 << 10;

/// A page is never asked to be longer than this.
const PAGE_MAX: u32 = 1 << 20;

/// Where a listing is.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    page: Page,
    /// The cookie behind which the page begins; `None`: there is no page.
    begins: Option<u64>,
    /// Of the page at hand or the one before, for the next.
    verifier: [u8; 8],
    /// Whether the page has handles and attributes.
    plus: bool,
    /// The server has no READDIRPLUS.
    no_plus: bool,
}

impl Listing {
    /// The entries behind the cookie `offset`; none at the end. `plus`: with handles and attributes, if the server has that.
    pub(crate) async fn behind(
        &mut self,
        session: &Session,
        directory: &client::Handle,
        offset: u64,
        plus: bool,
    ) -> client::Result<&[DirEntry]> {
        // rewinddir(3) shows what is there now, and begins anew after a server lost its cookies.
        if offset == 0 {
            (self.begins, self.verifier) = (None, [0; 8]);
        }
        if let Some(at) = self.position(offset, plus) {
            return Ok(&self.page.entries[at..]);
        }
        if self.is_end(offset) {
            return Ok(&[]);
        }
        let mut count = session.sizes().dir_preferred.clamp(PAGE, PAGE_MAX);
        let page = loop {
            let with = plus && !self.no_plus;
            match session.read_dir_page(directory, (offset, self.verifier), count, with).await {
                Ok(page) => break page,
                Err(error) => match error.status() {
                    Some(Status::NotSupported) if with => self.no_plus = true,
                    Some(Status::TooSmall) if count < PAGE_MAX => count *= 2,
                    _ => return Err(error),
                },
            }
        };
        self.verifier = page.verifier;
        (self.begins, self.plus, self.page) = (Some(offset), plus, page);
        Ok(&self.page.entries)
    }

    /// Where in the page the entries behind `offset` begin, if there are any.
    fn position(&self, offset: u64, plus: bool) -> Option<usize> {
        if plus && !self.plus {
            return None;
        }
        let entries = &self.page.entries;
        if self.begins? == offset {
            return (!entries.is_empty()).then_some(0);
        }
        let at = entries.iter().position(|entry| entry.cookie == offset)? + 1;
        (at < entries.len()).then_some(at)
    }

    /// Whether the directory ends at `offset`, as far as the page tells.
    fn is_end(&self, offset: u64) -> bool {
        self.page.eof
            && self.begins.is_some_and(|begins| match self.page.entries.last() {
                Some(last) => last.cookie == offset,
                None => begins == offset,
            })
    }
}
