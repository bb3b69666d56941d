//! The state of open prefetch: recent listings with their sequences of opens, and the cache. It takes the
//! clock as an argument and performs no I/O.

use std::collections::VecDeque;
use std::time::Instant;

use super::PrefetchedFile;
use super::cache::{Key, Lookup, OpenTarget, PrefetchCache};
use super::listing::Listing;
use super::sequence::OpenSequence;
use crate::types::{Handle, Page};

/// The maximum number of listings.
const MAX_LISTINGS: usize = 4;

/// A listing, and the opens of one user in it.
#[derive(Debug)]
struct TrackedListing {
    listing: Listing,
    sequence: OpenSequence,
    user: Option<lane::LaneCredential>,
}

/// Listings, opens and prefetched files.
#[derive(Debug, Default)]
pub(super) struct PrefetchState {
    /// The most recently used first.
    listings: VecDeque<TrackedListing>,
    pub(super) cache: PrefetchCache<lane::LaneCredential, PrefetchedFile>,
    /// Whether a task is running that expires files.
    pub(super) is_expiry_running: bool,
}

/// A request to send.
pub(super) struct PrefetchRequest {
    pub(super) batch: u64,
    /// The directory of the names; `None` if `items` are handles.
    pub(super) directory: Option<Handle>,
    /// Names or handles.
    pub(super) items: Vec<Box<[u8]>>,
}

impl PrefetchState {
    /// Adds the page of a listing that begins at `cookie`.
    pub(super) fn add_page(&mut self, directory: &Handle, cookie: u64, page: &Page) {
        let known = self.listings.iter().position(|one| one.listing.directory() == directory);
        let mut one = match known.and_then(|index| self.listings.remove(index)) {
            Some(one) => one,
            None if cookie == 0 => {
                let listing = Listing::new(directory.clone());
                TrackedListing { listing, sequence: OpenSequence::default(), user: None }
            }
            None => return,
        };
        if cookie == 0 {
            one.sequence = OpenSequence::default();
        }
        if one.listing.add_page(cookie, &page.entries) {
            self.listings.push_front(one);
            self.listings.truncate(MAX_LISTINGS);
        }
    }

    /// Completes a request with the files in its reply. Returns the files that aren't needed.
    pub(super) fn complete(
        &mut self,
        batch: u64,
        files: Vec<(usize, Handle, PrefetchedFile)>,
        now: Instant,
    ) -> Vec<PrefetchedFile> {
        let (stored, unwanted) = self.cache.complete(batch, files, now);
        if stored == 0 {
            self.wasted();
        }
        unwanted
    }

    /// Looks up a file that is being opened for reading, and adds the open to its sequence. Returns the
    /// result, the next request if one is due, and files to release.
    pub(super) fn open(
        &mut self,
        target: OpenTarget<'_>,
        user: &lane::LaneCredential,
        now: Instant,
    ) -> (Lookup<PrefetchedFile>, Option<PrefetchRequest>, Vec<PrefetchedFile>) {
        let mut unused = self.expire(now);
        let next = self.follow(target, user);
        let request = self.request(target, user, &next, &mut unused);
        let found = self.cache.take(target, user);
        if matches!(found, Lookup::Ready(_))
            && let Some(first) = self.listings.front_mut()
        {
            first.sequence.used();
        }
        (found, request, unused)
    }

    /// Removes the files that have waited for too long.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<PrefetchedFile> {
        let expired = self.cache.expire(now);
        if !expired.is_empty() {
            self.wasted();
        }
        expired
    }

    /// Notes that files of the most recently used listing were prefetched in vain.
    fn wasted(&mut self) {
        if let Some(first) = self.listings.front_mut() {
            first.sequence.wasted();
        }
    }

    /// Builds a request for entries of the most recently used listing, as many as a message has room for.
    fn request(
        &mut self,
        target: OpenTarget<'_>,
        user: &lane::LaneCredential,
        next: &[u32],
        unused: &mut Vec<PrefetchedFile>,
    ) -> Option<PrefetchRequest> {
        if next.is_empty() {
            return None;
        }
        let listing = &self.listings.front()?.listing;
        let directory = listing.directory().clone();
        let by_name = matches!(target, OpenTarget::Entry { .. });
        if by_name && !directory.is_sealed() {
            return None;
        }
        let mut items: Vec<Box<[u8]>> = Vec::with_capacity(next.len());
        let mut bytes = 0;
        for index in next {
            let one = if by_name {
                Some(listing.name(*index))
            } else {
                listing.handle(*index).filter(|handle| handle.is_sealed()).map(Handle::as_bytes)
            };
            let Some(one) = one.filter(|one| one.len() <= lane::request::MAX_NAME) else { continue };
            bytes += one.len() + 8;
            if bytes > lane::request::MAX_PREFETCH_BYTES {
                break;
            }
            items.push(one.into());
        }
        if items.is_empty() {
            return None;
        }
        let keys = items.iter().filter_map(|one| match by_name {
            true => Some(Key::Entry { directory: directory.clone(), name: one.clone() }),
            false => Handle::new(one).map(Key::File),
        });
        let (batch, surplus) = self.cache.add_pending(user, keys);
        unused.extend(surplus);
        Some(PrefetchRequest { batch, directory: by_name.then_some(directory), items })
    }

    /// Moves the listing of the file to the front and adds the open to it. Returns the entries to request.
    fn follow(&mut self, target: OpenTarget<'_>, user: &lane::LaneCredential) -> Vec<u32> {
        let find = |one: &mut TrackedListing| {
            let guess = one.sequence.guess(&mut one.listing);
            match target {
                OpenTarget::Entry { directory, name } if directory == one.listing.directory() => {
                    one.listing.find_name(name, guess)
                }
                OpenTarget::Entry { .. } => None,
                OpenTarget::File(file) => one.listing.find_handle(file, guess),
            }
        };
        let mut all = self.listings.iter_mut().enumerate();
        let Some((position, index)) =
            all.find_map(|(position, one)| find(one).map(|index| (position, index)))
        else {
            return Vec::new();
        };
        if position != 0
            && let Some(one) = self.listings.remove(position)
        {
            self.listings.push_front(one);
        }
        let Some(one) = self.listings.front_mut() else { return Vec::new() };
        if one.user.as_ref() != Some(user) {
            one.user = Some(user.clone());
            one.sequence = OpenSequence::default();
        }
        one.sequence.opened(&mut one.listing, index)
    }
}
