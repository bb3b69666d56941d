//! What an open finds of what was asked for ahead, and what to ask for next: the listings with their
//! followers, and the shelf. Takes the clock as an argument and does nothing by itself.

use std::collections::VecDeque;
use std::time::Instant;

use super::Held;
use super::follower::Follower;
use super::listing::Listing;
use super::shelf::{Key, Shelf, Taken, Wanted};
use crate::session::Page;
use crate::types::Handle;

/// How many directories' listings are kept.
const LISTINGS: usize = 4;

/// A listing, and who goes through it.
#[derive(Debug)]
struct Followed {
    listing: Listing,
    follower: Follower,
    user: Option<lane::LaneCredential>,
}

/// What has been listed, opened and asked for.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The last used one first.
    listings: VecDeque<Followed>,
    pub(super) shelf: Shelf<lane::LaneCredential, Held>,
    /// Somebody looks after what nobody opens.
    pub(super) tended: bool,
}

/// What to ask for now.
pub(super) struct Request {
    pub(super) batch: u64,
    /// `None`: by handles.
    pub(super) directory: Option<Handle>,
    /// Names or handles.
    pub(super) all: Vec<Box<[u8]>>,
}

impl State {
    /// A page of a listing has come.
    pub(super) fn listed(&mut self, directory: &Handle, cookie: u64, page: &Page) {
        let known = self.listings.iter().position(|one| one.listing.directory() == directory);
        let mut one = match known.and_then(|index| self.listings.remove(index)) {
            Some(one) => one,
            None if cookie == 0 => {
                let listing = Listing::new(*directory);
                Followed { listing, follower: Follower::default(), user: None }
            }
            None => return,
        };
        if cookie == 0 {
            one.follower = Follower::default();
        }
        if one.listing.page(cookie, &page.entries) {
            self.listings.push_front(one);
            self.listings.truncate(LISTINGS);
        }
    }

    /// The answer to a request has come; returns what nobody wants.
    pub(super) fn arrived(
        &mut self,
        batch: u64,
        files: Vec<(usize, Handle, Held)>,
        now: Instant,
    ) -> Vec<Held> {
        let (came, unwanted) = self.shelf.arrive(batch, files, now);
        if came == 0 {
            self.wasted();
        }
        unwanted
    }

    /// A file is being opened for reading: what there is of it, what to ask for, and what is to be given
    /// back.
    pub(super) fn opening(
        &mut self,
        wanted: Wanted<'_>,
        user: &lane::LaneCredential,
        now: Instant,
    ) -> (Taken<Held>, Option<Request>, Vec<Held>) {
        let mut unused = self.purge(now);
        let next = self.follow(wanted, user);
        let request = self.request(wanted, user, &next, &mut unused);
        let taken = self.shelf.take(wanted, user);
        if matches!(taken, Taken::Here(_))
            && let Some(first) = self.listings.front_mut()
        {
            first.follower.used();
        }
        (taken, request, unused)
    }

    /// What has waited in vain.
    pub(super) fn purge(&mut self, now: Instant) -> Vec<Held> {
        let old = self.shelf.purge(now);
        if !old.is_empty() {
            self.wasted();
        }
        old
    }

    /// Who goes through the first listing has less use of what was asked for than was thought.
    fn wasted(&mut self) {
        if let Some(first) = self.listings.front_mut() {
            first.follower.wasted();
        }
    }

    /// Puts a request together for these entries of the first listing, as many as a message has room for.
    fn request(
        &mut self,
        wanted: Wanted<'_>,
        user: &lane::LaneCredential,
        next: &[u32],
        unused: &mut Vec<Held>,
    ) -> Option<Request> {
        if next.is_empty() {
            return None;
        }
        let listing = &self.listings.front()?.listing;
        let directory = *listing.directory();
        let by_name = matches!(wanted, Wanted::Entry { .. });
        let mut all: Vec<Box<[u8]>> = Vec::with_capacity(next.len());
        let mut bytes = 0;
        for index in next {
            let one = if by_name {
                Some(listing.name(*index))
            } else {
                listing.handle(*index).map(Handle::as_bytes)
            };
            let Some(one) = one.filter(|one| one.len() <= lane::request::MAX_NAME) else { continue };
            bytes += one.len() + 8;
            if bytes > lane::request::MAX_PREFETCH_BYTES {
                break;
            }
            all.push(one.into());
        }
        if all.is_empty() {
            return None;
        }
        let keys = all.iter().filter_map(|one| match by_name {
            true => Some(Key::Entry { directory, name: one.clone() }),
            false => Handle::new(one).map(Key::File),
        });
        let (batch, surplus) = self.shelf.expect(user, keys);
        unused.extend(surplus);
        Some(Request { batch, directory: by_name.then_some(directory), all })
    }

    /// Which entries of the first listing to ask for.
    fn follow(&mut self, wanted: Wanted<'_>, user: &lane::LaneCredential) -> Vec<u32> {
        let find = |one: &mut Followed| {
            let guess = one.follower.guess(&mut one.listing);
            match wanted {
                Wanted::Entry { directory, name } if directory == one.listing.directory() => {
                    one.listing.find_name(name, guess)
                }
                Wanted::Entry { .. } => None,
                Wanted::File(file) => one.listing.find_handle(file, guess),
            }
        };
        let mut all = self.listings.iter_mut().enumerate();
        let Some((place, index)) = all.find_map(|(place, one)| find(one).map(|index| (place, index))) else {
            return Vec::new();
        };
        if place != 0
            && let Some(one) = self.listings.remove(place)
        {
            self.listings.push_front(one);
        }
        let Some(one) = self.listings.front_mut() else { return Vec::new() };
        if one.user.as_ref() != Some(user) {
            one.user = Some(user.clone());
            one.follower = Follower::default();
        }
        one.follower.opened(&mut one.listing, index)
    }
}
