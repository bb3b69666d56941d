//! The buffers that calls are received into, and the permits for large ones.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use parking_lot::Mutex;

use fairness::{Peer, Shares, Standing};

use super::{
    budget::{Budget, MemoryRequest},
    payload_alignment::ALIGNMENT,
};

/// The longest receive while calls are small, in bytes. Every worker has one such buffer.
pub const BATCH: usize = 64 << 10;

/// A call longer than this, in bytes, gets a buffer of its own.
pub const LARGE: usize = 32 << 10;

/// Buffers of large calls have multiples of this size, in bytes.
const STEP: usize = 32 << 10;

/// The most bytes that the pool keeps for later calls.
const POOLED: usize = 4 << 20;

/// A received piece of a stream. Calls borrow their arguments from it, so it isn't changed while it is
/// shared.
#[derive(Debug)]
pub struct Chunk {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The permit of a large call.
    pub permit: Option<Permit>,
}

impl Chunk {
    /// A worker's buffer for small calls.
    pub fn batch() -> Arc<Self> {
        Arc::new(Self { bytes: vec![0; BATCH], permit: None })
    }
}

/// A connection that requests memory.
#[derive(Debug, Clone, Copy)]
pub struct MemoryRequester {
    /// Its number.
    pub connection: u64,
    /// The peer to charge.
    pub peer: Peer,
    /// The reserves that the peer may use.
    pub standing: Standing,
}

/// The shared receive memory.
#[derive(Debug)]
pub struct ReceiveMemory {
    budget: Mutex<Budget>,
    /// Mirrors [`Budget::has_granted`], to be read without the lock.
    granted: AtomicBool,
    /// Mirrors [`Budget::has_waiting`].
    waiting: AtomicBool,
    /// Bytes held by connections that wait: the beginnings of their calls.
    held: Mutex<Shares<Peer>>,
    pool: Mutex<Vec<Vec<u8>>>,
}

/// A part of the receive memory, released when dropped. Dropping it takes one lock, under which no other is
/// taken.
#[derive(Debug)]
pub struct Permit {
    memory: Arc<ReceiveMemory>,
    peer: Peer,
    bytes: usize,
}

impl Permit {
    /// Its size in bytes.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the bytes of `more`.
    pub fn merge(&mut self, mut more: Self) {
        debug_assert_eq!(self.peer, more.peer, "permits of one connection");
        self.bytes += std::mem::take(&mut more.bytes);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.bytes > 0 {
            let mut budget = self.memory.budget.lock();
            budget.release(&self.peer, self.bytes);
            self.memory.mirror(&budget);
        }
    }
}

/// The size of the buffer for a call of `length` bytes, with room to align its payload.
pub const fn rounded(length: usize) -> usize {
    (length + ALIGNMENT).div_ceil(STEP) * STEP
}

impl ReceiveMemory {
    /// `total` bytes for large calls, of which the largest takes `largest`. Where the total suffices, room
    /// for one is reserved for root of this host.
    pub fn new(total: usize, largest: usize) -> Arc<Self> {
        let for_root = if total >= 4 * largest { largest } else { 0 };
        Arc::new(Self {
            budget: Mutex::new(Budget::new(Shares::new(total).with_reserves(0, for_root))),
            granted: AtomicBool::new(false),
            waiting: AtomicBool::new(false),
            held: Mutex::new(Shares::new(total)),
            pool: Mutex::default(),
        })
    }

    /// Requests `bytes`. If `None`, the connection waits in line.
    pub fn request(self: &Arc<Self>, requester: &MemoryRequester, bytes: usize) -> Option<Permit> {
        let MemoryRequester { connection, peer, standing } = *requester;
        let mut budget = self.budget.lock();
        let granted = budget.request(MemoryRequest { connection, peer, standing, bytes });
        self.mirror(&budget);
        granted.then(|| Permit { memory: Arc::clone(self), peer, bytes })
    }

    /// Cancels a connection's requests.
    pub fn cancel(&self, requester: &MemoryRequester) {
        let mut budget = self.budget.lock();
        budget.cancel(&requester.peer, requester.connection);
        self.mirror(&budget);
    }

