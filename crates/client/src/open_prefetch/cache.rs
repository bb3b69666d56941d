//! The cache of prefetched files: requested ones that are pending, and open ones for a short time.
//!
//! An item is added by [`PrefetchCache::add_pending`] when its request is sent. [`PrefetchCache::complete`]
//! stores the open file when the reply arrives, or removes the item. An open takes it with
//! [`PrefetchCache::take`]; otherwise [`PrefetchCache::expire`] removes it. Files that leave the cache unused
//! are returned to the caller, which drops them without holding a lock.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::types::Handle;

/// The time for which a prefetched file waits to be opened.
pub(super) const MAX_AGE: Duration = Duration::from_millis(100);

/// The maximum number of items.
pub(super) const MAX_ITEMS: usize = 72;

/// A file that is being opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenTarget<'a> {
    /// By its name in a directory.
    Entry { directory: &'a Handle, name: &'a [u8] },
    /// By its handle.
    File(&'a Handle),
}

/// What was requested.
#[derive(Debug)]
pub(super) enum Key {
    Entry { directory: Handle, name: Box<[u8]> },
    File(Handle),
}

#[derive(Debug)]
enum ItemState<T> {
    /// Item `index` of request `batch`.
    Pending {
        batch: u64,
        index: usize,
    },
    Ready {
        file: T,
        handle: Handle,
        until: Instant,
    },
}

#[derive(Debug)]
struct Item<U, T> {
    key: Key,
    user: U,
    state: ItemState<T>,
}

/// The result of a lookup.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lookup<T> {
    /// The open file, which has left the cache.
    Ready(T),
    /// It was requested, and the reply hasn't arrived.
    Pending,
    /// It isn't in the cache.
    Missing,
}

/// The cache. `U` is a user, `T` an open file.
#[derive(Debug)]
pub(super) struct PrefetchCache<U, T> {
    /// The oldest first.
    items: VecDeque<Item<U, T>>,
    batches: u64,
}

impl<U, T> Default for PrefetchCache<U, T> {
    fn default() -> Self {
        Self { items: VecDeque::new(), batches: 0 }
    }
}

impl<U: PartialEq + Clone, T> PrefetchCache<U, T> {
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Adds the items of a request for `user`. Returns the request's number, and the files that were evicted
    /// to make room.
    pub(super) fn add_pending(&mut self, user: &U, keys: impl Iterator<Item = Key>) -> (u64, Vec<T>) {
        self.batches += 1;
        let batch = self.batches;
        self.items.extend(keys.enumerate().map(|(index, key)| Item {
            key,
            user: user.clone(),
            state: ItemState::Pending { batch, index },
        }));
        let surplus = self.items.len().saturating_sub(MAX_ITEMS);
        (batch, self.items.drain(..surplus).filter_map(Item::into_file).collect())
    }

    /// Stores the files in the reply to a request, by their index in it, and removes its other items. Returns
    /// how many files were stored, and those that no item is pending for.
    pub(super) fn complete(
        &mut self,
        batch: u64,
        mut files: Vec<(usize, Handle, T)>,
        now: Instant,
    ) -> (usize, Vec<T>) {
        let before = files.len();
        self.items.retain_mut(|item| {
            let ItemState::Pending { batch: item_batch, index } = item.state else { return true };
            if item_batch != batch {
                return true;
            }
            let Some(found) = files.iter().position(|(at, ..)| *at == index) else { return false };
            let (_, handle, file) = files.swap_remove(found);
            item.state = ItemState::Ready { file, handle, until: now + MAX_AGE };
            true
        });
        (before - files.len(), files.into_iter().map(|(.., file)| file).collect())
    }

    /// Takes a file out of the cache.
    pub(super) fn take(&mut self, target: OpenTarget<'_>, user: &U) -> Lookup<T> {
        let found = self.items.iter().position(|item| item.is(target) && item.user == *user);
        let Some(found) = found else { return Lookup::Missing };
        if matches!(self.items[found].state, ItemState::Pending { .. }) {
            return Lookup::Pending;
        }
        self.items.remove(found).and_then(Item::into_file).map_or(Lookup::Missing, Lookup::Ready)
    }

