//! A session's user: the credentials of calls over the wire and of Opens over the lane.
//!
//! The lane is established as the session's owner. The server decides whether that process may act for other
//! users: only root may. The files of a user for whom it may not are served over the wire.

use rpc::message::{AuthSys, Credential as WireCredential};

use crate::options::Credential;

/// A user's credentials.
#[derive(Debug, Clone)]
pub(crate) struct User {
    pub(crate) wire: WireCredential,
    /// `None`: AUTH_NONE, with which there is no lane.
    pub(crate) lane: Option<lane::LaneCredential>,
}

impl User {
    pub(crate) fn new(credential: Credential) -> Self {
        match credential {
            Credential::None => Self { wire: WireCredential::None, lane: None },
            Credential::Sys { uid, gid, groups } => {
                let gids = groups.iter().copied().take(lane::request::MAX_GIDS).collect();
                let wire = WireCredential::Sys(AuthSys {
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
