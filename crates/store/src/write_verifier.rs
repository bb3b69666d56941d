//! The write verifier: how a client learns that unstable data may have been lost (RFC 1813 section 3.3.7).

use std::sync::atomic::{AtomicU64, Ordering};

/// Eight bytes that are different after every restart and after every failed write or sync. One for the whole
/// server, shared by its stores and its lanes.
#[derive(Debug)]
pub struct WriteVerifier(AtomicU64);

impl WriteVerifier {
    /// A new one, unlike any before it.
    #[must_use]
    pub fn new() -> WriteVerifier {
        WriteVerifier(AtomicU64::new(unlike(0)))
    }

    /// The verifier as it is now.
    #[must_use]
    pub fn get(&self) -> [u8; 8] {
        self.0.load(Ordering::SeqCst).to_be_bytes()
    }

    /// Data that was acknowledged as unstable may be lost: every client must send its own again.
    pub fn change(&self) {
        let old = self.0.load(Ordering::SeqCst);
        self.0.store(unlike(old), Ordering::SeqCst);
    }
}

impl Default for WriteVerifier {
    fn default() -> Self {
        WriteVerifier::new()
    }
}

/// A random number other than `old`; from the clock should the kernel have no random numbers to give.
fn unlike(old: u64) -> u64 {
    let fresh = getrandom::u64().unwrap_or_else(|_| {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
    });
    if fresh == old { fresh.wrapping_add(1) } else { fresh }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_seen() {
        let verifier = WriteVerifier::new();
        let before = verifier.get();
        assert_eq!(before, verifier.get());
        verifier.change();
        assert_ne!(before, verifier.get());
        assert_ne!(WriteVerifier::new().get(), WriteVerifier::new().get());
    }
}