    /// Removes the files that have waited for too long.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<T> {
        let mut expired = Vec::new();
        // Replies arrive in the order of the requests, or nearly so.
        while let Some(Item { state: ItemState::Ready { until, .. }, .. }) = self.items.front()
            && *until <= now
        {
            expired.extend(self.items.pop_front().and_then(Item::into_file));
        }
        expired
    }

    /// Removes everything. Replies to pending requests will be returned as unwanted.
    pub(super) fn clear(&mut self) -> Vec<T> {
        self.items.drain(..).filter_map(Item::into_file).collect()
    }
}

impl<U, T> Item<U, T> {
    fn is(&self, target: OpenTarget<'_>) -> bool {
        match (target, &self.key, &self.state) {
            (
                OpenTarget::Entry { directory, name },
                Key::Entry { directory: key_directory, name: key_name },
                _,
            ) => name == &key_name[..] && directory == key_directory,
            (OpenTarget::File(file), Key::File(key), _) => file == key,
            // Requested by name, and opened by the handle that a LOOKUP returned.
            (OpenTarget::File(file), _, ItemState::Ready { handle, .. }) => file == handle,
            _ => false,
        }
    }

    fn into_file(self) -> Option<T> {
        match self.state {
            ItemState::Ready { file, .. } => Some(file),
            ItemState::Pending { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(text: &str) -> Handle {
        Handle::new(text.as_bytes()).unwrap()
    }

    fn keys(names: &'static [&'static str]) -> impl Iterator<Item = Key> {
        names.iter().map(|name| Key::Entry { directory: handle("d"), name: name.as_bytes().into() })
    }

    fn take(cache: &mut PrefetchCache<u32, char>, user: u32, name: &str) -> Lookup<char> {
        cache.take(OpenTarget::Entry { directory: &handle("d"), name: name.as_bytes() }, &user)
    }

    #[test]
    fn an_item_is_pending_then_ready_then_taken() {
        let (mut cache, now) = (PrefetchCache::<u32, char>::default(), Instant::now());
        let (batch, _) = cache.add_pending(&1, keys(&["a", "b", "c"]));
        assert_eq!(take(&mut cache, 1, "a"), Lookup::Pending);
        assert_eq!(take(&mut cache, 2, "a"), Lookup::Missing, "another user's");
        let files = vec![(2, handle("C"), 'c'), (0, handle("A"), 'a'), (7, handle("X"), 'x')];
        assert_eq!(cache.complete(batch, files, now), (2, vec!['x']));
        assert_eq!(take(&mut cache, 2, "a"), Lookup::Missing);
        assert_eq!(take(&mut cache, 1, "a"), Lookup::Ready('a'));
        assert_eq!(take(&mut cache, 1, "a"), Lookup::Missing);
        assert_eq!(take(&mut cache, 1, "b"), Lookup::Missing, "it was not granted");
        assert_eq!(cache.take(OpenTarget::File(&handle("C")), &1), Lookup::Ready('c'));
        assert!(cache.is_empty());
    }

    #[test]
    fn unused_files_expire_and_the_oldest_is_evicted() {
        let (mut cache, now) = (PrefetchCache::<u32, char>::default(), Instant::now());
        let (first, _) = cache.add_pending(&1, keys(&["a"]));
        let (second, _) = cache.add_pending(&1, keys(&["b"]));
        cache.complete(first, vec![(0, handle("A"), 'a')], now);
        cache.complete(second, vec![(0, handle("B"), 'b')], now + MAX_AGE / 2);
        assert_eq!(cache.expire(now + MAX_AGE / 2), []);
        assert_eq!(cache.expire(now + MAX_AGE), ['a']);
        let many: Vec<Key> = (0..MAX_ITEMS).map(|i| Key::File(handle(&i.to_string()))).collect();
        assert_eq!(cache.add_pending(&1, many.into_iter()).1, ['b']);
        assert_eq!(cache.items.len(), MAX_ITEMS);
        assert_eq!(cache.clear(), []);
    }

    #[test]
    fn a_late_reply_is_returned() {
        let (mut cache, now) = (PrefetchCache::<u32, char>::default(), Instant::now());
        let (batch, _) = cache.add_pending(&1, keys(&["a"]));
        cache.clear();
        assert_eq!(cache.complete(batch, vec![(0, handle("A"), 'a')], now), (0, vec!['a']));
        assert_eq!(take(&mut cache, 1, "a"), Lookup::Missing);
    }
}
