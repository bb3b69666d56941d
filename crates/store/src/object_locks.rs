//! Who changes an object, and whether somebody else did meanwhile: what weak cache consistency data hangs on.
//!
//! Changes of names and attributes are made one at a time, under an object's lock, so that the attributes
//! before and after are the change's own work. Data is written without it: a write may hang as long as its
//! device does, and would take a worker for each further write to the file. Instead everybody who changes an
//! object enters and leaves a [`ChangeTurn`], which tells whether anybody else was inside meanwhile; then the
//! attributes before are left out of the answer.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

/// How many locks all objects of a store share.
const SHARDS: usize = 4096;

/// The lock and the turns of the objects that share them.
#[derive(Debug, Default)]
struct Shard {
    lock: Mutex<()>,
    /// Lower half: how many are inside; upper half: how many have entered, wrapping.
    turns: AtomicU64,
}

const ENTERED: u64 = 1 << 32;
const INSIDE: u64 = ENTERED - 1;

/// ObjectLocks by fileid.
#[derive(Debug)]
pub(crate) struct ObjectLocks(Box<[Shard]>);

/// One object's lock, or two objects' at once.
pub(crate) type ObjectGuards<'l> = (MutexGuard<'l, ()>, Option<MutexGuard<'l, ()>>);

/// Somebody is changing an object.
#[derive(Debug)]
pub(crate) struct ChangeTurn<'l> {
    turns: &'l AtomicU64,
    /// Nobody was inside when this one entered.
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

    /// Two objects, always in the same order, so that two renames in opposite directions don't wait for each
    /// other.
    pub fn two(&self, a: u64, b: u64) -> ObjectGuards<'_> {
        let (low, high) = (shard(a).min(shard(b)), shard(a).max(shard(b)));
        let first = self.0[low].lock.lock();
        (first, (low != high).then(|| self.0[high].lock.lock()))
    }

    /// To be called before the attributes before the change are taken.
    pub fn enter(&self, fileid: u64) -> ChangeTurn<'_> {
        let turns = &self.0[shard(fileid)].turns;
        let before = turns.fetch_add(ENTERED + 1, Ordering::AcqRel);
        ChangeTurn { turns, first: before & INSIDE == 0, number: entered(before).wrapping_add(1) }
    }
}

impl ChangeTurn<'_> {
    /// Whether nobody else was inside since this one entered. To be asked when the attributes after the
    /// change have been taken.
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
    // Fibonacci hashing: neighbouring inodes are used together.
    (fileid.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 52) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opposite_orders_and_shared_locks_end() {
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
    fn whoever_overlaps_with_another_was_not_alone() {
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
