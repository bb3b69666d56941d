//! A session's user: the credentials of calls over the wire and of Opens over the lane.
//!
//! The lane is established as the session's owner. The server decides whether that process may act for other
//! users: only root may. The files of a user for whom it may not are served over the wire.

use std::sync::Arc;

use rpc::message::{AuthSys, Credential as WireCredential};
use xdr::Encoder;

use crate::calling_session::CallingSession;
use crate::options::Credential;
use crate::types::SetAttributes;

/// The supplementary groups that AUTH_SYS carries (RFC 5531 appendix A).
const MAX_WIRE_GIDS: usize = 16;

/// A user's credentials.
#[derive(Debug, Clone)]
pub(crate) struct User {
    pub(crate) wire: Arc<WireCredential>,
    /// `None`: AUTH_NONE, with which there is no lane.
    pub(crate) lane: Option<lane::LaneCredential>,
    /// The same for users with the same ids, and for no others.
    pub(crate) ids: Arc<[u8]>,
    /// Cleared in the modes of new files, unless they inherit an access control list.
    pub(crate) umask: u32,
    /// The session whose user it is.
    pub(crate) session: Arc<CallingSession>,
}

impl User {
    pub(crate) fn new(credential: Credential, session: &Arc<CallingSession>) -> Self {
        let session = session.clone();
        match credential {
            Credential::None => {
                let wire = Arc::new(WireCredential::None);
                Self { wire, lane: None, ids: Arc::default(), umask: 0, session }
            }
            Credential::Sys { uid, gid, groups } => {
                let gids = groups.iter().copied().take(lane::request::MAX_GIDS).collect();
                let mut ids = Encoder::new();
                [uid, gid].iter().chain(groups.iter().take(MAX_WIRE_GIDS)).for_each(|id| ids.u32(*id));
                let wire = WireCredential::Sys(AuthSys {
                    stamp: std::process::id(),
                    machine_name: rustix::system::uname().nodename().to_bytes().to_vec(),
                    uid,
                    gid,
                    gids: groups,
                });
                let lane = Some(lane::LaneCredential { uid, gid, gids });
                Self { wire: Arc::new(wire), lane, ids: ids.into_vec().into(), umask: 0, session }
            }
        }
    }

    /// The mode of a new file that inherits no access control list.
    pub(crate) const fn masked(&self, mode: u32) -> u32 {
        mode & !self.umask
    }

    /// The attributes of a new file that inherits no access control list.
    pub(crate) fn masked_set(&self, set: &SetAttributes) -> SetAttributes {
        SetAttributes { mode: set.mode.map(|mode| self.masked(mode)), ..*set }
    }
}
