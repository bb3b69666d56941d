//! Log lines about a server that doesn't answer: one when it stops answering and one when it answers again,
//! however many connections and calls wait for it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether a server counts as unresponsive. Its connections share this.
#[derive(Debug, Default)]
pub(super) struct Silence(AtomicBool);

impl Silence {
    /// Marks it as unresponsive. Returns whether it wasn't before.
    fn begins(&self) -> bool {
        !self.0.swap(true, Relaxed)
    }

    /// Marks it as responsive. Returns whether it wasn't before.
    fn ends(&self) -> bool {
        self.0.load(Relaxed) && self.0.swap(false, Relaxed)
    }

    /// A call has waited for its whole timeout, or the server can't be reached.
    pub(super) fn note(&self, server: SocketAddr, hard: bool) {
        if self.begins() {
            let then = if hard { "still trying" } else { "timed out" };
            tracing::warn!(%server, "server not responding, {then}");
        }
    }

    /// A reply has arrived.
    pub(super) fn answered(&self, server: SocketAddr) {
        if self.ends() {
            tracing::warn!(%server, "server OK");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_and_recovery_are_logged_once() {
        let silence = Silence::default();
        assert!(!silence.ends());
        assert_eq!([silence.begins(), silence.begins(), silence.begins()], [true, false, false]);
        assert_eq!([silence.ends(), silence.ends()], [true, false]);
        assert!(silence.begins());
    }
}
