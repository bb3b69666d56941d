//! Attributes that a client sets, decoded (RFC 8881 section 5.5; RFC 8275: mode and umask).

use acl::Ace;
use proto::nfs4::attributes as number;
use proto::nfs4::{Bitmap4, Fattr4, MinorVersion, Nfsstat4, Nfstime4, OPAQUE_LIMIT, Settime4};
use store::{Node, PosixAcls, SetAttributes, SetTime, Timestamp, UserContext, Wcc};
use xdr::{Decoder, Opaque};

use super::supported;
use crate::programs::nfs4::acl as wire;
use crate::programs::nfs4::status::{self, Result};
use crate::service::OwnerKind;
use crate::service::Owners;

/// The attributes that can be set.
const SETTABLE: Bitmap4 = Bitmap4::of(&[
    number::SIZE,
    number::ACL,
    number::MODE,
    number::OWNER,
    number::OWNER_GROUP,
    number::TIME_ACCESS_SET,
    number::TIME_MODIFY_SET,
    number::MODE_UMASK,
]);

/// An owner or a group as a string.
type Owner<'a> = Opaque<'a, OPAQUE_LIMIT>;

/// Attributes that a client sets.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settable {
    pub set: SetAttributes,
    /// Cleared in a new file's mode, unless it inherits an access control list (RFC 8275).
    umask: u32,
    acl: Option<Vec<Ace>>,
    /// Which they are, for the result.
    pub mask: Bitmap4,
}

impl Settable {
    /// The access control lists for a file or a directory on the filesystem of `near`, if the client sets
    /// any.
    ///
    /// # Errors
    /// `Attrnotsupp` if the filesystem keeps no such lists.
    pub fn acls(
        &self,
        user_context: &UserContext<'_>,
        near: &Node,
        directory: bool,
    ) -> Result<Option<PosixAcls>> {
        let Some(aces) = &self.acl else { return Ok(None) };
        if !user_context.supports_acls(near).map_err(status::of_store)? {
            return Err(Nfsstat4::Attrnotsupp);
        }
        acl::from_nfs4(aces, directory).map(Some).map_err(|_| Nfsstat4::Attrnotsupp)
    }

    /// The attributes with which a new entry of `dir` is created. An entry that gets an access control list
    /// is created without permissions, so that no user has more access before the list is set.
    ///
    /// # Errors
    /// The store's.
    pub fn for_new(&self, user_context: &UserContext<'_>, dir: &Node) -> Result<SetAttributes> {
        let mut set = self.set;
        if self.acl.is_some() {
            set.mode = Some(set.mode.unwrap_or(0) & 0o7000);
        } else if self.umask != 0 && !user_context.has_default_acl(dir).map_err(status::of_store)? {
            set.mode = set.mode.map(|mode| mode & !self.umask);
        }
        Ok(set)
    }
}

/// Sets a file's access control lists.
pub(crate) fn set_acls(user_context: &UserContext<'_>, node: &Node, acls: Option<&PosixAcls>) -> Result<()> {
    let Some(acls) = acls else { return Ok(()) };
    let done = user_context.set_acls(node, acls, &mut Wcc::default());
    done.map_err(|error| match error {
        store::Error::NotSupported => Nfsstat4::Attrnotsupp,
        other => status::of_store(other),
    })
}

/// Decodes a `fattr4`.
///
/// # Errors
/// `Attrnotsupp` for an attribute that the server doesn't have, `Inval` for one that can't be set, `Badxdr`,
/// `Badowner`, and `Delay` while an owner's name is looked up.
pub(crate) fn decode(from: &Fattr4<'_>, minor: MinorVersion, owners: &Owners) -> Result<Settable> {
    let mask = from.attrmask;
    if !mask.without(&supported(minor)).is_empty() {
        return Err(Nfsstat4::Attrnotsupp);
    }
    if !mask.without(&SETTABLE).is_empty()
        || (mask.contains(number::MODE) && mask.contains(number::MODE_UMASK))
    {
        return Err(Nfsstat4::Inval);
    }
    let mut settable = Settable { mask, ..Settable::default() };
    let set = &mut settable.set;
    let mut values = Decoder::new(from.attr_vals.0);
    for attribute in mask.iter() {
        match attribute {
            number::SIZE => set.size = Some(get(&mut values)?),
            number::MODE => set.mode = Some(mode(get(&mut values)?)?),
            number::ACL => settable.acl = Some(wire::decode(&mut values, owners)?),
            number::OWNER => set.uid = Some(owners.parse(OwnerKind::User, get::<Owner<'_>>(&mut values)?.0)?),
            number::OWNER_GROUP => {
                set.gid = Some(owners.parse(OwnerKind::Group, get::<Owner<'_>>(&mut values)?.0)?)
            }
            number::TIME_ACCESS_SET => set.atime = Some(time(get(&mut values)?)?),
            number::TIME_MODIFY_SET => set.mtime = Some(time(get(&mut values)?)?),
            number::MODE_UMASK => {
                let (bits, umask): (u32, u32) = (get(&mut values)?, get(&mut values)?);
                set.mode = Some(mode(bits)?);
                settable.umask = umask;
            }
            _ => return Err(Nfsstat4::Inval),
        }
    }
    values.finish().map_err(|_| Nfsstat4::Badxdr)?;
    Ok(settable)
}

fn get<'a, T: xdr::Decode<'a>>(from: &mut Decoder<'a>) -> Result<T> {
    from.get().map_err(|_| Nfsstat4::Badxdr)
}

/// A mode from the wire: twelve bits.
const fn mode(mode: u32) -> Result<u32> {
    if mode & !0o7777 == 0 { Ok(mode) } else { Err(Nfsstat4::Inval) }
}

fn time(from: Settime4) -> Result<SetTime> {
    match from {
        Settime4::SetToServerTime => Ok(SetTime::Now),
        Settime4::SetToClientTime(Nfstime4 { nseconds: 1_000_000_000.., .. }) => Err(Nfsstat4::Inval),
        Settime4::SetToClientTime(Nfstime4 { seconds, nseconds }) => {
            Ok(SetTime::To(Timestamp { seconds, nanoseconds: nseconds }))
        }
    }
}
