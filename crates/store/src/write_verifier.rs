//! The write verifier: by its change a client learns that uncommitted data may be lost (RFC 1813 section
//! 3.3.7).

use std::sync::atomic::{AtomicU64, Ordering};

/// Eight bytes that change with every restart and every failed write or sync. One for the whole server,
/// shared by its stores and lanes.
#[derive(Debug)]
pub struct WriteVerifier(AtomicU64);

impl WriteVerifier {
    /// A random one.
    #[must_use]
    pub fn new() -> WriteVerifier {
        WriteVerifier(AtomicU64::new(unlike(0)))
    }

    /// The current verifier.
    #[must_use]
    pub fn get(&self) -> [u8; 8] {
        self.0.load(Ordering::SeqCst).to_be_bytes()
    }

    /// Changes the verifier: uncommitted data may be lost, and every client must send its own again.
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

/// A random number other than `old`, or the time if the kernel has no random numbers.
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
