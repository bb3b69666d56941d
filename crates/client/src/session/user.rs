//! Who a session acts as.
//!
//! One session may serve many users, as a mounted filesystem does: connections, lane, sizes and counters are
//! the host's, and only the credential of each call and of each Open over the lane is the user's. The lane
//! was shaken hands over as the session's owner; whether the process at its end may act for others is the
//! server's to decide, and where it says no (it does, unless this process is root) the wire serves that
//! user's files.

use std::sync::Arc;

use rpc::message::{AuthSys, Credential as Wire};

use super::Session;
use crate::options::Credential;

/// A credential in the words of both data paths.
#[derive(Debug)]
pub(crate) struct User {
    pub(crate) wire: Wire,
    /// `None`: AUTH_NONE, with which there is no lane.
    pub(crate) lane: Option<lane::LaneCredential>,
}

impl User {
    pub(super) fn new(credential: Credential) -> Self {
        match credential {
            Credential::None => Self { wire: Wire::None, lane: None },
            Credential::Sys { uid, gid, groups } => {
                let gids = groups.iter().copied().take(lane::request::MAX_GIDS).collect();
                let wire = Wire::Sys(AuthSys {
                    stamp: std::process::id(),
                    machine_name: rustix::system::uname().nodename().to_bytes().to_vec(),
                    uid,
                    gid,
                    gids: groups,
                });
                Self { wire, lane: Some(lane::LaneCredential { uid, gid, gids }) }
            }
        }
    }
}

impl Session {
    /// The same session for another user: connections, lane, sizes and counters are shared, calls and opens
    /// are made as `credential` says. Cheap: keep one for each user that is at work, and make another when it
    /// is wanted.
    #[must_use]
    pub fn as_user(&self, credential: Credential) -> Self {
        Self { inner: self.inner.clone(), user: Arc::new(User::new(credential)) }
    }
}
