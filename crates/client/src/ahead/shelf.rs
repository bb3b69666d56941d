//! Files that were asked for before they are opened: on their way, or here and waiting, for a short time.
//!
//! An item's life: [`Shelf::expect`] when it is asked for; [`Shelf::arrive`] with the answer, or not;
//! [`Shelf::take`] by the open that it was meant for, or [`Shelf::purge`] when that doesn't come. Everything
//! that leaves the shelf unused is given back to the caller, who drops it when he holds no lock.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::types::Handle;

/// For how long a file may wait to be opened.
pub(super) const LIFE: Duration = Duration::from_millis(100);

/// How many items there are at most.
pub(super) const MOST: usize = 72;

/// A file that is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted<'a> {
    /// By its name in a directory.
    Entry { directory: &'a Handle, name: &'a [u8] },
    /// By its handle.
    File(&'a Handle),
}

/// What was asked for.
#[derive(Debug)]
pub(super) enum Key {
    Entry { directory: Handle, name: Box<[u8]> },
    File(Handle),
}

#[derive(Debug)]
enum State<T> {
    Coming { batch: u64, place: usize },
    Here { what: T, handle: Handle, until: Instant },
}

#[derive(Debug)]
struct Item<U, T> {
    key: Key,
    user: U,
    state: State<T>,
}

/// What the shelf has of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken<T> {
    /// It.
    Here(T),
    /// Nothing yet, but it was asked for.
    Coming,
    /// Nothing.
    Nothing,
}

/// See the module. `U` is who asks, `T` an open file.
#[derive(Debug)]
pub(super) struct Shelf<U, T> {
    /// The oldest first.
    items: VecDeque<Item<U, T>>,
    batches: u64,
}

impl<U, T> Default for Shelf<U, T> {
    fn default() -> Self {
        Self { items: VecDeque::new(), batches: 0 }
    }
}

impl<U: PartialEq + Clone, T> Shelf<U, T> {
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// These were asked for, for this user; the number of the request, and what had to make room.
    pub(super) fn expect(&mut self, user: &U, keys: impl Iterator<Item = Key>) -> (u64, Vec<T>) {
        self.batches += 1;
        let batch = self.batches;
        let state = |place| State::Coming { batch, place };
        self.items.extend(keys.enumerate().map(|(place, key)| Item {
            key,
            user: user.clone(),
            state: state(place),
        }));
        let surplus = self.items.len().saturating_sub(MOST);
        (batch, self.items.drain(..surplus).filter_map(Item::into_inner).collect())
    }

    /// The answer to a request: files by their place in it. What isn't among them won't come. Gives back what
    /// nobody waits for any more, and says how many came.
    pub(super) fn arrive(
        &mut self,
        batch: u64,
        mut files: Vec<(usize, Handle, T)>,
        now: Instant,
    ) -> (usize, Vec<T>) {
        let before = files.len();
        self.items.retain_mut(|item| {
            let State::Coming { batch: its, place } = item.state else { return true };
            if its != batch {
                return true;
            }
            let Some(found) = files.iter().position(|(index, ..)| *index == place) else { return false };
            let (_, handle, what) = files.swap_remove(found);
            item.state = State::Here { what, handle, until: now + LIFE };
            true
        });
        (before - files.len(), files.into_iter().map(|(.., what)| what).collect())
    }

    /// Takes a file off the shelf.
    pub(super) fn take(&mut self, wanted: Wanted<'_>, user: &U) -> Taken<T> {
        let found = self.items.iter().position(|item| item.is(wanted) && item.user == *user);
        let Some(found) = found else { return Taken::Nothing };
        if matches!(self.items[found].state, State::Coming { .. }) {
            return Taken::Coming;
        }
        self.items.remove(found).and_then(Item::into_inner).map_or(Taken::Nothing, Taken::Here)
    }

