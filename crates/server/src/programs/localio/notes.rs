//! What is remembered of each connection's way to a lane, so that the status can say why there is none.
//!
//! A note is made when a connection asks (UUID_IS_LOCAL), changed by what comes of it, and goes with the
//! connection: there are never more notes than connections. That a connection has a lane is the lane's to
//! say, not the notes'.

use std::collections::HashMap;
use std::net::SocketAddr;

use lane::NonceOutcome;
use parking_lot::Mutex;

/// How the last attempt of a connection to get a lane ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Note {
    /// It is being answered, or has a lane.
    Asked,
    /// It asked without saying who asks (AUTH_NONE).
    Anonymous,
    /// It asked in vain.
    Refused {
        answer: NonceOutcome,
        /// The caller's credential is one as the Linux kernel writes it.
        kernel: bool,
    },
    /// It had a lane.
    Ended(String),
}

/// The notes by the client's end of the connection.
#[derive(Debug, Default)]
pub(crate) struct Notes(Mutex<HashMap<SocketAddr, Note>>);

impl Notes {
    /// A connection asks.
    pub(crate) fn asks(&self, peer: SocketAddr) {
        self.0.lock().insert(peer, Note::Asked);
    }

    /// It has been answered: not with a lane. A lane that came up and ended meanwhile is the newer note.
    pub(crate) fn answered(&self, peer: SocketAddr, note: Note) {
        if let Some(old) = self.0.lock().get_mut(&peer)
            && *old == Note::Asked
        {
            *old = note;
        }
    }

    /// Its lane has ended. Nothing is noted of a connection that has gone before.
    pub(crate) fn lane_ended(&self, peer: SocketAddr, why: &str) {
        if let Some(note) = self.0.lock().get_mut(&peer) {
            *note = Note::Ended(why.to_owned());
        }
    }

    /// It has gone.
    pub(crate) fn closed(&self, peer: SocketAddr) {
        self.0.lock().remove(&peer);
    }

    /// What is known of it; `None` if it never asked.
    pub(crate) fn get(&self, peer: SocketAddr) -> Option<Note> {
        self.0.lock().get(&peer).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNKNOWN: Note = Note::Refused { answer: NonceOutcome::Unknown, kernel: false };

    #[test]
    fn notes_live_as_long_as_their_connections() {
        let (notes, peer) = (Notes::default(), "127.0.0.1:700".parse().unwrap());
        notes.answered(peer, UNKNOWN);
        notes.lane_ended(peer, "late");
        assert_eq!(notes.get(peer), None, "never asked");
        notes.asks(peer);
        notes.answered(peer, UNKNOWN);
        assert_eq!(notes.get(peer), Some(UNKNOWN));
        notes.asks(peer);
        notes.lane_ended(peer, "hung up");
        notes.answered(peer, UNKNOWN);
        assert_eq!(notes.get(peer), Some(Note::Ended("hung up".into())), "the newer one");
        notes.closed(peer);
        assert!(notes.0.lock().is_empty());
    }
}
