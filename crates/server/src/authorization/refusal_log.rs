//! Log lines about local users that were refused or made anonymous: one line for each user and export, so
//! that repeated requests can't fill the log.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rpc::server::TcpOwner;

use crate::authorization::audit::message_id;
use crate::authorization::requester::Requester;

/// How many lines are remembered; beyond that nothing is logged until the exports are reloaded.
const MAX_NOTED: usize = 256;

/// What happened to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum LoggedRefusal {
    /// It was refused: the server serves the user that it runs as, and root.
    OtherUser,
    /// It was made anonymous: the process belongs to another user than the claimed one.
    FalseClaim,
}

/// What has been logged.
#[derive(Debug, Default)]
pub(crate) struct RefusalLog(Mutex<HashSet<(LoggedRefusal, PathBuf, TcpOwner)>>);

impl RefusalLog {
    /// Logs a refusal, unless the same one has been logged for this user and export.
    pub(crate) fn note(&self, what: LoggedRefusal, export: &Path, requester: Requester<'_>) {
        let mut noted = self.0.lock();
        let one = (what, export.to_owned(), requester.owner);
        if noted.len() < MAX_NOTED && noted.insert(one) {
            let claimed = requester.claim.map(|claim| claim.uid);
            let words = match what {
                LoggedRefusal::OtherUser => {
                    "refused: served is only the user that the server runs as (option all_act_as_server_user)"
                }
                LoggedRefusal::FalseClaim => {
                    "made anonymous: the process isn't of the user that it claims to be (option local_peers)"
                }
            };
            tracing::warn!(
                client = %requester.address, process = ?requester.owner, ?claimed,
                export = &*export.to_string_lossy(),
                message_id = message_id::USER_REFUSED,
                "{words}; this is logged once for each user"
            );
        }
    }

    /// Forgets what was logged, since the rules may have changed.
    pub(crate) fn forget(&self) {
        self.0.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authorization::requester::Transport;

    #[test]
    fn repeated_refusals_are_remembered_once_and_bounded() {
        let refused = RefusalLog::default();
        let requester = |uid| Requester {
            address: "127.0.0.1:1".parse().unwrap(),
            owner: TcpOwner::User(uid),
            claim: None,
            transport: Transport::Wire,
        };
        for _ in 0..3 {
            refused.note(LoggedRefusal::OtherUser, Path::new("/a"), requester(1));
        }
        assert_eq!(refused.0.lock().len(), 1);
        for uid in 0..2000 {
            refused.note(LoggedRefusal::OtherUser, Path::new("/a"), requester(uid));
        }
        assert_eq!(refused.0.lock().len(), MAX_NOTED);
        refused.forget();
        assert_eq!(refused.0.lock().len(), 0);
    }
}
