//! Which users of this host were turned away or made anonymous, for the log: once each, so that a user who
//! asks for ever fills nothing.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rpc::server::TcpOwner;

use crate::authorization::access::Asking;

/// How many are told apart; of further ones nothing is logged until the exports are read again.
const MAX_NOTED: usize = 256;

/// What has become of somebody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum What {
    /// The server serves the user that it runs as, and root.
    OtherUser,
    /// The process isn't of the user that it claims to be.
    FalseClaim,
}

/// Those that the log has.
#[derive(Debug, Default)]
pub(crate) struct Refused(Mutex<HashSet<(What, PathBuf, TcpOwner)>>);

impl Refused {
    /// Logs it, unless it is known of the same user and export.
    pub(crate) fn note(&self, what: What, export: &Path, asking: Asking<'_>) {
        let mut noted = self.0.lock();
        let one = (what, export.to_owned(), asking.owner);
        if noted.len() < MAX_NOTED && noted.insert(one) {
            let claimed = asking.claim.map(|claim| claim.uid);
            let words = match what {
                What::OtherUser => {
                    "refused: served is only the user that the server runs as (option all_act_as_server_user)"
                }
                What::FalseClaim => {
                    "made anonymous: the process isn't of the user that it claims to be (option local_peers)"
                }
            };
            tracing::warn!(
                peer = %asking.address, process = ?asking.owner, ?claimed, export = %export.display(),
                "{words}; this is logged once for each user"
            );
        }
    }

    /// Everybody is logged again: the rules may be others.
    pub(crate) fn forget(&self) {
        self.0.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authorization::access::Road;

    #[test]
    fn whoever_is_turned_away_ever_so_often_is_remembered_once_and_all_are_bounded() {
        let refused = Refused::default();
        let asking = |uid| Asking {
            address: "127.0.0.1:1".parse().unwrap(),
            owner: TcpOwner::User(uid),
            claim: None,
            road: Road::Wire,
        };
        for _ in 0..3 {
            refused.note(What::OtherUser, Path::new("/a"), asking(1));
        }
        assert_eq!(refused.0.lock().len(), 1);
        for uid in 0..2000 {
            refused.note(What::OtherUser, Path::new("/a"), asking(uid));
        }
        assert_eq!(refused.0.lock().len(), MAX_NOTED);
        refused.forget();
        assert_eq!(refused.0.lock().len(), 0);
    }
}