    /// What has waited for too long.
    pub(super) fn purge(&mut self, now: Instant) -> Vec<T> {
        let mut old = Vec::new();
        // They came in the order in which they stand, or nearly so.
        while let Some(Item { state: State::Here { until, .. }, .. }) = self.items.front()
            && *until <= now
        {
            old.extend(self.items.pop_front().and_then(Item::into_inner));
        }
        old
    }

    /// Everything; what is on its way will find no place.
    pub(super) fn clear(&mut self) -> Vec<T> {
        self.items.drain(..).filter_map(Item::into_inner).collect()
    }
}

impl<U, T> Item<U, T> {
    fn is(&self, wanted: Wanted<'_>) -> bool {
        match (wanted, &self.key, &self.state) {
            (Wanted::Entry { directory, name }, Key::Entry { directory: its, name: own }, _) => {
                name == &own[..] && directory == its
            }
            (Wanted::File(file), Key::File(its), _) => file == its,
            // Asked for by name, opened by the handle that a look-up gave.
            (Wanted::File(file), _, State::Here { handle, .. }) => file == handle,
            _ => false,
        }
    }

    fn into_inner(self) -> Option<T> {
        match self.state {
            State::Here { what, .. } => Some(what),
            State::Coming { .. } => None,
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

    fn take(shelf: &mut Shelf<u32, char>, user: u32, name: &str) -> Taken<char> {
        shelf.take(Wanted::Entry { directory: &handle("d"), name: name.as_bytes() }, &user)
    }

    #[test]
    fn what_was_asked_for_is_coming_then_here_then_gone() {
        let (mut shelf, now) = (Shelf::<u32, char>::default(), Instant::now());
        let (batch, _) = shelf.expect(&1, keys(&["a", "b", "c"]));
        assert_eq!(take(&mut shelf, 1, "a"), Taken::Coming);
        assert_eq!(take(&mut shelf, 2, "a"), Taken::Nothing, "another user's");
        let files = vec![(2, handle("C"), 'c'), (0, handle("A"), 'a'), (7, handle("X"), 'x')];
        assert_eq!(shelf.arrive(batch, files, now), (2, vec!['x']));
        assert_eq!(take(&mut shelf, 2, "a"), Taken::Nothing);
        assert_eq!(take(&mut shelf, 1, "a"), Taken::Here('a'));
        assert_eq!(take(&mut shelf, 1, "a"), Taken::Nothing);
        assert_eq!(take(&mut shelf, 1, "b"), Taken::Nothing, "it was not given");
        assert_eq!(shelf.take(Wanted::File(&handle("C")), &1), Taken::Here('c'));
        assert!(shelf.is_empty());
    }

    #[test]
    fn what_nobody_opens_goes_in_time_and_the_oldest_makes_room() {
        let (mut shelf, now) = (Shelf::<u32, char>::default(), Instant::now());
        let (first, _) = shelf.expect(&1, keys(&["a"]));
        let (second, _) = shelf.expect(&1, keys(&["b"]));
        shelf.arrive(first, vec![(0, handle("A"), 'a')], now);
        shelf.arrive(second, vec![(0, handle("B"), 'b')], now + LIFE / 2);
        assert_eq!(shelf.purge(now + LIFE / 2), []);
        assert_eq!(shelf.purge(now + LIFE), ['a']);
        let many: Vec<Key> = (0..MOST).map(|i| Key::File(handle(&i.to_string()))).collect();
        assert_eq!(shelf.expect(&1, many.into_iter()).1, ['b']);
        assert_eq!(shelf.items.len(), MOST);
        assert_eq!(shelf.clear(), []);
    }

    #[test]
    fn an_answer_that_comes_too_late_finds_no_place() {
        let (mut shelf, now) = (Shelf::<u32, char>::default(), Instant::now());
        let (batch, _) = shelf.expect(&1, keys(&["a"]));
        shelf.clear();
        assert_eq!(shelf.arrive(batch, vec![(0, handle("A"), 'a')], now), (0, vec!['a']));
        assert_eq!(take(&mut shelf, 1, "a"), Taken::Nothing);
    }
}
