//! Access control lists on the wire: the entries' types, and the names in them. The crate `acl` translates
//! them from and to POSIX ones, which Linux keeps and checks.

use acl::{Ace, Who};
use proto::nfs4::{ACE_ALLOWED, ACE_DENIED, ACE_IDENTIFIER_GROUP, Acl4, Nfsace4, Nfsstat4};
use xdr::{Decoder, Encoder};

use crate::programs::nfs4::status::Result;
use crate::service::OwnerKind;
use crate::service::Owners;

const SPECIAL: [(&[u8], Who); 3] =
    [(b"OWNER@", Who::Owner), (b"GROUP@", Who::Group), (b"EVERYONE@", Who::Everyone)];

/// Appends a list.
pub(crate) fn put(aces: &[Ace], owners: &Owners, to: &mut Encoder) {
    to.length(aces.len());
    for ace in aces {
        let named_group = matches!(ace.who, Who::NamedGroup(_));
        to.u32(if ace.allows { ACE_ALLOWED } else { ACE_DENIED });
        to.u32(ace.flags | if named_group { ACE_IDENTIFIER_GROUP } else { 0 });
        to.u32(ace.rights);
        match ace.who {
            Who::User(uid) => owners.put(OwnerKind::User, uid, to),
            Who::NamedGroup(gid) => owners.put(OwnerKind::Group, gid, to),
            special => {
                let name = SPECIAL.iter().find(|(_, who)| *who == special).map_or(&b""[..], |(name, _)| name);
                to.opaque(name);
            }
        }
    }
}

/// Decodes a list.
///
/// # Errors
/// `Badxdr`, `Attrnotsupp` for an entry that neither allows nor denies, `Badowner` for an unknown name,
/// `Delay` while a name is looked up.
pub(crate) fn decode(from: &mut Decoder<'_>, owners: &Owners) -> Result<Vec<Ace>> {
    let list: Acl4<'_> = from.get().map_err(|_| Nfsstat4::Badxdr)?;
    list.0.iter().map(|ace| entry(ace, owners)).collect()
}

fn entry(ace: &Nfsace4<'_>, owners: &Owners) -> Result<Ace> {
    let allows = match ace.kind {
        ACE_ALLOWED => true,
        ACE_DENIED => false,
        _ => return Err(Nfsstat4::Attrnotsupp),
    };
    let special = SPECIAL.iter().find(|(name, _)| *name == ace.who.0).map(|(_, who)| *who);
    let who = match special {
        Some(who) => who,
        None if ace.flag & ACE_IDENTIFIER_GROUP != 0 => {
            Who::NamedGroup(owners.parse(OwnerKind::Group, ace.who.0)?)
        }
        None => Who::User(owners.parse(OwnerKind::User, ace.who.0)?),
    };
    Ok(Ace { allows, flags: ace.flag & !ACE_IDENTIFIER_GROUP, rights: ace.access_mask, who })
}
