//! An object's attributes on the wire: those that were requested and that the object has, in the order of
//! their numbers.

mod fs_facts;
mod gather;
mod locations;
pub(super) mod settable;

use acl::Ace;
use proto::nfs4::attributes as number;
use proto::nfs4::{
    ACL_SUPPORT_ALLOW, ACL_SUPPORT_DENY, Bitmap4, Fsid4, MinorVersion, NfsFtype4, Nfstime4, OpenArguments4,
    Specdata4,
};
use store::{Attributes, FileKind, Timestamp};
use xdr::Encoder;

use fs_facts::FsFacts;
use locations::{ABSENT, Locations};

use super::acl as wire;
use super::namespace::PseudoId;
use super::object::Handle;
use crate::service::OwnerKind;
use crate::service::Owners;
use crate::service::limits::MAX_TRANSFER;

/// The attributes of every minor version that the server has.
const SUPPORTED: Bitmap4 = Bitmap4::of(&[
    number::SUPPORTED_ATTRS,
    number::TYPE,
    number::FH_EXPIRE_TYPE,
    number::CHANGE,
    number::SIZE,
    number::LINK_SUPPORT,
    number::SYMLINK_SUPPORT,
    number::NAMED_ATTR,
    number::FSID,
    number::UNIQUE_HANDLES,
    number::LEASE_TIME,
    number::RDATTR_ERROR,
    number::ACL,
    number::ACLSUPPORT,
    number::CANSETTIME,
    number::CASE_INSENSITIVE,
    number::CASE_PRESERVING,
    number::CHOWN_RESTRICTED,
    number::FILEHANDLE,
    number::FILEID,
    number::FILES_AVAIL,
    number::FILES_FREE,
    number::FILES_TOTAL,
    number::FS_LOCATIONS,
    number::HOMOGENEOUS,
    number::MAXFILESIZE,
    number::MAXLINK,
    number::MAXNAME,
    number::MAXREAD,
    number::MAXWRITE,
    number::MODE,
    number::NO_TRUNC,
    number::NUMLINKS,
    number::OWNER,
    number::OWNER_GROUP,
    number::QUOTA_AVAIL_HARD,
    number::QUOTA_AVAIL_SOFT,
    number::QUOTA_USED,
    number::RAWDEV,
    number::SPACE_AVAIL,
    number::SPACE_FREE,
    number::SPACE_TOTAL,
    number::SPACE_USED,
    number::TIME_ACCESS,
    number::TIME_ACCESS_SET,
    number::TIME_CREATE,
    number::TIME_DELTA,
    number::TIME_METADATA,
    number::TIME_MODIFY,
    number::TIME_MODIFY_SET,
    number::MOUNTED_ON_FILEID,
]);

/// Attributes that can only be set.
pub(super) const WRITE_ONLY: Bitmap4 =
    Bitmap4::of(&[number::TIME_ACCESS_SET, number::TIME_MODIFY_SET, number::MODE_UMASK]);

/// Attributes that EXCLUSIVE4_1 can set: not the times, which hold the verifier.
pub(super) const EXCLUSIVE: Bitmap4 = Bitmap4::of(&[
    number::SIZE,
    number::ACL,
    number::MODE,
    number::OWNER,
    number::OWNER_GROUP,
    number::MODE_UMASK,
]);

/// The arguments of OPEN that the server understands (RFC 9754 section 3). Wants: a read delegation, a write
/// delegation, any delegation, none, cancel.
const OPEN_ARGUMENTS: OpenArguments4 = OpenArguments4 {
    share_access: Bitmap4::of(&[1, 2, 3]),
    share_deny: Bitmap4::of(&[0, 1, 2, 3]),
    share_access_want: Bitmap4::of(&[1, 2, 3, 4, 5]),
    open_claim: Bitmap4::of(&[0, 1, 2, 4, 5]),
    create_mode: Bitmap4::of(&[0, 1, 2, 3]),
};

/// The attributes of a minor version that the server has; an object may lack some.
pub(super) fn supported(minor: MinorVersion) -> Bitmap4 {
    let mut all = SUPPORTED;
    if minor >= MinorVersion::V1 {
        all.insert(number::SUPPATTR_EXCLCREAT);
    }
    if minor >= MinorVersion::V2 {
        all.insert(number::MODE_UMASK);
        all.insert(number::XATTR_SUPPORT);
        all.insert(number::CLONE_BLKSIZE);
        all.insert(number::CHANGE_ATTR_TYPE);
    }
    if minor >= MinorVersion::V1 {
        all.insert(number::OPEN_ARGUMENTS);
    }
    all
}

