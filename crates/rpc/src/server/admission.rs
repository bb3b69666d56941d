//! Which peers are served at all.
//!
//! A server that faces a network meets peers that none of its rules names. Such a *stranger* is answered by
//! the programs that answer everybody ([`Program::answers_strangers`](super::Program::answers_strangers)),
//! and by NULL of every program. All its other calls are denied before their program sees them, and it may
//! hold next to nothing.
//!
//! The question is asked of one [`Admission`], when a connection is accepted and again when the rules have
//! changed. Between changes a connection remembers the answer, so that a call pays for one load and one
//! comparison.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Peer;

/// What [`Admission`] says about a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The peer may call every program.
    Admitted,
    /// No rule names the peer.
    Stranger,
    /// Nobody can say yet; it takes, for example, a host name that is being looked up.
    NotKnownYet,
}

/// Decides which peers are served.
pub trait Admission: Send + Sync + 'static {
    /// A number that changes whenever an answer may have changed, after it has. Read for every call.
    fn generation(&self) -> u64;

    /// Whether `peer` is served. Doesn't wait for anybody.
    fn verdict(&self, peer: &Peer) -> Verdict;

    /// The same, but waits for a bounded time where nobody can say yet. Called on a worker thread whose
    /// connection has been handed to another.
    fn wait_for_verdict(&self, peer: &Peer) -> Verdict {
        self.verdict(peer)
    }
}

/// Serves everybody.
#[derive(Debug, Clone, Copy)]
pub(super) struct Everybody;

impl Admission for Everybody {
    fn generation(&self) -> u64 {
        0
    }

    fn verdict(&self, _: &Peer) -> Verdict {
        Verdict::Admitted
    }
}

/// A connection's verdict and the generation that it is of, in one word.
#[derive(Debug)]
pub(super) struct Remembered(AtomicU64);

const VERDICT: u64 = 3;

impl Remembered {
    /// Remembers the verdict that is asked now.
    pub fn ask(admission: &dyn Admission, peer: &Peer) -> Self {
        // The generation first: what changes in between is then noticed by the next call.
        let generation = admission.generation();
        Self(AtomicU64::new(packed(generation, admission.verdict(peer))))
    }

    /// The verdict, asked again if the rules have changed or nobody could say.
    #[inline]
    pub fn verdict(&self, admission: &dyn Admission, peer: &Peer) -> Verdict {
        let word = self.0.load(Ordering::Relaxed);
        if word == packed(admission.generation(), Verdict::Admitted) {
            return Verdict::Admitted;
        }
        self.ask_again(word, admission, || admission.verdict(peer))
    }

    /// As [`Remembered::verdict`], but waits for it.
    #[cold]
    pub fn wait(&self, admission: &dyn Admission, peer: &Peer) -> Verdict {
        self.ask_again(self.0.load(Ordering::Relaxed), admission, || admission.wait_for_verdict(peer))
    }

    /// Whether the peer was admitted when that was last asked.
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

    /// Answers in turn, and counts how often it is asked.
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
        let remembered = Remembered::ask(&rules, &peer);
        let verdict = || (remembered.verdict(&rules, &peer), rules.asked.load(Ordering::Relaxed));
        assert_eq!(verdict(), (Verdict::NotKnownYet, 2), "asked again until somebody can say");
        for (answer, asked) in [(Verdict::Stranger, 3), (Verdict::Admitted, 4), (Verdict::Stranger, 5)] {
            *rules.answer.lock() = answer;
            rules.generation.fetch_add(1, Ordering::Relaxed);
            assert_eq!((verdict(), verdict()), ((answer, asked), (answer, asked)));
            assert_eq!(remembered.was_admitted(), answer == Verdict::Admitted);
            // What changes without a change of the rules isn't asked about.
            *rules.answer.lock() = Verdict::NotKnownYet;
            assert_eq!(verdict(), (answer, asked));
        }
    }
}
