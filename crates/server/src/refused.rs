//! Which users of this host were turned away, for the log: once each, so that a user who asks for ever fills nothing.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rpc::server::TcpOwner;

use crate::access::{Asking, Refusal};

/// How many are told apart; of further ones nothing is logged until the exports are read again.
const MAX_NOTED: usize = 256;

/// Those that the log has.
#[derive(Debug, Default)]
pub(crate) struct Refused(Mutex<HashSet<(Refusal, PathBuf, TcpOwner)>>);

impl Refused {
    /// Logs a refusal, unless the same user met it at the same export before.
    pub(crate) fn note(&self, refusal: Refusal, export: &Path, asking: Asking<'_>) {
        let mut noted = self.0.lock();
        let one = (refusal, export.to_owned(), asking.owner);
        if noted.len() < MAX_NOTED && noted.insert(one) {
            let claimed = asking.claim.map(|claim| claim.uid);
            tracing::warn!(
                peer = %asking.address, process = ?asking.owner, ?claimed, export = %export.display(),
                "refused: {refusal}; this is logged once for each user"
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
    use crate::access::Road;

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
            refused.note(Refusal::OtherUser, Path::new("/a"), asking(1));
        }
        assert_eq!(refused.0.lock().len(), 1);
        for uid in 0..2000 {
            refused.note(Refusal::OtherUser, Path::new("/a"), asking(uid));
        }
        assert_eq!(refused.0.lock().len(), MAX_NOTED);
        refused.forget();
        assert_eq!(refused.0.lock().len(), 0);
    }
}
