//! Buffers that calls are received into, and the permits for the large ones.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use parking_lot::Mutex;

use super::{budget::Budget, placing::PLACED};

/// What one receive can bring at most, when calls are small; every worker has one such buffer.
pub const BATCH: usize = 64 << 10;

/// A call above this gets a buffer of its own.
pub const LARGE: usize = 32 << 10;

/// Buffers of large calls come in multiples of this.
const STEP: usize = 32 << 10;

/// How much the pool keeps for the next large call.
const POOLED: usize = 4 << 20;

/// A received piece of a stream. Calls borrow their arguments from it, so it doesn't change while it is shared.
#[derive(Debug)]
pub struct Chunk {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// For a large call.
    pub permit: Option<Permit>,
}

impl Chunk {
    /// A worker's buffer for small calls.
    pub fn batch() -> Arc<Self> {
        Arc::new(Self { bytes: vec![0; BATCH], permit: None })
    }
}

/// The shared receive memory.
#[derive(Debug)]
pub struct Memory {
    budget: Mutex<Budget>,
    /// Mirrors [`Budget::has_granted`], to look without the lock.
    granted: AtomicBool,
    /// Mirrors [`Budget::has_waiting`].
    waiting: AtomicBool,
    /// What those who wait hold already: the beginnings of their calls.
    held: AtomicUsize,
    total: usize,
    pool: Mutex<Vec<Vec<u8>>>,
}

/// A part of the receive memory, given back when dropped. To drop it takes one lock under which nothing else is taken.
#[derive(Debug)]
pub struct Permit {
    memory: Arc<Memory>,
    bytes: usize,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut budget = self.memory.budget.lock();
        budget.release(self.bytes);
        self.memory.mirror(&budget);
    }
}

/// The size of the buffer for a call of `length` bytes, with room to place its payload.
pub const fn rounded(length: usize) -> usize {
    (length + PLACED).div_ceil(STEP) * STEP
}

impl Memory {
    /// `total` bytes for large calls.
    pub fn new(total: usize) -> Arc<Self> {
        Arc::new(Self {
            budget: Mutex::new(Budget::new(total)),
            granted: AtomicBool::new(false),
            waiting: AtomicBool::new(false),
            held: AtomicUsize::new(0),
            total,
            pool: Mutex::default(),
        })
    }

    /// Asks for a buffer for `length` bytes for the connection `who`; without one, it is queued.
    pub fn request(self: &Arc<Self>, who: u64, length: usize) -> Option<Permit> {
        let bytes = rounded(length);
        let mut budget = self.budget.lock();
        let granted = budget.request(who, bytes);
        self.mirror(&budget);
        granted.then(|| Permit { memory: Arc::clone(self), bytes })
    }

    /// The connection `who` doesn't want what it has asked for.
    pub fn cancel(&self, who: u64) {
        let mut budget = self.budget.lock();
        budget.cancel(who);
        self.mirror(&budget);
    }

    /// Which connection has come out of the queue, with its permit.
    pub fn next_granted(self: &Arc<Self>) -> Option<(u64, Permit)> {
        if !self.granted.load(Ordering::Acquire) {
            return None;
        }
        let mut budget = self.budget.lock();
        let granted = budget.next_granted();
        self.mirror(&budget);
        granted.map(|(who, bytes)| (who, Permit { memory: Arc::clone(self), bytes }))
    }

    /// Counts that a connection that waits holds `now` bytes instead of `before`; false if all who wait hold more
    /// than there is receive memory: then one of them must go.
    pub fn hold(&self, before: &mut usize, now: usize) -> bool {
        let previous = std::mem::replace(before, now);
        if now <= previous {
            if now < previous {
                self.held.fetch_sub(previous - now, Ordering::Relaxed);
            }
            return true;
        }
        let more = now - previous;
        self.held.fetch_add(more, Ordering::Relaxed) + more <= self.total
    }

    /// Whether somebody waits for memory.
    pub fn has_waiting(&self) -> bool {
        self.waiting.load(Ordering::Acquire)
    }

    /// Bytes in use now, and the most that ever were.
    pub fn usage(&self) -> (usize, usize) {
        let budget = self.budget.lock();
        (budget.used(), budget.peak())
    }

    fn mirror(&self, budget: &Budget) {
        self.granted.store(budget.has_granted(), Ordering::Release);
        self.waiting.store(budget.has_waiting(), Ordering::Release);
    }

    /// A buffer of exactly `length` bytes, within what `permit` allows; what it holds is of no meaning.
    pub fn buffer(&self, length: usize) -> Vec<u8> {
        let wanted = rounded(length);
        let pooled = {
            let mut pool = self.pool.lock();
            let fits = pool.iter().rposition(|buffer| buffer.capacity() == wanted);
            fits.map(|index| pool.swap_remove(index))
        };
        let mut buffer = pooled.unwrap_or_else(|| vec![0; wanted]);
        buffer.resize(length, 0);
        buffer
    }

    /// Takes a buffer back.
    pub fn recycle(&self, buffer: Vec<u8>) {
        let mut pool = self.pool.lock();
        let held: usize = pool.iter().map(Vec::capacity).sum();
        if buffer.capacity().is_multiple_of(STEP) && held + buffer.capacity() <= POOLED {
            pool.push(buffer);
        }
    }

    /// Frees what is kept for the next large call.
    pub fn trim(&self) {
        self.pool.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_wait_cannot_hold_more_than_there_is() {
        let memory = Memory::new(STEP);
        let (mut first, mut second) = (0, 0);
        assert!(memory.hold(&mut first, STEP - 10));
        assert!(memory.hold(&mut second, 10));
        assert!(!memory.hold(&mut second, 11), "one of them must go");
        assert!(memory.hold(&mut second, 0), "and goes");
        assert!(memory.hold(&mut first, STEP), "there is room again");
    }

    #[test]
    fn a_permit_comes_back_when_it_is_dropped_and_the_next_one_gets_it() {
        let memory = Memory::new(2 * STEP);
        let permit = memory.request(1, STEP + 1).unwrap();
        assert!(memory.request(2, 1).is_none());
        assert!(memory.has_waiting() && memory.next_granted().is_none());
        drop(permit);
        let (who, permit) = memory.next_granted().unwrap();
        assert_eq!((who, memory.usage()), (2, (STEP, 2 * STEP)));
        drop(permit);
        assert_eq!(memory.usage().0, 0);
    }

    #[test]
    fn buffers_are_used_again_and_not_kept_without_end() {
        let memory = Memory::new(64 << 20);
        let mut buffer = memory.buffer(40_000);
        buffer[39_999] = 7;
        memory.recycle(buffer);
        assert_eq!(memory.buffer(50_000).len(), 50_000);
        (0..100)
            .map(|_| memory.buffer(1 << 20))
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|b| memory.recycle(b));
        assert!(memory.pool.lock().iter().map(Vec::capacity).sum::<usize>() <= POOLED);
        memory.trim();
        assert!(memory.pool.lock().is_empty());
    }
}
