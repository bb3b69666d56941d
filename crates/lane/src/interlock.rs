//! What keeps a server's shutdown and a client's local I/O from meeting in the wrong order.
//!
//! One small shared memory a lane. The server writes one word, *control* (state and generation); the client writes
//! two, *in flight* (local I/O under way) and *received* (grants that have arrived). The order of things is Dekker's:
//!
//! - a client's `try_get` first counts itself in flight, then looks at control, and takes itself back if control is
//!   no longer what it was when the grant was given;
//! - a server first writes control, then looks at in flight.
//!
//! Every access is sequentially consistent, so at least one of the two sees the other: I/O that the server doesn't
//! see under way was not begun, or was refused. Either side may be killed at any instant: the server then leaves a
//! stale word, and the client learns of the hang-up from the socket; the client leaves a stale count, and the server
//! stops looking at it.
//!
//! Neither side believes the other: nothing that stands in this memory is an index, a length or an address. The
//! worst that a lying client does is to be waited for in vain, for a bounded time.
//!
//! The memory, in host byte order: control at 0, in flight at 128, received at 256; 4096 bytes in all. The client's
//! words have cache lines (and their neighbours, which processors fetch in pairs) of their own.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Bytes of memory.
pub const SIZE: usize = 4096;
/// Where control stands.
pub const CONTROL: usize = 0;
/// Where in flight stands.
pub const IN_FLIGHT: usize = 128;
/// Where received stands.
pub const RECEIVED: usize = 256;

/// A 64-bit atomic word with sequentially consistent accesses. The shared memory's words in earnest; a model
/// checker's in tests.
pub trait Word {
    /// The value.
    fn load(&self) -> u64;
    /// Puts a value there.
    fn store(&self, value: u64);
    /// Adds, wrapping; returns the value before.
    fn add(&self, value: u64) -> u64;
    /// Subtracts, wrapping; returns the value before.
    fn sub(&self, value: u64) -> u64;
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
}

/// The three words, wherever they are.
pub trait Words {
    /// Their type.
    type Word: Word;
    /// State and generation.
    fn control(&self) -> &Self::Word;
    /// Local I/O under way.
    fn in_flight(&self) -> &Self::Word;
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
}

impl<W: Words> ServerSide<W> {
    /// Begins a lane.
    pub fn new(words: W) -> Self {
        words.control().store(Control::FIRST.word());
        Self { words }
    }

    /// The memory.
    pub const fn words(&self) -> &W {
        &self.words
    }

    /// From here on, local I/O is refused (unless `control` is live, and then for grants of other generations).
    pub fn publish(&self, control: Control) {
        self.words.control().store(control.word());
    }

    /// The I/O that the client has under way, as it says.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.words.in_flight().load()
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
}

impl<W: Words> ClientSide<W> {
    /// Joins a lane.
    pub const fn new(words: W) -> Self {
        Self { words }
    }

    /// What the server says now.
    #[must_use]
    pub fn control(&self) -> Control {
        Control::of(self.words.control().load())
    }

    /// Begins one I/O under a grant that was given when control was `expected` (as a word). If `false`, it must not
    /// be begun; if `true`, [`ClientSide::put`] must follow.
    #[inline]
    #[must_use]
    pub fn try_get(&self, expected: u64) -> bool {
        self.words.in_flight().add(1);
        if self.words.control().load() == expected {
            return true;
        }
        self.words.in_flight().sub(1);
        false
    }

    /// Ends one I/O.
    #[inline]
    pub fn put(&self) {
        self.words.in_flight().sub(1);
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
