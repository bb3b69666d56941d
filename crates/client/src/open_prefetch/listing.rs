//! The entries of a directory listing, in the orders in which programs open files.
//!
//! There are three: as listed (find, tar, a file manager), by name (a shell's `*`, rsync) and by inode number
//! (cp and rm of large directories). The last two cost a sort, which is made only when opens seem to follow
//! that order.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use crate::types::{DirEntry, FileKind, Handle};

/// The maximum number of entries of a listing. Of a longer one the last pages remain: a program that lists
/// page by page also opens page by page.
pub(super) const MAX_ENTRIES: usize = 16_384;

/// An order in which files may be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// As the server listed them.
    Listed,
    /// By the names' bytes.
    Named,
    /// By inode number.
    Numbered,
}

/// An entry of the listing.
#[derive(Debug, Clone, Copy)]
struct Entry {
    start: u32,
    len: u32,
    fileid: u64,
    /// Known not to be a regular file.
    is_other: bool,
}

/// A sorted order.
#[derive(Debug)]
struct Sorted {
    /// Rank → index.
    by_rank: Vec<u32>,
    /// Index → rank.
    ranks: Vec<u32>,
}

/// The known part of one directory's listing.
#[derive(Debug)]
pub(super) struct Listing {
    directory: Handle,
    /// The cookie of the last entry: where the next page begins.
    cookie: u64,
    names: Vec<u8>,
    entries: Vec<Entry>,
    /// As long as `entries`, or empty if the server sent none.
    handles: Vec<Option<Handle>>,
    named: Option<Sorted>,
    numbered: Option<Sorted>,
    /// Hashes of names and handles → index. Made by the first search that the guess doesn't answer.
    index_by_hash: Option<HashMap<u64, u32>>,
    hasher: RandomState,
}

impl Listing {
    pub(super) fn new(directory: Handle) -> Self {
        Self {
            directory,
            cookie: 0,
            names: Vec::new(),
            entries: Vec::new(),
            handles: Vec::new(),
            named: None,
            numbered: None,
            index_by_hash: None,
            hasher: RandomState::new(),
        }
    }

    pub(super) const fn directory(&self) -> &Handle {
        &self.directory
    }

    /// Adds the page that begins at `cookie`; 0 starts the listing over. Returns false if the page doesn't
    /// continue the listing, which is then useless.
    pub(super) fn add_page(&mut self, cookie: u64, entries: &[DirEntry]) -> bool {
        if cookie == 0 || self.entries.len() + entries.len() > MAX_ENTRIES {
            *self = Self { cookie, ..Self::new(self.directory.clone()) };
        }
        if cookie != self.cookie {
            return false;
        }
        (self.named, self.numbered, self.index_by_hash) = (None, None, None);
        for entry in entries.iter().take(MAX_ENTRIES) {
            self.cookie = entry.cookie;
            if matches!(&entry.name[..], b"." | b"..") {
                continue;
            }
            if let Some(handle) = &entry.handle {
                self.handles.resize(self.entries.len(), None);
                self.handles.push(Some(handle.clone()));
            } else if !self.handles.is_empty() {
                self.handles.push(None);
            }
            let kind = entry.attributes.map(|attributes| attributes.kind);
            self.entries.push(Entry {
                start: self.names.len() as u32,
                len: entry.name.len() as u32,
                fileid: entry.fileid,
                is_other: kind.is_some_and(|kind| kind != FileKind::Regular),
            });
            self.names.extend_from_slice(&entry.name);
        }
        true
    }

    pub(super) fn len(&self) -> u32 {
        self.entries.len() as u32
    }

    pub(super) fn name(&self, index: u32) -> &[u8] {
        let entry = &self.entries[index as usize];
        &self.names[entry.start as usize..][..entry.len as usize]
    }

    pub(super) fn handle(&self, index: u32) -> Option<&Handle> {
        self.handles.get(index as usize)?.as_ref()
    }

    /// Whether the entry may be a regular file.
    pub(super) fn may_be_opened(&self, index: u32) -> bool {
        !self.entries[index as usize].is_other
    }

    /// Finds an entry by name. `guess` is compared first.
    pub(super) fn find_name(&mut self, name: &[u8], guess: Option<u32>) -> Option<u32> {
        self.find(guess, self.hasher.hash_one(name), |listing, index| listing.name(index) == name)
    }

    /// Finds an entry by handle. `guess` is compared first.
    pub(super) fn find_handle(&mut self, handle: &Handle, guess: Option<u32>) -> Option<u32> {
        if self.handles.is_empty() {
            return None;
        }
        self.find(guess, self.hasher.hash_one(handle), |listing, index| listing.handle(index) == Some(handle))
    }

    fn find(&mut self, guess: Option<u32>, hash: u64, matches: impl Fn(&Self, u32) -> bool) -> Option<u32> {
        if let Some(guess) = guess.filter(|guess| *guess < self.len() && matches(self, *guess)) {
            return Some(guess);
        }
        if self.index_by_hash.is_none() {
            let mut index_by_hash = HashMap::with_capacity(self.entries.len() * 2);
            for index in 0..self.len() {
                index_by_hash.insert(self.hasher.hash_one(self.name(index)), index);
                if let Some(handle) = self.handle(index) {
                    index_by_hash.insert(self.hasher.hash_one(handle), index);
                }
            }
            self.index_by_hash = Some(index_by_hash);
        }
        // Of two entries with the same hash only one is found; the other isn't prefetched.
        let index = *self.index_by_hash.as_ref()?.get(&hash)?;
        matches(self, index).then_some(index)
    }

