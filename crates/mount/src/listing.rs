//! The listing of one open directory: the current page, and the entries that the reader has had.
//!
//! The server's cookies are the kernel's offsets, so seekdir(3) needs no state. An offset is either in the
//! current page, or a page is fetched from there. Pages are larger than the kernel's buffer; the rest of one
//! serves the next request.
//!
//! If the server can't continue from a cookie (NFS3ERR_BAD_COOKIE), the directory is read from the beginning
//! and entries that the reader has had are left out. Applications don't expect that error. A reader that had
//! the first entries from the kernel's cache, or came by seekdir(3), continues behind the entry with its
//! cookie. If that entry has been removed, it receives all entries, some perhaps for the second time.
//!
//! A page is fetched with the files' access control lists if the reader will probably ask for them. If that
//! shows when it has begun with a page, the page gets them by a second request.
//!
//! The first page may be fetched when the directory is opened ([`FirstPage`]): it takes the same right to
//! read the directory, so no call has to ask for that.

use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime};

use client::{Attributes, CookieLoopDetector, DirEntry, Handle, Listed, Page, Plus, Session, Status};

use crate::filesystem::ListingMark;
use crate::inode::Inode;

/// Bytes of a page unless the server prefers more or asks for more.
const MIN_PAGE: u32 = 32 << 10;

/// Bytes of a page at most.
const MAX_PAGE: u32 = 1 << 20;

/// Bytes of a page at most that is fetched when the directory is opened. It may go unread.
const MAX_FIRST_PAGE: u32 = 128 << 10;

/// How long a first page serves that was fetched when the directory was opened.
const FIRST_PAGE_AGE: Duration = Duration::from_secs(1);

/// The pages with access control lists that a page without them may take: each list is as long as the rest of
/// an entry, unless files have many names in them.
const MAX_ACL_PAGES: usize = 8;

/// What a listing is compared with later, to see whether the directory has changed since its first page was
/// requested.
#[derive(Debug)]
pub(crate) struct ListingStart {
    /// The directory's attributes before.
    pub(crate) before: Option<Attributes>,
    /// When that was.
    pub(crate) requested: (Instant, SystemTime),
}

impl ListingStart {
    /// For a page that is about to be requested.
    pub(crate) fn now(directory: &Inode) -> Self {
        Self { before: directory.attributes(), requested: (Instant::now(), SystemTime::now()) }
    }
}

/// A first page that was fetched when the directory was opened.
#[derive(Debug)]
pub(crate) struct FirstPage {
    start: ListingStart,
    /// The names that were changed here before.
    mark: ListingMark,
    page: FetchedPage,
}

/// The state of a listing.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// Until the first read.
    first: Option<FirstPage>,
    fetched: Option<FetchedPage>,
    /// The cookie verifier of the last page, for the next.
    verifier: [u8; 8],
    /// The server has no READDIRPLUS.
    no_plus: bool,
    /// The entries of earlier pages that the reader has had; `None` if it began in the middle (seekdir(3)).
    listed: Option<Listed>,
    /// Detects cookies that repeat.
    cookie_loop: CookieLoopDetector,
}

/// A page of a listing.
#[derive(Debug)]
pub(crate) struct FetchedPage {
    page: Page,
    /// The cookie behind which it begins.
    begins: u64,
    /// Whether its entries have handles and attributes.
    plus: bool,
    /// Whether its entries have access control lists, as far as the server sends them.
    acls: bool,
    /// When it was requested.
    pub(crate) asked: Instant,
    /// The directory's version at that time.
    pub(crate) version: u64,
}

impl Listing {
    /// A listing with its first page, which is requested now, after `mark`.
    ///
    /// # Errors
    /// The server's or the call's.
    pub(crate) async fn begin(
        session: &Session,
        directory: &Inode,
        (start, mark): (ListingStart, ListingMark),
        plus: Plus<'_>,
    ) -> client::Result<Self> {
        let mut listing = Self::default();
        let count = Self::page_size(session).min(MAX_FIRST_PAGE);
        let page = listing.fetch(session, directory, (0, count), plus).await?;
        listing.first = Some(FirstPage { start, mark, page });
        Ok(listing)
    }

    /// Whether the first page was fetched when the directory was opened, and hasn't been taken.
    pub(crate) const fn has_first_page(&self) -> bool {
        self.first.is_some()
    }

    /// Takes the first page of the open, if no name has been changed here since. It is for [`Listing::read`].
    pub(crate) fn take_first(
        &mut self,
        now: Instant,
        mark: ListingMark,
    ) -> Option<(ListingStart, FetchedPage)> {
        let FirstPage { start, mark: from, page } = self.first.take()?;
        let age = now.saturating_duration_since(page.asked);
        (mark == from && age < FIRST_PAGE_AGE).then_some((start, page))
    }

