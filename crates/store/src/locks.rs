//! One operation at a time changes an object, so that the attributes before and after it are its own work.

use parking_lot::{Mutex, MutexGuard};

/// How many locks all objects of a store share.
const SHARDS: usize = 256;

/// Locks by fileid.
#[derive(Debug)]
pub(crate) struct Locks(Box<[Mutex<()>; SHARDS]>);

/// One object's lock, or two objects' at once.
pub(crate) type Held<'l> = (MutexGuard<'l, ()>, Option<MutexGuard<'l, ()>>);

impl Locks {
    pub fn new() -> Locks {
        Locks(Box::new([const { Mutex::new(()) }; SHARDS]))
    }

    pub fn one(&self, fileid: u64) -> MutexGuard<'_, ()> {
        self.0[shard(fileid)].lock()
    }

    /// Two objects, always in the same order, so that two renames in opposite directions don't wait for each other.
    pub fn two(&self, a: u64, b: u64) -> Held<'_> {
        let (low, high) = (shard(a).min(shard(b)), shard(a).max(shard(b)));
        let first = self.0[low].lock();
        (first, (low != high).then(|| self.0[high].lock()))
    }
}

fn shard(fileid: u64) -> usize {
    // Fibonacci hashing: neighbouring inodes are used together.
    (fileid.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opposite_orders_and_shared_locks_end() {
        let locks = Locks::new();
        std::thread::scope(|scope| {
            scope.spawn(|| (0..2000).for_each(|_| drop(locks.two(1, 2))));
            scope.spawn(|| (0..2000).for_each(|_| drop(locks.two(2, 1))));
            scope.spawn(|| (0..2000).for_each(|_| drop(locks.two(2, 2))));
        });
        drop(locks.one(1));
    }
}