/// `NFS4_CHANGE_TYPE_IS_TIME_METADATA`: the change attribute is made from ctime.
const CHANGE_IS_TIME_METADATA: u32 = 3;

/// An object's attributes, as far as they were requested.
#[derive(Debug)]
pub(super) struct ObjectAttributes<'a> {
    pub minor: MinorVersion,
    pub attributes: Attributes,
    pub handle: Handle,
    pub fsid: Fsid4,
    /// The inode number of the directory that the filesystem is mounted on, if this is its root.
    pub mounted_on: u64,
    pub facts: FsFacts,
    /// Empty unless it was requested.
    pub acl: Vec<Ace>,
    pub owners: &'a Owners,
    /// In seconds.
    pub lease: u32,
    /// Empty unless they were requested.
    pub locations: Locations,
    /// The filesystem is on other servers only.
    pub is_absent: bool,
}

/// The pseudo-filesystem.
pub(super) const PSEUDO_FSID: Fsid4 = Fsid4 { major: 0, minor: 0 };

/// The attributes of a directory of the pseudo-filesystem. Its times are the change attribute, in nanoseconds
/// since 1970.
pub(super) fn of_pseudo(id: PseudoId, children: usize, change: u64) -> Attributes {
    let since =
        Timestamp { seconds: (change / 1_000_000_000) as i64, nanoseconds: (change % 1_000_000_000) as u32 };
    Attributes {
        kind: FileKind::Directory,
        mode: 0o555,
        nlink: u32::try_from(children).map_or(2, |children| children.saturating_add(2)),
        uid: 0,
        gid: 0,
        size: 4096,
        used: 0,
        rdev: (0, 0),
        fsid: 0,
        fileid: id.fileid(),
        atime: since,
        mtime: since,
        ctime: since,
        change,
    }
}

