//! What keeps a server's shutdown and a client's local I/O from meeting in the wrong order.
//!
//! One small shared memory a lane. The server writes one word, *control* (state and generation); the client
//! writes the others: *in flight* (local I/O under way), in a *slot* for each thread and in one word that the
//! other threads share, and *received* (grants that have arrived). The order of things is Dekker's:
//!
//! - a client's `try_get` first counts itself in flight, then looks at control, and takes itself back if
//!   control is no longer what it was when the grant was given;
//! - a server first writes control, then looks at in flight.
//!
//! At least one of the two must see the other: I/O that the server doesn't see under way was not begun, or
//! was refused. A store that must be seen before a later load costs a locked instruction (5 to 10 ns), and a
//! client would pay two for each I/O. So a thread that has a slot to itself uses a plain store there, and the
//! server, which drains once in its life, has a barrier on all processors (membarrier(2)) between its store
//! and its loads: what a thread had stored before the barrier is seen after it, and what a thread loads after
//! it is what the server stored before. The shared word is counted with locked instructions and needs no
//! barrier.
//!
//! Either side may be killed at any instant: the server then leaves a stale word, and the client learns of
//! the hang-up from the socket; the client leaves stale counts, and the server stops looking at them.
//!
//! Neither side believes the other: nothing that stands in this memory is an index, a length or an address.
//! The worst that a lying client does is to be waited for in vain, for a bounded time.
//!
//! The memory, in host byte order, 4096 bytes in all: control at 0, the shared in flight at 128, received at
//! 256, and from 384 on the slots, one in 64 bytes. So a word that one side writes often shares its cache
//! line with none that the other does.

use std::sync::atomic::{AtomicU64, Ordering::Release, Ordering::SeqCst, compiler_fence};

/// Bytes of memory.
pub const SIZE: usize = 4096;
/// Where control stands.
pub const CONTROL: usize = 0;
/// Where the shared count of I/O in flight stands.
pub const IN_FLIGHT: usize = 128;
/// Where received stands.
pub const RECEIVED: usize = 256;
/// Where the first slot stands.
pub const FIRST_SLOT: usize = 384;
/// Bytes from one slot to the next.
pub const SLOT_SIZE: usize = 64;
/// How many slots there are.
pub const SLOTS: usize = (SIZE - FIRST_SLOT) / SLOT_SIZE;

/// A 64-bit atomic word; accesses are sequentially consistent unless they say otherwise. The shared memory's
/// words in earnest; a model checker's in tests.
pub trait Word {
    /// The value.
    fn load(&self) -> u64;
    /// Puts a value there.
    fn store(&self, value: u64);
    /// Adds, wrapping; returns the value before.
    fn add(&self, value: u64) -> u64;
    /// Subtracts, wrapping; returns the value before.
    fn sub(&self, value: u64) -> u64;
    /// Puts a value there after everything that this thread did before. Others may see it late: after this
    /// thread's next loads, unless a barrier comes between.
    fn put(&self, value: u64);
}

impl Word for AtomicU64 {
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
        // The processor may be late with it, and the barrier mends that; the compiler may not.
        compiler_fence(SeqCst);
    }
}

/// The words, wherever they are.
pub trait Words {
    /// Their type.
    type Word: Word;
    /// State and generation.
    fn control(&self) -> &Self::Word;
    /// Local I/O under way in threads that have no slot.
    fn in_flight(&self) -> &Self::Word;
    /// Local I/O under way in one thread; `index` is below [`SLOTS`].
    fn slot(&self, index: usize) -> &Self::Word;
    /// Grants that have arrived.
    fn received(&self) -> &Self::Word;
}

/// What a lane is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Local I/O is welcome.
    Live = 0,
    /// No new local I/O; the server waits for what is under way.
    Draining = 1,
    /// It's over.
    Gone = 2,
}

/// State and generation in one word, so that one comparison checks both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Control {
    /// The state.
    pub state: State,
    /// The generation, below 2^62: a grant holds only in the generation in which it was given.
    pub generation: u64,
}

