//! The interlock: orders a server's shutdown and a client's local I/O.
//!
//! Each lane has one small shared memory. The server writes one word, *control* (state and generation). The
//! client writes the others: *in flight* (local I/O under way), in a *slot* for each thread and in one word
//! that the remaining threads share, and *received* (grants that have arrived). The algorithm is Dekker's:
//!
//! - A client's `try_get` first counts itself in flight, then reads control, and takes the count back if
//!   control has changed since the grant was given.
//! - A server first writes control, then reads the counts in flight.
//!
//! At least one of the two sees the other's write: I/O that the server doesn't see was not begun, or was
//! refused. A store that must be seen before a later load costs a locked instruction (5 to 10 ns), and a
//! client would pay two for each I/O. So a thread with a slot of its own uses a plain store there, and the
//! server, which drains once in its life, issues a barrier on all processors (membarrier(2)) between its
//! store and its loads: stores of a thread from before the barrier are seen after it, and loads of a thread
//! after it see the server's store. The shared word is counted with locked instructions and needs no barrier.
//!
//! Either side may be killed at any instant. A killed server leaves a stale word, and the client learns of
//! the hang-up from the socket. A killed client leaves stale counts, and the server stops reading them.
//!
//! Neither side trusts the other: nothing in this memory is an index, a length or an address. The worst that
//! a lying client achieves is a wait of bounded time.
//!
//! The layout, in host byte order, 4096 bytes in all: control at 0, the shared in flight at 128, received at
//! 256, and from 384 on the slots, one in 64 bytes. So a word that one side writes often shares its cache
//! line with none that the other writes.

use std::sync::atomic::{AtomicU64, Ordering::Release, Ordering::SeqCst, compiler_fence};

/// The size of the memory in bytes.
pub const SIZE: usize = 4096;
/// The offset of control.
pub const CONTROL: usize = 0;
/// The offset of the shared count of I/O in flight.
pub const IN_FLIGHT: usize = 128;
/// The offset of received.
pub const RECEIVED: usize = 256;
/// The offset of the first slot.
pub const FIRST_SLOT: usize = 384;
/// Bytes from one slot to the next.
pub const SLOT_SIZE: usize = 64;
/// The number of slots.
pub const SLOTS: usize = (SIZE - FIRST_SLOT) / SLOT_SIZE;

/// A 64-bit atomic word. Accesses are sequentially consistent unless stated otherwise. Implemented by the
/// shared memory's words and, in tests, by a model checker's.
pub trait SharedWord {
    /// The value.
    fn load(&self) -> u64;
    /// Stores a value.
    fn store(&self, value: u64);
    /// Adds, wrapping; returns the value before.
    fn add(&self, value: u64) -> u64;
    /// Subtracts, wrapping; returns the value before.
    fn sub(&self, value: u64) -> u64;
    /// Stores a value after everything that this thread did before. Other threads may see it late: after this
    /// thread's next loads, unless a barrier comes between.
    fn put(&self, value: u64);
}

impl SharedWord for AtomicU64 {
    #[inline]
    fn load(&self) -> u64 {
        self.load(SeqCst)
    }

    #[inline]
    fn store(&self, value: u64) {
        self.store(value, SeqCst);
    }

    #[inline]
    fn add(&self, value: u64) -> u64 {
        self.fetch_add(value, SeqCst)
    }

    #[inline]
    fn sub(&self, value: u64) -> u64 {
        self.fetch_sub(value, SeqCst)
    }

    #[inline]
    fn put(&self, value: u64) {
        self.store(value, Release);
        // The processor may delay the store, which the barrier covers; the compiler must not.
        compiler_fence(SeqCst);
    }
}

/// The words of one interlock.
pub trait Words {
    /// Their type.
    type Word: SharedWord;
    /// State and generation.
    fn control(&self) -> &Self::Word;
    /// Local I/O in flight in threads without a slot.
    fn in_flight(&self) -> &Self::Word;
    /// Local I/O in flight in one thread; `index` is below [`SLOTS`].
    fn slot(&self, index: usize) -> &Self::Word;
    /// Grants that have arrived.
    fn received(&self) -> &Self::Word;
}

/// The state of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlState {
    /// Local I/O is allowed.
    Live = 0,
    /// No new local I/O. The server waits for the I/O in flight.
    Draining = 1,
    /// The lane has ended.
    Gone = 2,
}

/// State and generation in one word, so that one comparison checks both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Control {
    /// The state.
    pub state: ControlState,
    /// The generation, below 2^62. A grant is valid only in the generation in which it was given.
    pub generation: u64,
}