    /// Whether `second` comes after `first` in this order.
    pub(super) fn rises(&self, order: Order, first: u32, second: u32) -> bool {
        match order {
            Order::Listed => first < second,
            Order::Named => self.name(first) < self.name(second),
            Order::Numbered => self.entries[first as usize].fileid < self.entries[second as usize].fileid,
        }
    }

    /// The entry's rank in an order.
    pub(super) fn rank(&mut self, order: Order, index: u32) -> u32 {
        match self.sorted(order) {
            Some(sorted) => sorted.ranks[index as usize],
            None => index,
        }
    }

    /// The entry at a rank in an order, if there is one.
    pub(super) fn at(&mut self, order: Order, rank: u32) -> Option<u32> {
        if rank >= self.len() {
            return None;
        }
        Some(self.sorted(order).map_or(rank, |sorted| sorted.by_rank[rank as usize]))
    }

    /// Returns `None` for [`Order::Listed`].
    fn sorted(&mut self, order: Order) -> Option<&Sorted> {
        let known = match order {
            Order::Listed => return None,
            Order::Named => &self.named,
            Order::Numbered => &self.numbered,
        };
        if known.is_none() {
            let mut by_rank: Vec<u32> = (0..self.len()).collect();
            if order == Order::Named {
                by_rank.sort_unstable_by(|a, b| self.name(*a).cmp(self.name(*b)));
            } else {
                by_rank.sort_unstable_by_key(|index| self.entries[*index as usize].fileid);
            }
            let mut ranks = vec![0; by_rank.len()];
            for (rank, index) in by_rank.iter().enumerate() {
                ranks[*index as usize] = rank as u32;
            }
            let sorted = Some(Sorted { by_rank, ranks });
            if order == Order::Named { self.named = sorted } else { self.numbered = sorted }
        }
        if order == Order::Named { self.named.as_ref() } else { self.numbered.as_ref() }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::open_prefetch) fn entry(name: &str, fileid: u64, cookie: u64) -> DirEntry {
        let handle = Handle::new(format!("h-{name}").as_bytes());
        let name = name.as_bytes().to_vec();
        DirEntry { name, fileid, cookie, kind: None, handle, attributes: None, acls: None }
    }

    /// A listing of these names, with descending inode numbers.
    pub(in crate::open_prefetch) fn listing(names: &[&str]) -> Listing {
        let mut listing = Listing::new(Handle::new(b"dir").unwrap());
        let entries: Vec<DirEntry> = names
            .iter()
            .enumerate()
            .map(|(i, name)| entry(name, 1_000_000 - i as u64, i as u64 + 1))
            .collect();
        assert!(listing.add_page(0, &entries));
        listing
    }

    #[test]
    fn entries_are_found_and_ranked() {
        let mut listing = listing(&["c", ".", "a", "..", "b"]);
        assert_eq!(listing.len(), 3);
        assert_eq!(listing.find_name(b"a", None), Some(1));
        assert_eq!(listing.find_name(b"a", Some(7)), Some(1));
        assert_eq!(listing.find_name(b"d", Some(1)), None);
        assert_eq!(listing.find_handle(&Handle::new(b"h-b").unwrap(), None), Some(2));
        assert_eq!(listing.find_handle(&Handle::new(b"h-c").unwrap(), Some(0)), Some(0));
        let order = |listing: &mut Listing, order| -> Vec<u32> {
            (0..4).filter_map(|rank| listing.at(order, rank)).collect()
        };
        assert_eq!(order(&mut listing, Order::Listed), [0, 1, 2]);
        assert_eq!(order(&mut listing, Order::Named), [1, 2, 0]);
        assert_eq!(order(&mut listing, Order::Numbered), [2, 1, 0]);
        assert_eq!(listing.rank(Order::Named, 0), 2);
        assert!(listing.rises(Order::Named, 1, 0) && !listing.rises(Order::Numbered, 0, 2));
    }

    #[test]
    fn a_page_continues_the_listing_or_starts_it_over() {
        let mut listing = listing(&["a", "b"]);
        assert!(listing.add_page(2, &[entry("c", 5, 9)]));
        assert_eq!(listing.len(), 3);
        assert_eq!(listing.find_name(b"c", None), Some(2));
        assert!(!listing.add_page(7, &[entry("z", 5, 10)]));
        assert!(listing.add_page(0, &[entry("d", 5, 1)]));
        assert_eq!((listing.len(), listing.name(0)), (1, &b"d"[..]));
    }

    #[test]
    fn of_a_long_listing_the_last_pages_remain() {
        let mut listing = Listing::new(Handle::new(b"dir").unwrap());
        let mut cookie = 0;
        for page in 0..20 {
            let entries: Vec<DirEntry> =
                (1..=1000).map(|i| entry(&format!("{page}-{i}"), 1, cookie + i)).collect();
            assert!(listing.add_page(cookie, &entries));
            cookie += 1000;
            assert!(listing.len() as usize <= MAX_ENTRIES);
        }
        assert!(listing.find_name(b"19-1000", None).is_some());
        assert!(listing.find_name(b"0-1", None).is_none());
    }
}
