//! Locks on objects, and detection of overlapping changes, for weak cache consistency data.
//!
//! Changes of names and attributes hold the object's lock, so that the attributes before and after differ by
//! the change only. Writes of data don't: a write may block as long as its device does, and would block a
//! worker for each further write to the file. Instead every change enters a [`ChangeTurn`], which detects
//! other changes in the meantime; then the reply leaves out the attributes before.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

/// Number of locks, shared by all objects of a store.
const SHARDS: usize = 4096;

/// The lock and the turns of the objects that share it.
#[derive(Debug, Default)]
struct Shard {
    lock: Mutex<()>,
    /// Lower half: changes in progress. Upper half: changes begun, wrapping.
    turns: AtomicU64,
}

const ENTERED: u64 = 1 << 32;
const INSIDE: u64 = ENTERED - 1;

/// The locks, by fileid.
#[derive(Debug)]
pub(crate) struct ObjectLocks(Box<[Shard]>);

/// The guards of one or two objects.
pub(crate) type ObjectGuards<'l> = (MutexGuard<'l, ()>, Option<MutexGuard<'l, ()>>);

/// A change in progress.
#[derive(Debug)]
pub(crate) struct ChangeTurn<'l> {
    turns: &'l AtomicU64,
    /// No other change was in progress when this one began.
    first: bool,
    number: u32,
}

impl ObjectLocks {
    pub fn new() -> ObjectLocks {
        ObjectLocks((0..SHARDS).map(|_| Shard::default()).collect())
    }

    pub fn one(&self, fileid: u64) -> MutexGuard<'_, ()> {
        self.0[shard(fileid)].lock.lock()
    }

    /// Locks two objects, always in the same order, so that opposite renames don't deadlock.
    pub fn two(&self, a: u64, b: u64) -> ObjectGuards<'_> {
        let (low, high) = (shard(a).min(shard(b)), shard(a).max(shard(b)));
        let first = self.0[low].lock.lock();
        (first, (low != high).then(|| self.0[high].lock.lock()))
    }

    /// Begins a change. Call it before taking the attributes before the change.
    pub fn enter(&self, fileid: u64) -> ChangeTurn<'_> {
        let turns = &self.0[shard(fileid)].turns;
        let before = turns.fetch_add(ENTERED + 1, Ordering::AcqRel);
        ChangeTurn { turns, first: before & INSIDE == 0, number: entered(before).wrapping_add(1) }
    }
}

impl ChangeTurn<'_> {
    /// Whether no other change overlapped with this one. Call it after taking the attributes after the
    /// change.
    pub fn was_alone(&self) -> bool {
        self.first && entered(self.turns.load(Ordering::Acquire)) == self.number
    }
}

impl Drop for ChangeTurn<'_> {
    fn drop(&mut self) {
        self.turns.fetch_sub(1, Ordering::AcqRel);
    }
}

fn entered(turns: u64) -> u32 {
    (turns >> 32) as u32
}

fn shard(fileid: u64) -> usize {
    // Fibonacci hashing, because neighbouring inodes are used together.
    (fileid.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 52) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opposite_lock_orders_do_not_deadlock() {
        let locks = ObjectLocks::new();
        std::thread::scope(|scope| {
            scope.spawn(|| (0..2000).for_each(|_| drop(locks.two(1, 2))));
            scope.spawn(|| (0..2000).for_each(|_| drop(locks.two(2, 1))));
            scope.spawn(|| (0..2000).for_each(|_| drop(locks.two(2, 2))));
        });
        drop(locks.one(1));
        assert!(shard(u64::MAX) < SHARDS && shard(1) != shard(2));
    }

    #[test]
    fn overlapping_changes_are_detected() {
        let locks = ObjectLocks::new();
        let one = locks.enter(1);
        assert!(one.was_alone());
        let other = locks.enter(2);
        assert!(one.was_alone() && other.was_alone(), "another file");
        let second = locks.enter(1);
        assert!(!one.was_alone() && !second.was_alone());
        drop(one);
        assert!(!second.was_alone(), "it was there when this one came");
        let third = locks.enter(1);
        drop(third);
        drop(second);
        let fourth = locks.enter(1);
        drop(locks.enter(1));
        assert!(!fourth.was_alone(), "it came and went");
        drop(fourth);
        assert!(locks.enter(1).was_alone());
    }

    #[test]
    fn counting_wraps() {
        let locks = ObjectLocks::new();
        locks.0[shard(1)].turns.store(u64::from(u32::MAX - 1) << 32, Ordering::Relaxed);
        for _ in 0..4 {
            assert!(locks.enter(1).was_alone());
        }
    }
}
