//! NFSv4 access control lists (RFC 8881 section 6.2) and POSIX ones.
//!
//! Linux's servers keep POSIX lists, and say in NFSv4's what those mean. A list that means the same as a
//! POSIX one is shown as such (crate `acl`), any other isn't. A new POSIX list is sent as the NFSv4 list that
//! means the same, from which Samehost's server makes the POSIX list again.

use acl::{Ace, NoCounterpart, Who, same_as_nfs4, to_nfs4};
use proto::nfs4::{ACE_ALLOWED, ACE_DENIED, ACE_IDENTIFIER_GROUP, Acl4, MAX_ACES, MAX_ATTRIBUTES, Nfsace4};
use xdr::Encoder;

use super::owners::{OwnerKind, known_number};
use crate::types::PosixAcls;

/// The attribute's value.
pub(super) type AclAttribute<'a> = Acl4<'a>;

const SPECIAL: [(&[u8], Who); 3] =
    [(b"OWNER@", Who::Owner), (b"GROUP@", Who::Group), (b"EVERYONE@", Who::Everyone)];

/// The entries of a list from the server.
///
/// # Errors
/// [`NoCounterpart`] for one that neither allows nor denies, and for a name that isn't known here.
pub(super) fn entries(acl: &Acl4<'_>) -> Result<Vec<Ace>, NoCounterpart> {
    acl.0.iter().map(entry).collect()
}

fn entry(ace: &Nfsace4<'_>) -> Result<Ace, NoCounterpart> {
    let allows = match ace.kind {
        ACE_ALLOWED => true,
        ACE_DENIED => false,
        _ => return Err(NoCounterpart),
    };
    let special = SPECIAL.iter().find(|(name, _)| *name == ace.who.0).map(|(_, who)| *who);
    let who = match special {
        Some(who) => Some(who),
        None if ace.flag & ACE_IDENTIFIER_GROUP != 0 => {
            known_number(OwnerKind::Group, ace.who.0).map(Who::NamedGroup)
        }
        None => known_number(OwnerKind::User, ace.who.0).map(Who::User),
    };
    let who = who.ok_or(NoCounterpart)?;
    Ok(Ace { allows, flags: ace.flag & !ACE_IDENTIFIER_GROUP, rights: ace.access_mask, who })
}

/// The POSIX lists that mean the same.
///
/// # Errors
/// [`NoCounterpart`].
pub(super) fn posix(
    aces: &Result<Vec<Ace>, NoCounterpart>,
    directory: bool,
) -> Result<PosixAcls, NoCounterpart> {
    same_as_nfs4(aces.as_ref().map_err(|error| *error)?, directory)
}

/// The value that means the same as POSIX lists; `None` if it is too long to be sent.
pub(super) fn encoded(acls: &PosixAcls, directory: bool) -> Option<Vec<u8>> {
    let aces = to_nfs4(acls, directory);
    if aces.len() > MAX_ACES {
        return None;
    }
    let mut to = Encoder::new();
    to.length(aces.len());
    for ace in aces {
        let named_group = matches!(ace.who, Who::NamedGroup(_));
        to.u32(if ace.allows { ACE_ALLOWED } else { ACE_DENIED });
        to.u32(ace.flags | if named_group { ACE_IDENTIFIER_GROUP } else { 0 });
        to.u32(ace.rights);
        match ace.who {
            Who::User(id) | Who::NamedGroup(id) => to.opaque(id.to_string().as_bytes()),
            special => {
                let name = SPECIAL.iter().find(|(_, who)| *who == special).map_or(&b""[..], |(name, _)| name);
                to.opaque(name);
            }
        }
    }
    let value = to.into_vec();
    (value.len() <= MAX_ATTRIBUTES).then_some(value)
}

#[cfg(test)]
mod tests {
    use xdr::{Decoder, Opaque};

    use super::*;
    use crate::types::PosixAcl;

    #[test]
    fn posix_lists_survive_the_round_trip() {
        let access = PosixAcl {
            owner: 7,
            users: vec![(0, 5), (1000, 6), (65_534, 0)],
            group: 4,
            groups: vec![(4_294_967_294, 1)],
            mask: Some(7),
            other: 1,
        };
        for (default, directory) in [(None, false), (None, true), (Some(access.clone()), true)] {
            let acls = PosixAcls { access: access.clone(), default };
            let value = encoded(&acls, directory).unwrap();
            let list: Acl4<'_> = Decoder::new(&value).get().unwrap();
            assert_eq!(posix(&entries(&list), directory), Ok(acls));
        }
    }

    #[test]
    fn unknown_names_and_audits_have_no_counterpart() {
        let read = |kind, who| Nfsace4 { kind, flag: 0, access_mask: 1, who: Opaque(who) };
        assert!(entry(&read(ACE_ALLOWED, b"0")).is_ok());
        assert!(entry(&read(ACE_ALLOWED, b"nobody-has-this-name@example.org")).is_err());
        assert!(entry(&read(ACE_ALLOWED, b"AUTHENTICATED@")).is_err());
        assert!(entry(&read(2, b"OWNER@")).is_err());
    }

    #[test]
    fn a_list_that_is_too_long_is_not_sent() {
        let users = (0..8_000).map(|uid| (4_000_000_000 + uid, 4)).collect();
        let access = PosixAcl { users, mask: Some(4), ..PosixAcl::of_mode(0o640) };
        assert_eq!(encoded(&PosixAcls { access, default: None }, false), None);
    }
}
