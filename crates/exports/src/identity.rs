//! Squashing: the mapping of a client's AUTH_SYS identity to the identity that the server uses.

use crate::{ExportOptions, Squash};

/// The identity that a client claims: the ids of an AUTH_SYS credential. AUTH_NONE claims none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim<'a> {
    /// The user id.
    pub uid: u32,
    /// The primary group id.
    pub gid: u32,
    /// The supplementary groups, at most 16 on the wire.
    pub gids: &'a [u32],
}

/// The identity that the server uses.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Squashed {
    /// The user id.
    pub uid: u32,
    /// The primary group id.
    pub gid: u32,
    /// The supplementary groups.
    pub gids: Vec<u32>,
}

impl ExportOptions {
    /// Maps `claim` (`None` for AUTH_NONE) to the identity that the server uses.
    ///
    /// As in knfsd, `all_squash` and AUTH_NONE map all users to the anonymous user without supplementary
    /// groups, and `root_squash` replaces uid 0, gid 0 and each supplementary group 0 separately.
    #[must_use]
    pub fn identity(&self, claim: Option<Claim<'_>>) -> Squashed {
        let anonymous = || Squashed { uid: self.anon_uid, gid: self.anon_gid, gids: Vec::new() };
        let Some(claim) = claim else { return anonymous() };
        match self.squash {
            Squash::All => anonymous(),
            Squash::None => Squashed { uid: claim.uid, gid: claim.gid, gids: claim.gids.to_vec() },
            Squash::Root => {
                let group = |gid: u32| if gid == 0 { self.anon_gid } else { gid };
                Squashed {
                    uid: if claim.uid == 0 { self.anon_uid } else { claim.uid },
                    gid: group(claim.gid),
                    gids: claim.gids.iter().copied().map(group).collect(),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(squash: Squash) -> ExportOptions {
        ExportOptions { squash, anon_uid: 65534, anon_gid: 65533, ..ExportOptions::default() }
    }

    #[test]
    fn root_is_squashed_part_by_part() {
        let claim = Claim { uid: 0, gid: 5, gids: &[0, 7] };
        let squashed = options(Squash::Root).identity(Some(claim));
        assert_eq!(squashed, Squashed { uid: 65534, gid: 5, gids: vec![65533, 7] });
        let claim = Claim { uid: 1000, gid: 0, gids: &[] };
        assert_eq!(
            options(Squash::Root).identity(Some(claim)),
            Squashed { uid: 1000, gid: 65533, gids: vec![] }
        );
    }

    #[test]
    fn all_squash_and_auth_none_are_anonymous() {
        let nobody = Squashed { uid: 65534, gid: 65533, gids: vec![] };
        let claim = Claim { uid: 1000, gid: 1000, gids: &[4, 24] };
        assert_eq!(options(Squash::All).identity(Some(claim)), nobody);
        for squash in [Squash::None, Squash::Root, Squash::All] {
            assert_eq!(options(squash).identity(None), nobody);
        }
    }

    #[test]
    fn no_root_squash_keeps_everything() {
        let claim = Claim { uid: 0, gid: 0, gids: &[0, 1] };
        assert_eq!(
            options(Squash::None).identity(Some(claim)),
            Squashed { uid: 0, gid: 0, gids: vec![0, 1] }
        );
    }
}
