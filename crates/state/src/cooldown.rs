//! What isn't delegated for a while: files whose delegations were in the way of other clients, and peers that
//! returned a delegation late or never.
//!
//! A recall delays the client that wants the file. So each time a file or peer is added again as soon as its
//! time is over, its next time is twice as long. An entry whose time is over is remembered for as long again.
//!
//! Invariant: the entries are bounded, and shared by peer ([`fairness::Shares`]): a peer with many entries
//! displaces its own.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;

use ahash::HashMap;
use fairness::{Peer, Shares, Standing};

use crate::engine::Time;

/// The most entries of one kind.
const MAX_ENTRIES: usize = 8192;

/// When an entry is forgotten, and its number.
type Due = (Time, u64);

#[derive(Debug)]
struct CooldownEntry {
    until: Time,
    /// The length of the time, in milliseconds.
    span: u64,
    /// The peer that is charged.
    peer: Peer,
    due: Due,
}

/// Files, or peers, that aren't delegated for now.
#[derive(Debug)]
pub(crate) struct Cooldowns<T> {
    entries: HashMap<T, CooldownEntry>,
    due: BTreeMap<Due, T>,
    by_peer: BTreeSet<(Peer, Due)>,
    shares: Shares,
    next: u64,
}

impl<T> Default for Cooldowns<T> {
    fn default() -> Self {
        let (entries, due, by_peer) = Default::default();
        Self { entries, due, by_peer, shares: Shares::new(MAX_ENTRIES), next: 0 }
    }
}

impl<T: Clone + Eq + Hash> Cooldowns<T> {
    /// Whether a file or peer isn't delegated now.
    pub fn has(&self, now: Time, what: &T) -> bool {
        self.entries.get(what).is_some_and(|entry| now < entry.until)
    }

    /// Stops delegations of a file or to a peer: for `least` milliseconds, or for twice the last time if that
    /// is just over, and for `most` milliseconds at most. `peer` is charged.
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
        self.entries.insert(what.clone(), CooldownEntry { until, span, peer, due });
    }

    /// Forgets the entries whose time has been over for as long again.
    pub fn forget(&mut self, now: Time) {
        while let Some((_, what)) = self.due.first_key_value().filter(|(due, _)| due.0 <= now) {
            let what = what.clone();
            self.remove(&what);
        }
    }

    /// The entry of a peer that is forgotten first.
    fn first_of(&self, peer: Peer) -> Option<Due> {
        let mut of = self.by_peer.range((peer, Due::default())..);
        of.next().filter(|(other, _)| *other == peer).map(|(_, due)| *due)
    }

    fn remove(&mut self, what: &T) -> Option<CooldownEntry> {
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
    fn a_repeated_entry_lasts_twice_as_long() {
        let mut files = Cooldowns::default();
        let mut now = Time(1000);
        for span in [100, 200, 400, 500, 500] {
            files.add(now, &"file", ONE, 100, 500);
            assert!(files.has(now.plus(span - 1), &"file") && !files.has(now.plus(span), &"file"), "{span}");
            now = now.plus(span);
        }
        assert!(!files.has(now, &"another"));
        files.add(now.plus(500), &"file", ONE, 100, 500);
        assert!(!files.has(now.plus(600), &"file"), "it has been forgotten");
        // Added again before its time is over, it isn't longer.
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
    fn a_peer_with_many_entries_displaces_its_own() {
        let mut files = Cooldowns::default();
        files.add(Time(0), &0, OTHER, 100_000, 100_000);
        for file in 1..=2 * MAX_ENTRIES {
            files.add(Time(1), &file, ONE, 100 + file as u64, 1_000_000);
        }
        assert!(files.has(Time(2), &0) && files.has(Time(2), &(2 * MAX_ENTRIES)));
        assert!(files.entries.len() <= MAX_ENTRIES && !files.has(Time(2), &1));
        // There is room for another peer's.
        for file in 0..MAX_ENTRIES / 4 {
            files.add(Time(2), &(4 * MAX_ENTRIES + file), OTHER, 100, 100);
            assert!(files.has(Time(3), &(4 * MAX_ENTRIES + file)));
        }
        assert!(files.has(Time(3), &0));
    }
}
