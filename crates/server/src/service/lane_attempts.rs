//! The last attempt of each connection to get a lane, so that the status can say why it has none.
//!
//! An attempt is recorded when a connection sends UUID_IS_LOCAL, updated with the result, and removed with
//! the connection: there are never more records than connections. Whether a connection has a lane is known to
//! the lane server alone.

use std::collections::HashMap;
use std::net::SocketAddr;

use lane::NonceOutcome;
use parking_lot::Mutex;

/// The state of a connection's last attempt to get a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LaneAttempt {
    /// It is being handled, or has led to a lane.
    Asked,
    /// It came without a credential (AUTH_NONE).
    Anonymous,
    /// It was refused.
    Refused {
        answer: NonceOutcome,
        /// The credential looks like one of the Linux kernel's client.
        kernel: bool,
    },
    /// Its lane has ended.
    Ended(String),
}

/// The attempts, by the client's end of the connection.
#[derive(Debug, Default)]
pub(crate) struct LaneAttempts(Mutex<HashMap<SocketAddr, LaneAttempt>>);

impl LaneAttempts {
    /// A connection makes an attempt.
    pub(crate) fn record(&self, peer: SocketAddr) {
        self.0.lock().insert(peer, LaneAttempt::Asked);
    }

    /// An attempt failed. The end of a lane that came up meanwhile is newer and takes precedence.
    pub(crate) fn answered(&self, peer: SocketAddr, note: LaneAttempt) {
        if let Some(old) = self.0.lock().get_mut(&peer)
            && *old == LaneAttempt::Asked
        {
            *old = note;
        }
    }

    /// A lane has ended. Ignored if the connection is already closed.
    pub(crate) fn lane_ended(&self, peer: SocketAddr, why: &str) {
        if let Some(note) = self.0.lock().get_mut(&peer) {
            *note = LaneAttempt::Ended(why.to_owned());
        }
    }

    /// The connection is closed.
    pub(crate) fn closed(&self, peer: SocketAddr) {
        self.0.lock().remove(&peer);
    }

    /// The last attempt; `None` if there was none.
    pub(crate) fn get(&self, peer: SocketAddr) -> Option<LaneAttempt> {
        self.0.lock().get(&peer).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNKNOWN: LaneAttempt = LaneAttempt::Refused { answer: NonceOutcome::Unknown, kernel: false };

    #[test]
    fn attempts_live_as_long_as_their_connections() {
        let (lane_attempts, peer) = (LaneAttempts::default(), "127.0.0.1:700".parse().unwrap());
        lane_attempts.answered(peer, UNKNOWN);
        lane_attempts.lane_ended(peer, "late");
        assert_eq!(lane_attempts.get(peer), None, "no attempt");
        lane_attempts.record(peer);
        lane_attempts.answered(peer, UNKNOWN);
        assert_eq!(lane_attempts.get(peer), Some(UNKNOWN));
        lane_attempts.record(peer);
        lane_attempts.lane_ended(peer, "hung up");
        lane_attempts.answered(peer, UNKNOWN);
        assert_eq!(lane_attempts.get(peer), Some(LaneAttempt::Ended("hung up".into())), "the newer state");
        lane_attempts.closed(peer);
        assert!(lane_attempts.0.lock().is_empty());
    }
}
