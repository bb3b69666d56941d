//! What the records of earlier runs say.

use std::time::Duration;

use fairness::Peer;

/// The record of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientRecord {
    /// An opaque name of the client's current instance.
    pub instance: Vec<u8>,
    /// Who may say that this instance has ended. `None`: nobody, or it isn't known.
    pub holder: Option<RecordHolder>,
}

/// Who made a recorded client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordHolder {
    /// The peer that the client came from.
    pub peer: Peer,
    /// The client's principal: printable ASCII, without '#'.
    pub principal: String,
}

/// The content of a [`RecoveryStore`](crate::RecoveryStore).
#[derive(Debug, Default)]
pub struct Recovered {
    /// The clients that may reclaim.
    pub clients: Vec<ClientRecord>,
    /// The longest lease that they may have been promised, and so the time in which they hear of the restart.
    pub lease: Option<Duration>,
    /// The entries that can't be read, with the reasons. Each may have been a client's record, so that no
    /// client gets new state before a whole grace period has passed (RFC 8881 section 8.4.3).
    pub damaged: Vec<String>,
}

impl Recovered {
    /// A description of the damage and its consequences, if there is any. `has_store` says that the records
    /// of this run can be kept.
    #[must_use]
    pub fn problem(&self, has_store: bool) -> Option<String> {
        let first = self.damaged.first()?;
        let more = match self.damaged.len() {
            1 => String::new(),
            all => format!(", and {} more (the log has them)", all - 1),
        };
        let now = "NFSv4 clients whose records can't be read can't reclaim their opens and locks, and no \
                   client gets new ones for a whole grace period";
        Some(if has_store {
            format!("{now}: {first}{more}; move it away before the next start")
        } else {
            format!("{now}, and no client can reclaim after the next restart: {first}{more}")
        })
    }
}