impl Control {
    /// The initial value.
    pub const FIRST: Self = Self { state: ControlState::Live, generation: 1 };

    /// The word.
    #[must_use]
    pub const fn word(self) -> u64 {
        self.generation << 2 | self.state as u64
    }

    /// Decodes a word. A value that no server writes counts as the end.
    #[must_use]
    pub const fn of(word: u64) -> Self {
        let state = match word & 3 {
            0 => ControlState::Live,
            1 => ControlState::Draining,
            _ => ControlState::Gone,
        };
        Self { state, generation: word >> 2 }
    }
}

/// The server's side. It never reads control back; the server keeps its own copy.
#[derive(Debug)]
pub struct ServerSide<W> {
    words: W,
    /// The number of slots that it reads.
    slots: usize,
}

impl<W: Words> ServerSide<W> {
    /// Begins a lane with a client that may use the first `slots` slots, at most [`SLOTS`]; 0 without
    /// membarrier.
    pub fn new(words: W, slots: usize) -> Self {
        words.control().store(Control::FIRST.word());
        Self { words, slots: slots.min(SLOTS) }
    }

    /// The number of slots that this side reads.
    pub const fn slots(&self) -> usize {
        self.slots
    }

    /// The memory.
    pub const fn words(&self) -> &W {
        &self.words
    }

    /// Publishes `control`. From then on local I/O is refused, unless `control` is live; then it is refused
    /// for grants of other generations.
    pub fn publish(&self, control: Control) {
        self.words.control().store(control.word());
    }

    /// The I/O in flight, as counted by the client. If the client may use slots, 0 means none only after a
    /// barrier on all processors has followed the last [`ServerSide::publish`].
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        let slots = (0..self.slots).map(|index| self.words.slot(index).load());
        // Saturating, so that a lying client's sum can't wrap to 0.
        slots.fold(self.words.in_flight().load(), u64::saturating_add)
    }

    /// The number of grants that have arrived since the lane began, as counted by the client.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.words.received().load()
    }
}

/// The client's side.
#[derive(Debug)]
pub struct ClientSide<W> {
    words: W,
    /// The number of slots that the server reads.
    slots: usize,
}

/// Where an I/O was counted: its thread's slot, or the shared word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct IoCount(Option<usize>);

impl<W: Words> ClientSide<W> {
    /// Joins a lane whose server reads the first `slots` slots, after a barrier; 0 for none.
    pub const fn new(words: W, slots: usize) -> Self {
        Self { words, slots: if slots < SLOTS { slots } else { SLOTS } }
    }

    /// The current control word.
    #[must_use]
    pub fn control(&self) -> Control {
        Control::of(self.words.control().load())
    }

    /// Begins one I/O under a grant that was given when control was `expected` (as a word), on the thread
    /// that owns slot `slot`, if it owns one. If `None`, the I/O must not begin; otherwise
    /// [`ClientSide::put`] must follow on the same thread.
    #[inline]
    pub fn try_get(&self, slot: Option<usize>, expected: u64) -> Option<IoCount> {
        let counted = IoCount(slot.filter(|slot| *slot < self.slots));
        match counted.0 {
            // Only this thread writes there. It may have one I/O within another.
            Some(index) => {
                let slot = self.words.slot(index);
                slot.put(slot.load().wrapping_add(1));
            }
            None => {
                self.words.in_flight().add(1);
            }
        }
        if self.words.control().load() == expected {
            return Some(counted);
        }
        self.put(counted);
        None
    }

    /// Ends one I/O.
    #[inline]
    pub fn put(&self, counted: IoCount) {
        match counted.0 {
            Some(index) => {
                let slot = self.words.slot(index);
                slot.put(slot.load().wrapping_sub(1));
            }
            None => {
                self.words.in_flight().sub(1);
            }
        }
    }

    /// Whether `try_get` would succeed.
    #[inline]
    #[must_use]
    pub fn is(&self, expected: u64) -> bool {
        self.words.control().load() == expected
    }

    /// Acknowledges the arrival of a grant.
    pub fn receive(&self) {
        self.words.received().add(1);
    }

    /// Marks the lane as ended by a server that has hung up.
    pub fn mark_gone(&self) {
        let generation = self.control().generation;
        self.words.control().store(Control { state: ControlState::Gone, generation }.word());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_word_says_what_was_put_in() {
        for state in [ControlState::Live, ControlState::Draining, ControlState::Gone] {
            for generation in [0, 1, 7, (1 << 62) - 1] {
                let control = Control { state, generation };
                assert_eq!(Control::of(control.word()), control);
            }
        }
        assert_eq!(Control::of(u64::MAX).state, ControlState::Gone);
    }
}
