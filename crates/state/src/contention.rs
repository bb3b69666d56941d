//! What isn't lent for a while: files that delegations were in somebody's way of, and peers that were late to
//! return one, or returned none. Remembered apart from the state, which is gone by then.
//!
//! A delegation that is recalled holds up whoever wants the file. So each time that happens again as soon as
//! it can, the file, or the peer, isn't lent for twice as long as before. An entry that is over is remembered
//! for as long again.
//!
//! The memory is bounded, and shared by peer ([`fairness::Shares`]): who makes many entries displaces its
//! own.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;

use fairness::{Peer, Shares, Standing};

use crate::engine::Time;

/// The most entries about files, and about peers.
const MOST: usize = 8192;

/// When something is over, or forgotten, and its number.
type Due = (Time, u64);

#[derive(Debug)]
struct Entry {
    until: Time,
    /// For how long it was made.
    span: u64,
    /// Who is charged.
    peer: Peer,
    due: Due,
}

/// What isn't lent.
#[derive(Debug)]
pub(crate) struct NotLent<T> {
    entries: HashMap<T, Entry>,
    due: BTreeMap<Due, T>,
    by_peer: BTreeSet<(Peer, Due)>,
    shares: Shares,
    next: u64,
}

impl<T> Default for NotLent<T> {
    fn default() -> Self {
        let (entries, due, by_peer) = Default::default();
        Self { entries, due, by_peer, shares: Shares::new(MOST), next: 0 }
    }
}

impl<T: Clone + Eq + Hash> NotLent<T> {
    /// Whether it isn't lent now.
    pub fn has(&self, now: Time, what: &T) -> bool {
        self.entries.get(what).is_some_and(|entry| now < entry.until)
    }

    /// It isn't lent from now on: for `least` milliseconds, or twice as long as the last time if that was
    /// just over, and for `most` if that is shorter. Because of a delegation of `peer`'s.
    pub fn add(&mut self, now: Time, what: &T, peer: Peer, least: u64, most: u64) {
        self.forget(now);
        let before = self.remove(what);
        let span = before.as_ref().map_or(0, |entry| {
            let again = if now < entry.until { 1 } else { 2 };
            entry.span.saturating_mul(again)
        });
        let span = span.max(least).min(most);
        let until = now.plus(span);
        let until = before.as_ref().map_or(until, |before| before.until.max(until));
        let peer = before.map_or(peer, |before| before.peer);
        while !self.shares.take(&peer, Standing::Admitted, 1) {
            let greediest = self.shares.greediest().map(|(greediest, _)| greediest);
            let own = self.first_of(peer).or_else(|| self.first_of(greediest?));
            let Some(what) = own.and_then(|due| self.due.get(&due)).cloned() else { return };
            self.remove(&what);
        }
        self.next += 1;
        let due = (until.plus(span), self.next);
        self.due.insert(due, what.clone());
        self.by_peer.insert((peer, due));
        self.entries.insert(what.clone(), Entry { until, span, peer, due });
    }

    /// Forgets what is over and hasn't happened again for as long.
    pub fn forget(&mut self, now: Time) {
        while let Some((_, what)) = self.due.first_key_value().filter(|(due, _)| due.0 <= now) {
            let what = what.clone();
            self.remove(&what);
        }
    }

    /// What of a peer's is forgotten first.
    fn first_of(&self, peer: Peer) -> Option<Due> {
        let mut of = self.by_peer.range((peer, Due::default())..);
        of.next().filter(|(other, _)| *other == peer).map(|(_, due)| *due)
    }

    fn remove(&mut self, what: &T) -> Option<Entry> {
        let entry = self.entries.remove(what)?;
        self.due.remove(&entry.due);
        self.by_peer.remove(&(entry.peer, entry.due));
        self.shares.give_back(&entry.peer, 1);
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Peer = Peer::Local(1);
    const OTHER: Peer = Peer::Local(2);

    #[test]
    fn what_happens_again_lasts_twice_as_long() {
        let mut files = NotLent::default();
        let mut now = Time(1000);
        for span in [100, 200, 400, 500, 500] {
            files.add(now, &"file", ONE, 100, 500);
            assert!(files.has(now.plus(span - 1), &"file") && !files.has(now.plus(span), &"file"), "{span}");
            now = now.plus(span);
        }
        assert!(!files.has(now, &"another"));
        files.add(now.plus(500), &"file", ONE, 100, 500);
        assert!(!files.has(now.plus(600), &"file"), "it has been forgotten");
        // As long as it lasts it is the same.
        files.add(now.plus(550), &"file", ONE, 100, 500);
        assert!(files.has(now.plus(649), &"file") && !files.has(now.plus(650), &"file"));
        files.add(now.plus(560), &"file", ONE, 500, 500);
        files.add(now.plus(570), &"file", ONE, 100, 500);
        assert!(files.has(now.plus(1069), &"file") && !files.has(now.plus(1070), &"file"));
        files.forget(now.plus(2000));
        assert!(files.entries.is_empty() && files.due.is_empty() && files.by_peer.is_empty());
        assert_eq!(files.shares.total(), 0);
    }

    #[test]
    fn who_makes_many_entries_displaces_its_own() {
        let mut files = NotLent::default();
        files.add(Time(0), &0, OTHER, 100_000, 100_000);
        for file in 1..=2 * MOST {
            files.add(Time(1), &file, ONE, 100 + file as u64, 1_000_000);
        }
        assert!(files.has(Time(2), &0) && files.has(Time(2), &(2 * MOST)));
        assert!(files.entries.len() <= MOST && !files.has(Time(2), &1));
        // And there's room for another's.
        for file in 0..MOST / 4 {
            files.add(Time(2), &(4 * MOST + file), OTHER, 100, 100);
            assert!(files.has(Time(3), &(4 * MOST + file)));
        }
        assert!(files.has(Time(3), &0));
    }
}