impl Control {
    /// A lane's beginning.
    pub const FIRST: Self = Self { state: State::Live, generation: 1 };

    /// The word.
    #[must_use]
    pub const fn word(self) -> u64 {
        self.generation << 2 | self.state as u64
    }

    /// What a word says. What no server writes is taken as the end.
    #[must_use]
    pub const fn of(word: u64) -> Self {
        let state = match word & 3 {
            0 => State::Live,
            1 => State::Draining,
            _ => State::Gone,
        };
        Self { state, generation: word >> 2 }
    }
}

/// The server's side. It never reads control back: what it wrote there it remembers.
#[derive(Debug)]
pub struct ServerSide<W> {
    words: W,
    /// How many slots it looks at.
    slots: usize,
}

impl<W: Words> ServerSide<W> {
    /// Begins a lane with a client that may use the first `slots` slots, at most [`SLOTS`]; 0 where there's
    /// no barrier.
    pub fn new(words: W, slots: usize) -> Self {
        words.control().store(Control::FIRST.word());
        Self { words, slots: slots.min(SLOTS) }
    }

    /// How many slots this side looks at.
    pub const fn slots(&self) -> usize {
        self.slots
    }

    /// The memory.
    pub const fn words(&self) -> &W {
        &self.words
    }

    /// From here on, local I/O is refused (unless `control` is live, and then for grants of other
    /// generations).
    pub fn publish(&self, control: Control) {
        self.words.control().store(control.word());
    }

    /// The I/O that the client has under way, as it says. If it may use slots, none means none only after a
    /// barrier on all processors has followed the last [`ServerSide::publish`].
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        let slots = (0..self.slots).map(|index| self.words.slot(index).load());
        // A liar's sum shall not come round to nothing.
        slots.fold(self.words.in_flight().load(), u64::saturating_add)
    }

    /// The number of grants that have arrived since the lane began, as the client says.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.words.received().load()
    }
}

/// The client's side.
#[derive(Debug)]
pub struct ClientSide<W> {
    words: W,
    /// How many of the slots the server looks at.
    slots: usize,
}

/// Where an I/O was counted: its own thread's slot, or the shared word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Counted(Option<usize>);

impl<W: Words> ClientSide<W> {
    /// Joins a lane whose server looks at the first `slots` slots, after a barrier; 0: at none.
    pub const fn new(words: W, slots: usize) -> Self {
        Self { words, slots: if slots < SLOTS { slots } else { SLOTS } }
    }

    /// What the server says now.
    #[must_use]
    pub fn control(&self) -> Control {
        Control::of(self.words.control().load())
    }

    /// Begins one I/O under a grant that was given when control was `expected` (as a word), on a thread that
    /// has `slot` to itself, if it has one. If `None`, it must not be begun; otherwise [`ClientSide::put`]
    /// must follow on the same thread.
    #[inline]
    pub fn try_get(&self, slot: Option<usize>, expected: u64) -> Option<Counted> {
        let counted = Counted(slot.filter(|slot| *slot < self.slots));
        match counted.0 {
            // Only this thread writes there: it may have one I/O inside another.
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
    pub fn put(&self, counted: Counted) {
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

    /// Whether `try_get` would work.
    #[inline]
    #[must_use]
    pub fn is(&self, expected: u64) -> bool {
        self.words.control().load() == expected
    }

    /// A grant has arrived: the receipt.
    pub fn receive(&self) {
        self.words.received().add(1);
    }

    /// The server has hung up and can't say so here any more.
    pub fn mark_gone(&self) {
        let generation = self.control().generation;
        self.words.control().store(Control { state: State::Gone, generation }.word());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_word_says_what_was_put_in() {
        for state in [State::Live, State::Draining, State::Gone] {
            for generation in [0, 1, 7, (1 << 62) - 1] {
                let control = Control { state, generation };
                assert_eq!(Control::of(control.word()), control);
            }
        }
        assert_eq!(Control::of(u64::MAX).state, State::Gone);
    }
}