    /// The entries behind the cookie `offset`, none at the end, and their page. Those of `plus` have handles
    /// and attributes, if the server has READDIRPLUS. A listing from the beginning uses `first`, if there is
    /// one.
    pub(crate) async fn read(
        &mut self,
        session: &Session,
        directory: &Inode,
        (offset, first): (u64, Option<FetchedPage>),
        plus: Plus<'_>,
    ) -> client::Result<(&[DirEntry], &FetchedPage)> {
        // rewinddir(3) shows the directory as it is now.
        if offset == 0 {
            let verifier = first.as_ref().map_or([0; 8], FetchedPage::verifier);
            (self.fetched, self.verifier, self.listed) = (first, verifier, Some(Listed::default()));
            self.cookie_loop = CookieLoopDetector::default();
        } else if self.fetched.is_none() {
            // The kernel had the first entries in its cache.
            self.verifier = directory.lock().listing.map_or(self.verifier, |listing| listing.verifier);
        }
        let is_plus = plus.is_wanted();
        let mut index = self.fetched.as_ref().and_then(|fetched| fetched.index_for(offset, is_plus));
        if index.is_none() {
            self.leave_page(offset);
            self.fetched = Some(self.next_page(session, directory, offset, plus).await?);
            index = Some(0);
        } else if matches!(plus, Plus::Acls) {
            self.add_acls(session, directory).await;
        }
        let missing = || client::Error::Protocol { object: "READDIR".to_owned(), what: "there is no page" };
        let fetched = self.fetched.as_ref().ok_or_else(missing)?;
        Ok((&fetched.page.entries[index.unwrap_or_default()..], fetched))
    }

    /// Whether this file is in the current page, which lacks access control lists.
    pub(crate) fn lacks_acls_of(&self, file: &Handle) -> bool {
        self.fetched.as_ref().is_some_and(|fetched| {
            fetched.plus
                && !fetched.acls
                && fetched.page.entries.iter().any(|entry| entry.handle.as_ref() == Some(file))
        })
    }

    /// Fetches the access control lists of the current page's files, unless it has them. The lists of an
    /// entry that isn't there any more, or of any if a call fails, stay unknown.
    pub(crate) async fn add_acls(&mut self, session: &Session, directory: &Inode) {
        let Some(fetched) = self.fetched.as_mut().filter(|fetched| fetched.plus && !fetched.acls) else {
            return;
        };
        fetched.acls = true;
        let (mut from, ends) = (fetched.begins, fetched.page.entries.last().map(|entry| entry.cookie));
        let mut lists = HashMap::new();
        for _ in 0..MAX_ACL_PAGES {
            let count = Self::page_size(session);
            let fetched = self.fetch(session, directory, (from, count), Plus::Acls).await;
            let Ok(FetchedPage { page, .. }) = fetched else { break };
            let reached = page.entries.last().map(|entry| entry.cookie);
            let is_whole = page.eof || page.entries.iter().any(|entry| Some(entry.cookie) == ends);
            let with_lists = page.entries.into_iter().filter(|entry| entry.acls.is_some());
            lists.extend(with_lists.filter_map(|entry| Some((entry.handle.clone()?, entry))));
            match reached {
                Some(reached) if !is_whole && reached != from => from = reached,
                _ => break,
            }
        }
        if let Some(fetched) = &mut self.fetched {
            for entry in &mut fetched.page.entries {
                if let Some(newer) = entry.handle.as_ref().and_then(|handle| lists.remove(handle)) {
                    // Lists belong to the attributes beside them.
                    (entry.attributes, entry.acls) = (newer.attributes, newer.acls);
                }
            }
        }
    }

    /// The reader continues behind `offset`, and has had the entries in front of it.
    fn leave_page(&mut self, offset: u64) {
        let had = self.fetched.as_ref().and_then(|page| Some(&page.page.entries[..page.index(offset)?]));
        match (had, &mut self.listed) {
            (Some(had), Some(listed)) => had.iter().for_each(|entry| listed.add(&entry.name)),
            _ if offset != 0 => (self.listed, self.cookie_loop) = (None, CookieLoopDetector::default()),
            _ => {}
        }
    }