    /// The next connection whose request was granted, with its permit.
    pub fn next_granted(self: &Arc<Self>) -> Option<(u64, Permit)> {
        if !self.granted.load(Ordering::Acquire) {
            return None;
        }
        let mut budget = self.budget.lock();
        let granted = budget.next_granted();
        self.mirror(&budget);
        let MemoryRequest { connection, peer, bytes, .. } = granted?;
        Some((connection, Permit { memory: Arc::clone(self), peer, bytes }))
    }

    /// Counts that a waiting connection holds `now` bytes instead of `before`. If this returns false, the
    /// waiting connections of its peer may not hold more, this connection must be closed, and nothing was
    /// counted.
    pub fn hold(&self, requester: &MemoryRequester, before: &mut usize, now: usize) -> bool {
        if now == *before {
            return true;
        }
        let mut held = self.held.lock();
        let fits = match now.checked_sub(*before) {
            Some(more) => held.take(&requester.peer, requester.standing, more),
            None => {
                held.give_back(&requester.peer, *before - now);
                true
            }
        };
        if fits {
            *before = now;
        }
        fits
    }

    /// Whether any connection waits for memory.
    pub fn has_waiting(&self) -> bool {
        self.waiting.load(Ordering::Acquire)
    }

    /// The bytes in use now, and the most at any time.
    pub fn usage(&self) -> (usize, usize) {
        let budget = self.budget.lock();
        (budget.used(), budget.peak())
    }

    fn mirror(&self, budget: &Budget) {
        self.granted.store(budget.has_granted(), Ordering::Release);
        self.waiting.store(budget.has_waiting(), Ordering::Release);
    }

    /// A buffer of exactly `length` bytes, within what `permit` allows, with undefined contents.
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

    /// Takes a buffer back into the pool.
    pub fn recycle(&self, buffer: Vec<u8>) {
        let mut pool = self.pool.lock();
        let held: usize = pool.iter().map(Vec::capacity).sum();
        if buffer.capacity().is_multiple_of(STEP) && held + buffer.capacity() <= POOLED {
            pool.push(buffer);
        }
    }

    /// Frees the pool.
    pub fn trim(&self) {
        self.pool.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requester(host: u8, connection: u64) -> MemoryRequester {
        MemoryRequester { connection, peer: Peer::V4([192, 0, 2, host]), standing: Standing::Admitted }
    }

    #[test]
    fn waiting_connections_hold_at_most_their_share() {
        let memory = ReceiveMemory::new(STEP, STEP);
        let (greedy, other) = (requester(1, 1), requester(2, 2));
        let (mut first, mut second, mut third) = (0, 0, 0);
        assert!(memory.hold(&greedy, &mut first, STEP / 2));
        assert!(!memory.hold(&greedy, &mut second, 1) && second == 0, "one of them must go");
        assert!(memory.hold(&other, &mut third, STEP / 4));
        assert!(memory.hold(&greedy, &mut first, 0));
        assert!(memory.hold(&greedy, &mut second, STEP / 4));
        assert!(memory.hold(&greedy, &mut second, 0) && memory.hold(&other, &mut third, 0));
        assert_eq!(memory.held.lock().total(), 0);
    }

    #[test]
    fn a_permit_comes_back_when_it_is_dropped_and_the_next_one_gets_it() {
        let memory = ReceiveMemory::new(2 * STEP, STEP);
        let permit = memory.request(&requester(1, 1), 2 * STEP).unwrap();
        assert!(memory.request(&requester(1, 2), STEP).is_none());
        assert!(memory.has_waiting() && memory.next_granted().is_none());
        drop(permit);
        let (who, mut permit) = memory.next_granted().unwrap();
        assert_eq!((who, memory.usage()), (2, (STEP, 2 * STEP)));
        permit.merge(memory.request(&requester(1, 2), 0).unwrap());
        assert_eq!(permit.bytes(), STEP);
        drop(permit);
        assert_eq!(memory.usage().0, 0);
    }

    #[test]
    fn buffers_are_used_again_and_not_kept_without_end() {
        let memory = ReceiveMemory::new(64 << 20, 1 << 20);
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
