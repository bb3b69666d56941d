//! State ids, and the errors of requests about state.

/// `stateid4`: the server's name of an open, of an owner's locks, of a delegation, or of an asynchronous
/// copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StateId {
    /// Goes up with every change of the state. In a request, 0 stands for the current one (RFC 8881 section
    /// 8.2.2).
    pub seqid: u32,
    /// What the server knows the state by.
    pub other: [u8; 12],
}

impl StateId {
    /// The same state, whatever its current `seqid` is.
    #[must_use]
    pub const fn any(self) -> Self {
        Self { seqid: 0, other: self.other }
    }

    /// Whether this is a later id of the same state. The `seqid` wraps: less than half of all numbers ahead
    /// is later.
    pub(crate) const fn is_later(self, than: Self) -> bool {
        let ahead = self.seqid.wrapping_sub(than.seqid);
        ahead > 0 && ahead < 1 << 31
    }

    /// Whether the two are ids of the same state.
    pub(crate) fn is_same_state(self, other: Self) -> bool {
        self.other == other.other
    }
}

/// Why a request about state failed. The caller repeats a request that fails with `NFS4ERR_DELAY` or
/// `NFS4ERR_GRACE`, and reports only how it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// `NFS4ERR_OLD_STATEID`: the state has changed since the server gave out the state id.
    #[error("the state has changed since")]
    Old,
    /// The server doesn't have the state any more: `NFS4ERR_BAD_STATEID`, `NFS4ERR_STALE_STATEID`,
    /// `NFS4ERR_EXPIRED`, `NFS4ERR_ADMIN_REVOKED`, `NFS4ERR_DELEG_REVOKED`.
    #[error("the server doesn't have the state")]
    Gone,
    /// A reclaim came too late, or isn't justified in the server's view: `NFS4ERR_NO_GRACE`,
    /// `NFS4ERR_RECLAIM_BAD`, `NFS4ERR_RECLAIM_CONFLICT`.
    #[error("nothing can be reclaimed")]
    NoReclaim,
    /// Any other error.
    #[error("the server refuses")]
    Refused,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_ids_are_less_than_half_of_all_ahead() {
        let id = |seqid| StateId { seqid, other: [1; 12] };
        for (late, early) in [(2, 1), (1 << 31, 1), (1, u32::MAX), (5, u32::MAX - 5)] {
            assert!(id(late).is_later(id(early)) && !id(early).is_later(id(late)), "{late} {early}");
        }
        assert!(!id(7).is_later(id(7)));
        assert!(id(7).any().is_same_state(id(9)) && id(7).any().seqid == 0);
        assert!(!id(7).is_same_state(StateId { seqid: 7, other: [2; 12] }));
    }
}
