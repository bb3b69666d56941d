//! Admission: which peers are served at all.
//!
//! A server on a network meets peers that none of its rules name. Such a *stranger* can call only the
//! programs that answer all peers ([`Program::answers_strangers`](super::Program::answers_strangers)), and
//! NULL of every program. All its other calls are denied before their program sees them, and the memory it
//! may hold is small.
//!
//! The engine asks its [`Admission`] when a connection is accepted and again when the rules have changed. In
//! between a connection caches the verdict, so that a call costs one load and one comparison.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Peer;

/// The decision about a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The peer may call every program.
    Admitted,
    /// No rule names the peer.
    Stranger,
    /// Undecided, for example while a host name is being looked up.
    NotKnownYet,
}

/// Decides which peers are served.
pub trait Admission: Send + Sync + 'static {
    /// A number that changes after every change that may alter a verdict. Read for every call.
    fn generation(&self) -> u64;

    /// Whether `peer` is served. Doesn't wait.
    fn verdict(&self, peer: &Peer) -> Verdict;

    /// Like [`Admission::verdict`], but waits for a bounded time while undecided. Called on a worker thread
    /// that has given up its connection.
    fn wait_for_verdict(&self, peer: &Peer) -> Verdict {
        self.verdict(peer)
    }
}

/// Admits all peers.
#[derive(Debug, Clone, Copy)]
pub(super) struct AdmitAll;

impl Admission for AdmitAll {
    fn generation(&self) -> u64 {
        0
    }

    fn verdict(&self, _: &Peer) -> Verdict {
        Verdict::Admitted
    }
}

/// A connection's verdict and its generation, in one word.
#[derive(Debug)]
pub(super) struct CachedVerdict(AtomicU64);

const VERDICT: u64 = 3;

impl CachedVerdict {
    /// Asks for the verdict and caches it.
    pub fn ask(admission: &dyn Admission, peer: &Peer) -> Self {
        // The generation is read first, so that the next call notices a change in between.
        let generation = admission.generation();
        Self(AtomicU64::new(packed(generation, admission.verdict(peer))))
    }

    /// The verdict, asked for again if the rules have changed or it was undecided.
    #[inline]
    pub fn verdict(&self, admission: &dyn Admission, peer: &Peer) -> Verdict {
        let word = self.0.load(Ordering::Relaxed);
        if word == packed(admission.generation(), Verdict::Admitted) {
            return Verdict::Admitted;
        }
        self.ask_again(word, admission, || admission.verdict(peer))
    }

    /// Like [`CachedVerdict::verdict`], but waits while undecided.
    #[cold]
    pub fn wait(&self, admission: &dyn Admission, peer: &Peer) -> Verdict {
        self.ask_again(self.0.load(Ordering::Relaxed), admission, || admission.wait_for_verdict(peer))
    }

    /// Whether the cached verdict is `Admitted`.
    pub fn was_admitted(&self) -> bool {
        self.0.load(Ordering::Relaxed) & VERDICT == packed(0, Verdict::Admitted)
    }

    #[cold]
    fn ask_again(&self, word: u64, admission: &dyn Admission, ask: impl FnOnce() -> Verdict) -> Verdict {
        let generation = admission.generation();
        if word == packed(generation, Verdict::Stranger) {
            return Verdict::Stranger;
        }
        let verdict = ask();
        self.0.store(packed(generation, verdict), Ordering::Relaxed);
        verdict
    }
}

const fn packed(generation: u64, verdict: Verdict) -> u64 {
    (generation << 2) | verdict as u64
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// Rules that a test changes, which count the queries.
    struct Rules {
        generation: AtomicU64,
        answer: parking_lot::Mutex<Verdict>,
        asked: AtomicUsize,
    }

    impl Admission for Rules {
        fn generation(&self) -> u64 {
            self.generation.load(Ordering::Relaxed)
        }

        fn verdict(&self, _: &Peer) -> Verdict {
            self.asked.fetch_add(1, Ordering::Relaxed);
            *self.answer.lock()
        }
    }

    #[test]
    fn a_verdict_holds_until_the_rules_change() {
        let address = ([192, 0, 2, 1], 700).into();
        let peer = Peer { connection: 1, address, local: address, owner: sys::TcpOwner::Remote };
        let rules = Rules {
            generation: AtomicU64::new(7),
            answer: parking_lot::Mutex::new(Verdict::NotKnownYet),
            asked: AtomicUsize::new(0),
        };
        let remembered = CachedVerdict::ask(&rules, &peer);
        let verdict = || (remembered.verdict(&rules, &peer), rules.asked.load(Ordering::Relaxed));
        assert_eq!(verdict(), (Verdict::NotKnownYet, 2), "asked again until somebody can say");
        for (answer, asked) in [(Verdict::Stranger, 3), (Verdict::Admitted, 4), (Verdict::Stranger, 5)] {
            *rules.answer.lock() = answer;
            rules.generation.fetch_add(1, Ordering::Relaxed);
            assert_eq!((verdict(), verdict()), ((answer, asked), (answer, asked)));
            assert_eq!(remembered.was_admitted(), answer == Verdict::Admitted);
            // A change without a new generation isn't noticed.
            *rules.answer.lock() = Verdict::NotKnownYet;
            assert_eq!(verdict(), (answer, asked));
        }
    }
}