impl ObjectAttributes<'_> {
    /// Those of the `requested` attributes that the object has.
    pub fn present(&self, requested: &Bitmap4) -> Bitmap4 {
        requested.and(&self.supported()).without(&WRITE_ONLY)
    }

    /// Appends a `fattr4` with those.
    pub fn put(&self, requested: &Bitmap4, to: &mut Encoder) {
        let present = self.present(requested);
        to.put(&present);
        let length_at = to.position();
        to.u32(0);
        for attribute in present.iter() {
            self.put_one(attribute, to);
        }
        let length = to.position() - length_at - xdr::UNIT;
        to.patch_u32(length_at, length as u32);
    }

    /// The attributes that the object has, or that can be set.
    fn supported(&self) -> Bitmap4 {
        let all = supported(self.minor).without(&self.facts.missing());
        if self.is_absent { all.and(&ABSENT) } else { all }
    }

    fn put_one(&self, attribute: u32, to: &mut Encoder) {
        let (attributes, facts) = (&self.attributes, &self.facts);
        match attribute {
            number::SUPPORTED_ATTRS => to.put(&self.supported()),
            number::TYPE => to.put(&ftype(attributes.kind)),
            // FH4_PERSISTENT.
            number::FH_EXPIRE_TYPE => to.u32(0),
            number::CHANGE => to.u64(attributes.change),
            number::SIZE => to.u64(attributes.size),
            number::LINK_SUPPORT => to.bool(facts.info.links),
            number::SYMLINK_SUPPORT => to.bool(facts.info.symlinks),
            number::NAMED_ATTR => to.bool(false),
            number::FSID => to.put(&self.fsid),
            number::UNIQUE_HANDLES => to.bool(true),
            number::LEASE_TIME => to.u32(self.lease),
            number::RDATTR_ERROR => to.u32(0),
            number::ACL => wire::put(&self.acl, self.owners, to),
            number::ACLSUPPORT => to.u32(if facts.acls { ACL_SUPPORT_ALLOW | ACL_SUPPORT_DENY } else { 0 }),
            number::CANSETTIME => to.bool(facts.info.can_set_time),
            number::CASE_INSENSITIVE => to.bool(facts.limits.case_insensitive),
            number::CASE_PRESERVING => to.bool(facts.limits.case_preserving),
            number::CHOWN_RESTRICTED => to.bool(facts.limits.chown_restricted),
            number::FILEHANDLE => to.opaque(self.handle.as_bytes()),
            number::FILEID => to.u64(attributes.fileid),
            number::FILES_AVAIL => to.u64(facts.space.available_files),
            number::FILES_FREE => to.u64(facts.space.free_files),
            number::FILES_TOTAL => to.u64(facts.space.total_files),
            number::FS_LOCATIONS => self.locations.put(to),
            number::HOMOGENEOUS => to.bool(facts.info.homogeneous),
            number::MAXFILESIZE => to.u64(facts.info.max_file_size),
            number::MAXLINK => to.u32(facts.limits.link_max),
            number::MAXNAME => to.u32(facts.limits.name_max),
            number::MAXREAD | number::MAXWRITE => to.u64(MAX_TRANSFER.into()),
            number::MODE => to.u32(attributes.mode),
            number::NO_TRUNC => to.bool(facts.limits.no_trunc),
            number::NUMLINKS => to.u32(attributes.nlink),
            number::OWNER => self.owners.put(OwnerKind::User, attributes.uid, to),
            number::OWNER_GROUP => self.owners.put(OwnerKind::Group, attributes.gid, to),
            number::QUOTA_AVAIL_HARD => to.u64(facts.room.and_then(|room| room.hard).unwrap_or_default()),
            number::QUOTA_AVAIL_SOFT => to.u64(facts.room.and_then(|room| room.soft).unwrap_or_default()),
            number::QUOTA_USED => to.u64(facts.room.map_or(0, |room| room.used)),
            number::RAWDEV => {
                to.put(&Specdata4 { specdata1: attributes.rdev.0, specdata2: attributes.rdev.1 });
            }
            number::SPACE_AVAIL => to.u64(facts.space.available_bytes),
            number::SPACE_FREE => to.u64(facts.space.free_bytes),
            number::SPACE_TOTAL => to.u64(facts.space.total_bytes),
            number::SPACE_USED => to.u64(attributes.used),
            number::TIME_ACCESS => to.put(&nfstime(attributes.atime)),
            number::TIME_CREATE => to.put(&nfstime(facts.birth.unwrap_or_default())),
            number::TIME_DELTA => to.put(&Nfstime4 {
                seconds: i64::from(facts.info.time_delta / 1_000_000_000),
                nseconds: facts.info.time_delta % 1_000_000_000,
            }),
            number::TIME_METADATA => to.put(&nfstime(attributes.ctime)),
            number::TIME_MODIFY => to.put(&nfstime(attributes.mtime)),
            number::MOUNTED_ON_FILEID => to.u64(self.mounted_on),
            number::XATTR_SUPPORT => to.bool(facts.xattrs),
            number::CLONE_BLKSIZE => to.u32(facts.clone_block),
            number::CHANGE_ATTR_TYPE => to.u32(CHANGE_IS_TIME_METADATA),
            number::SUPPATTR_EXCLCREAT => to.put(&EXCLUSIVE.and(&supported(self.minor))),
            number::OPEN_ARGUMENTS => to.put(&OPEN_ARGUMENTS),
            // A test checks that `supported` has nothing else but `WRITE_ONLY`.
            _ => {}
        }
    }
}

const fn nfstime(time: Timestamp) -> Nfstime4 {
    Nfstime4 { seconds: time.seconds, nseconds: time.nanoseconds }
}

/// A file's type on the wire.
pub(super) const fn ftype(kind: FileKind) -> NfsFtype4 {
    match kind {
        FileKind::Regular => NfsFtype4::Reg,
        FileKind::Directory => NfsFtype4::Dir,
        FileKind::Block => NfsFtype4::Blk,
        FileKind::Character => NfsFtype4::Chr,
        FileKind::Symlink => NfsFtype4::Lnk,
        FileKind::Socket => NfsFtype4::Sock,
        FileKind::Fifo => NfsFtype4::Fifo,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn supported_attributes_have_a_value() {
        for minor in [MinorVersion::V0, MinorVersion::V1, MinorVersion::V2] {
            let known = ObjectAttributes {
                minor,
                attributes: of_pseudo(PseudoId::root(), 0, 0),
                handle: Handle::Pseudo(PseudoId::root().handle()),
                fsid: PSEUDO_FSID,
                mounted_on: 1,
                facts: FsFacts::NONE,
                acl: Vec::new(),
                owners: &Owners::new(None, false),
                lease: 90,
                locations: Locations::default(),
                is_absent: false,
            };
            for attribute in supported(minor).without(&WRITE_ONLY).iter() {
                let mut to = Encoder::new();
                known.put_one(attribute, &mut to);
                assert!(to.position() > 0, "attribute {attribute}");
            }
        }
    }
}