    /// Fetches the page behind `offset`, from the beginning if the server has lost the cookie.
    async fn next_page(
        &mut self,
        session: &Session,
        directory: &Inode,
        offset: u64,
        plus: Plus<'_>,
    ) -> client::Result<FetchedPage> {
        let mut from = offset;
        loop {
            let count = Self::page_size(session);
            let mut fetched = match self.fetch(session, directory, (from, count), plus).await {
                Err(error) if from != 0 && error.status() == Some(Status::BadCookie) => {
                    let has_listed = self.listed.is_some();
                    if !self.listed.get_or_insert_default().start_over() {
                        return Err(error);
                    }
                    self.cookie_loop = CookieLoopDetector::default();
                    match if has_listed { None } else { self.find(session, directory, offset).await? } {
                        Some(verifier) => self.verifier = verifier,
                        None => (from, self.verifier) = (0, [0; 8]),
                    }
                    continue;
                }
                fetched => fetched?,
            };
            if from != 0 && self.cookie_loop.is_loop(from) {
                let what = "its cookies repeat, and the listing would never end";
                return Err(client::Error::Protocol { object: "READDIR".to_owned(), what });
            }
            self.verifier = fetched.page.verifier;
            let reached = fetched.page.entries.last().map(|entry| entry.cookie);
            if let Some(listed) = &self.listed {
                fetched.page.entries.retain(|entry| !listed.leaves_out(&entry.name));
            }
            match reached {
                // The reader has had all entries of this page.
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

    /// Looks for the entry with the cookie `offset` from the directory's beginning on. Returns the verifier
    /// of its page.
    async fn find(
        &mut self,
        session: &Session,
        directory: &Inode,
        offset: u64,
    ) -> client::Result<Option<[u8; 8]>> {
        let mut cookie_loop = CookieLoopDetector::default();
        let mut from = 0;
        self.verifier = [0; 8];
        loop {
            let count = Self::page_size(session);
            let page = self.fetch(session, directory, (from, count), Plus::None).await?.page;
            self.verifier = page.verifier;
            if page.entries.iter().any(|entry| entry.cookie == offset) {
                return Ok(Some(page.verifier));
            }
            match page.entries.last() {
                Some(last) if !page.eof && last.cookie != from && !cookie_loop.is_loop(last.cookie) => {
                    from = last.cookie;
                }
                _ => return Ok(None),
            }
        }
    }

    /// Bytes of a page that is read.
    fn page_size(session: &Session) -> u32 {
        session.sizes().dir_preferred.clamp(MIN_PAGE, MAX_PAGE)
    }

    /// Fetches a page that begins behind a cookie, of at most `count` bytes unless no entry fits into that.
    async fn fetch(
        &mut self,
        session: &Session,
        directory: &Inode,
        (begins, mut count): (u64, u32),
        plus: Plus<'_>,
    ) -> client::Result<FetchedPage> {
        let (asked, version) = (Instant::now(), directory.version());
        let mut with = if self.no_plus { Plus::None } else { plus };
        loop {
            match session.read_dir_page(&directory.handle, (begins, self.verifier), count, with).await {
                Ok(page) => {
                    let (plus, acls) = (plus.is_wanted(), matches!(plus, Plus::Acls));
                    return Ok(FetchedPage { page, begins, plus, acls, asked, version });
                }
                Err(error) => {
                    // A list may be longer than a reply, or one that can't be decoded.
                    let may_be_a_list = matches!(error, client::Error::Protocol { .. })
                        || matches!(error.status(), Some(Status::TooSmall | Status::NotSupported));
                    match error.status() {
                        Some(Status::TooSmall) if count < MAX_PAGE => count *= 2,
                        _ if may_be_a_list && matches!(with, Plus::Acls) => with = Plus::All,
                        Some(Status::NotSupported) if with.is_wanted() => {
                            (self.no_plus, with) = (true, Plus::None);
                        }
                        _ => return Err(error),
                    }
                }
            }
        }
    }
}

impl FetchedPage {
    /// The cookie verifier.
    pub(crate) const fn verifier(&self) -> [u8; 8] {
        self.page.verifier
    }

    /// The index of the first entry behind `offset`, or behind the last one if the directory ends there.
    /// `None` if another page is needed.
    fn index_for(&self, offset: u64, plus: bool) -> Option<usize> {
        if plus && !self.plus {
            return None;
        }
        let index = self.index(offset)?;
        (index < self.page.entries.len() || self.page.eof).then_some(index)
    }

    /// The number of its entries in front of `offset`.
    fn index(&self, offset: u64) -> Option<usize> {
        // The page's own cookies come first: the one behind which it begins may be from before the listing
        // was restarted. Of equal cookies, which only a broken server sends, the last counts, so that the
        // reader reaches the page's end.
        let index = self.page.entries.iter().rposition(|entry| entry.cookie == offset).map(|index| index + 1);
        index.or((self.begins == offset).then_some(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filesystem::ListedNames;

    #[test]
    fn a_first_page_serves_once_and_for_a_short_time() {
        let (now, names) = (Instant::now(), ListedNames::default());
        let mark = names.mark();
        let begun = || {
            let page = FetchedPage {
                page: Page::default(),
                begins: 0,
                plus: true,
                acls: false,
                asked: now,
                version: 0,
            };
            let start = ListingStart { before: None, requested: (now, SystemTime::now()) };
            Listing { first: Some(FirstPage { start, mark, page }), ..Listing::default() }
        };
        let mut listing = begun();
        assert!(listing.take_first(now, mark).is_some() && listing.take_first(now, mark).is_none());
        assert!(begun().take_first(now + FIRST_PAGE_AGE, mark).is_none());
        drop(names.change(2));
        assert!(begun().take_first(now, names.mark()).is_none(), "a name was changed since");
    }
}
