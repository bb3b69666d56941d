//! What an admin hears of a server that doesn't answer: one line when it falls silent, and one when it is
//! back, however many connections and calls wait for it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether a server is taken to be silent; its connections share it.
#[derive(Debug, Default)]
pub(super) struct Silence(AtomicBool);

impl Silence {
    /// It doesn't answer. True if that is news.
    fn begins(&self) -> bool {
        !self.0.swap(true, Relaxed)
    }

    /// It has answered. True if that is news.
    fn ends(&self) -> bool {
        self.0.load(Relaxed) && self.0.swap(false, Relaxed)
    }

    /// A call has waited for as long as a server may take, or the server can't be reached.
    pub(super) fn note(&self, server: SocketAddr, hard: bool) {
        if self.begins() {
            let then = if hard { "still trying" } else { "timed out" };
            tracing::warn!(%server, "server not responding, {then}");
        }
    }

    /// A reply has come.
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
    fn it_is_told_once_that_a_server_is_silent_and_once_that_it_is_back() {
        let silence = Silence::default();
        assert!(!silence.ends());
        assert_eq!([silence.begins(), silence.begins(), silence.begins()], [true, false, false]);
        assert_eq!([silence.ends(), silence.ends()], [true, false]);
        assert!(silence.begins());
    }
}
