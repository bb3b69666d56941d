//! Conversion between NFSv4's wire types and the client's types.

use io::Stability;
use proto::nfs4::attributes as number;
use proto::nfs4::{
    ACL_SUPPORT_ALLOW, Bitmap4, Fattr4, Fsid4, NfsFh4, NfsFtype4, Nfsstat4, Nfstime4, OPAQUE_LIMIT, Settime4,
    Specdata4, StableHow4,
};
use xdr::{Decoder, Encoder, Opaque};

use super::aces::{self, AclAttribute};
use super::owners::{self, OwnerKind};
use crate::error::{Status, UnexpectedStatus};
use crate::types::{
    Attributes, FileKind, FsInfo, FsStat, PathConf, ReplyAcls, SetAttributes, SetTime, Timestamp,
};
use acl::{Ace, NoCounterpart};

/// An owner or a group as a string.
type Owner<'a> = Opaque<'a, OPAQUE_LIMIT>;

/// The attributes of [`Attributes`].
pub(super) const FILE: Bitmap4 = Bitmap4::of(&[
    number::TYPE,
    number::CHANGE,
    number::SIZE,
    number::FSID,
    number::FILEID,
    number::MODE,
    number::NUMLINKS,
    number::OWNER,
    number::OWNER_GROUP,
    number::RAWDEV,
    number::SPACE_USED,
    number::TIME_ACCESS,
    number::TIME_METADATA,
    number::TIME_MODIFY,
]);

/// As [`FILE`], for a file that is found or made.
pub(super) const FOUND: Bitmap4 = {
    let mut all = FILE;
    all.insert(number::TIME_CREATE);
    all
};

/// As [`FOUND`], for the entries of a directory.
pub(super) const ENTRY: Bitmap4 = {
    let mut all = FOUND;
    all.insert(number::RDATTR_ERROR);
    all.insert(number::FILEHANDLE);
    all
};

/// As [`ENTRY`], with the access control list, and whether the filesystem has such lists.
pub(super) const ENTRY_AND_ACL: Bitmap4 = {
    let mut all = ENTRY;
    all.insert(number::ACL);
    all.insert(number::ACLSUPPORT);
    all
};

/// The attributes of a directory's entry that is listed by name only.
pub(super) const ENTRY_NUMBER: Bitmap4 = Bitmap4::of(&[number::RDATTR_ERROR, number::FILEID]);

/// The attributes of [`FsStat`].
pub(super) const SPACE: Bitmap4 = Bitmap4::of(&[
    number::FILES_AVAIL,
    number::FILES_FREE,
    number::FILES_TOTAL,
    number::SPACE_AVAIL,
    number::SPACE_FREE,
    number::SPACE_TOTAL,
]);

/// The attributes of [`FsInfo`], and the lease.
pub(super) const LIMITS: Bitmap4 = Bitmap4::of(&[
    number::SUPPORTED_ATTRS,
    number::LINK_SUPPORT,
    number::SYMLINK_SUPPORT,
    number::LEASE_TIME,
    number::CANSETTIME,
    number::HOMOGENEOUS,
    number::MAXFILESIZE,
    number::MAXREAD,
    number::MAXWRITE,
    number::TIME_DELTA,
    number::SUPPATTR_EXCLCREAT,
]);

/// The attributes of [`PathConf`].
pub(super) const NAMES: Bitmap4 = Bitmap4::of(&[
    number::CASE_INSENSITIVE,
    number::CASE_PRESERVING,
    number::CHOWN_RESTRICTED,
    number::MAXLINK,
    number::MAXNAME,
    number::NO_TRUNC,
]);

/// The access control list.
pub(super) const ACL: Bitmap4 = Bitmap4::of(&[number::ACL]);

/// The access control list, whether the filesystem has such lists, and the attributes that change with it.
pub(super) const FILE_AND_ACL: Bitmap4 = {
    let mut all = FILE;
    all.insert(number::ACL);
    all.insert(number::ACLSUPPORT);
    all
};

/// When the file was made.
pub(super) const BIRTH: Bitmap4 = Bitmap4::of(&[number::TIME_CREATE]);

/// The attributes in a reply; those that the server didn't send have default values.
#[derive(Debug, Default)]
pub(super) struct ReplyAttributes<'a> {
    /// Which they are.
    mask: Bitmap4,
    file: Attributes,
    /// The file's handle.
    pub(super) handle: Option<&'a [u8]>,
    /// Why an entry of a directory has no attributes.
    pub(super) error: Option<Nfsstat4>,
    /// When the file was made.
    pub(super) birth: Option<Timestamp>,
    /// Seconds.
    pub(super) lease: Option<u32>,
    /// The attributes that the server has, and those that an exclusive create can set.
    pub(super) supported: Bitmap4,
    pub(super) settable_exclusively: Bitmap4,
    /// The access control list.
    pub(super) acl: Option<Result<Vec<Ace>, NoCounterpart>>,
    /// Whether the filesystem has such lists (RFC 8881 section 6.2.1.2).
    acl_support: Option<u32>,
    stat: FsStat,
    info: FsInfo,
    names: PathConf,
}

impl<'a> ReplyAttributes<'a> {
    /// Decodes attributes.
    ///
    /// # Errors
    /// Values that don't fit their types, and attributes that this client doesn't request.
    pub(super) fn decode(from: &Fattr4<'a>) -> Result<Self, xdr::Error> {
        let mut to = Self { mask: from.attrmask, ..Self::default() };
        let mut values = Decoder::new(from.attr_vals.0);
        for attribute in from.attrmask.iter() {
            to.take(attribute, &mut values)?;
        }
        Ok(to)
    }

    fn take(&mut self, attribute: u32, values: &mut Decoder<'a>) -> Result<(), xdr::Error> {
        let (file, info, names, stat) = (&mut self.file, &mut self.info, &mut self.names, &mut self.stat);
        match attribute {
            number::SUPPORTED_ATTRS => self.supported = values.get()?,
            number::SUPPATTR_EXCLCREAT => self.settable_exclusively = values.get()?,
            number::TYPE => file.kind = kind(values.get()?),
            number::CHANGE => file.change = values.u64()?,
            number::SIZE => file.size = values.u64()?,
            number::LINK_SUPPORT => info.properties |= u32::from(values.bool()?),
            number::SYMLINK_SUPPORT => info.properties |= u32::from(values.bool()?) << 1,
            number::FSID => file.fsid = fsid(values.get()?),
            number::LEASE_TIME => self.lease = Some(values.u32()?),
            number::RDATTR_ERROR => self.error = Some(values.get()?),
            number::ACL => self.acl = Some(aces::entries(&values.get::<AclAttribute<'_>>()?)),
            number::ACLSUPPORT => self.acl_support = Some(values.u32()?),
            number::CANSETTIME => info.properties |= u32::from(values.bool()?) << 4,
            number::CASE_INSENSITIVE => names.case_insensitive = values.bool()?,
            number::CASE_PRESERVING => names.case_preserving = values.bool()?,
            number::CHOWN_RESTRICTED => names.chown_restricted = values.bool()?,
            number::FILEHANDLE => self.handle = Some(values.get::<NfsFh4<'_>>()?.0),
            number::FILEID => file.fileid = values.u64()?,
            number::FILES_AVAIL => stat.available_files = values.u64()?,
            number::FILES_FREE => stat.free_files = values.u64()?,
            number::FILES_TOTAL => stat.total_files = values.u64()?,
            number::HOMOGENEOUS => info.properties |= u32::from(values.bool()?) << 3,
            number::MAXFILESIZE => info.file_size_max = values.u64()?,
            number::MAXLINK => names.link_max = values.u32()?,
            number::MAXNAME => names.name_max = values.u32()?,
            number::MAXREAD => info.read_max = saturated(values.u64()?),
            number::MAXWRITE => info.write_max = saturated(values.u64()?),
            number::MODE => file.mode = values.u32()? & 0o7777,
            number::NO_TRUNC => names.no_truncation = values.bool()?,
            number::NUMLINKS => file.nlink = values.u32()?,
            number::OWNER => file.uid = owners::number(OwnerKind::User, values.get::<Owner<'_>>()?.0),
            number::OWNER_GROUP => file.gid = owners::number(OwnerKind::Group, values.get::<Owner<'_>>()?.0),
            number::RAWDEV => {
                let device: Specdata4 = values.get()?;
                file.rdev = (device.specdata1, device.specdata2);
            }
            number::SPACE_AVAIL => stat.available_bytes = values.u64()?,
            number::SPACE_FREE => stat.free_bytes = values.u64()?,
            number::SPACE_TOTAL => stat.total_bytes = values.u64()?,
            number::SPACE_USED => file.used = values.u64()?,
            number::TIME_ACCESS => file.atime = timestamp(values.get()?),
            number::TIME_CREATE => self.birth = Some(timestamp(values.get()?)),
            number::TIME_DELTA => info.time_delta = timestamp(values.get()?),
            number::TIME_METADATA => file.ctime = timestamp(values.get()?),
            number::TIME_MODIFY => file.mtime = timestamp(values.get()?),
            value => return Err(xdr::Error::Discriminant { of: "fattr4", value }),
        }
        Ok(())
    }

    /// The file's attributes, if the server sent those that every file has.
    pub(super) fn file(&self) -> Option<Attributes> {
        let is_file = self.mask.contains(number::TYPE) && self.mask.contains(number::CHANGE);
        let mut file = self.file;
        // Servers without hard links needn't have the attribute.
        file.nlink = file.nlink.max(u32::from(!self.mask.contains(number::NUMLINKS)));
        is_file.then_some(file)
    }

    /// The access control lists of a file or a directory in the form of POSIX ones. The reply must be one to
    /// a request for `acl`, which a server without lists leaves out.
    pub(super) fn acls(&self, directory: bool) -> ReplyAcls {
        let has_lists = self.acl_support.is_none_or(|support| support & ACL_SUPPORT_ALLOW != 0);
        match self.acl.as_ref().filter(|_| has_lists) {
            None => ReplyAcls::NotSupported,
            Some(acl) => aces::posix(acl, directory).map_or(ReplyAcls::NoPosix, ReplyAcls::Posix),
        }
    }

    /// The file's number.
    pub(super) const fn fileid(&self) -> u64 {
        self.file.fileid
    }

    pub(super) const fn fs_stat(&self) -> FsStat {
        self.stat
    }

    pub(super) const fn fs_info(&self) -> FsInfo {
        self.info
    }

    pub(super) const fn path_conf(&self) -> PathConf {
        self.names
    }
}

/// A size that may be more than a request can have.
fn saturated(size: u64) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

const fn kind(from: NfsFtype4) -> FileKind {
    match from {
        NfsFtype4::Reg | NfsFtype4::Namedattr => FileKind::Regular,
        NfsFtype4::Dir | NfsFtype4::Attrdir => FileKind::Directory,
        NfsFtype4::Blk => FileKind::Block,
        NfsFtype4::Chr => FileKind::Character,
        NfsFtype4::Lnk => FileKind::Symlink,
        NfsFtype4::Sock => FileKind::Socket,
        NfsFtype4::Fifo => FileKind::Fifo,
    }
}

/// A filesystem's id in 64 bits. Our server's has no second half, and so is the same as over NFSv3.
const fn fsid(from: Fsid4) -> u64 {
    from.major ^ from.minor.rotate_left(32)
}

fn timestamp(from: Nfstime4) -> Timestamp {
    // A server may send any 32 bits, and calculations with a fraction of more than a second would panic.
    Timestamp { seconds: from.seconds, nanoseconds: from.nseconds.min(999_999_999) }
}

/// Encodes attributes to set.
pub(super) struct Settable {
    mask: Bitmap4,
    values: Vec<u8>,
}

impl Settable {
    /// For a new file: its mode, and the umask that the server clears in it unless the file inherits an
    /// access control list.
    pub(super) fn with_umask(set: &SetAttributes, umask: u32) -> Self {
        let mut new = Self::new(&SetAttributes { mode: None, ..*set });
        if let Some(mode) = set.mode {
            // The last attribute.
            new.mask.insert(number::MODE_UMASK);
            [mode & 0o7777, umask].iter().for_each(|word| new.values.extend(word.to_be_bytes()));
        }
        new
    }

    pub(super) fn new(set: &SetAttributes) -> Self {
        let mut mask = Bitmap4::EMPTY;
        let mut to = Encoder::new();
        // In the order of the attributes' numbers.
        if let Some(size) = set.size {
            mask.insert(number::SIZE);
            to.u64(size);
        }
        if let Some(mode) = set.mode {
            mask.insert(number::MODE);
            to.u32(mode & 0o7777);
        }
        for (attribute, id) in [(number::OWNER, set.uid), (number::OWNER_GROUP, set.gid)] {
            if let Some(id) = id {
                mask.insert(attribute);
                to.opaque(id.to_string().as_bytes());
            }
        }
        for (attribute, time) in [(number::TIME_ACCESS_SET, set.atime), (number::TIME_MODIFY_SET, set.mtime)]
        {
            if let Some(time) = time {
                mask.insert(attribute);
                to.put(&settime(time));
            }
        }
        Self { mask, values: to.into_vec() }
    }

    pub(super) fn fattr(&self) -> Fattr4<'_> {
        Fattr4 { attrmask: self.mask, attr_vals: Opaque(&self.values) }
    }
}

const fn settime(time: SetTime) -> Settime4 {
    match time {
        SetTime::Now => Settime4::SetToServerTime,
        SetTime::To(time) => Settime4::SetToClientTime(nfstime(time)),
    }
}

/// A time on the wire.
pub(super) const fn nfstime(time: Timestamp) -> Nfstime4 {
    Nfstime4 { seconds: time.seconds, nseconds: time.nanoseconds }
}

pub(super) const fn stable_how(stability: Stability) -> StableHow4 {
    match stability {
        Stability::Unstable => StableHow4::Unstable,
        Stability::DataSync => StableHow4::DataSync,
        Stability::FileSync => StableHow4::FileSync,
    }
}

pub(super) const fn stability(stable: StableHow4) -> Stability {
    match stable {
        StableHow4::Unstable => Stability::Unstable,
        StableHow4::DataSync => Stability::DataSync,
        StableHow4::FileSync => Stability::FileSync,
    }
}

/// The client's status for a server's; `NFS4_OK` is no error, and would become [`Status::ServerFault`].
pub(super) const fn status(from: Nfsstat4) -> Status {
    use Nfsstat4 as N;
    match from {
        N::Perm | N::WrongCred => Status::NotPermitted,
        N::Noent => Status::NoEntry,
        N::Nxio => Status::NoDevice,
        N::Access | N::Openmode | N::Wrongsec => Status::Access,
        N::ShareDenied => Status::ShareDenied,
        N::Exist => Status::Exists,
        N::Xdev => Status::CrossDevice,
        N::Notdir => Status::NotDirectory,
        N::Isdir => Status::IsDirectory,
        N::Symlink => Status::Symlink,
        N::Inval | N::Badowner | N::Badname | N::Badchar | N::WrongType | N::BadRange | N::LockRange => {
            Status::Invalid
        }
        N::Fbig => Status::TooBig,
        N::Nospc => Status::NoSpace,
        N::Rofs => Status::ReadOnly,
        N::Mlink => Status::TooManyLinks,
        N::Nametoolong => Status::NameTooLong,
        N::Notempty => Status::NotEmpty,
        N::Dquot => Status::Quota,
        N::Stale | N::Fhexpired => Status::Stale,
        N::Badhandle => Status::BadHandle,
        N::NotSame | N::Same => Status::NotSync,
        N::BadCookie => Status::BadCookie,
        N::Notsupp
        | N::Attrnotsupp
        | N::OpIllegal
        | N::LockNotsupp
        | N::UnionNotsupp
        | N::OffloadDenied
        | N::OffloadNoReqs
        | N::MinorVersMismatch => Status::NotSupported,
        N::Toosmall => Status::TooSmall,
        N::Badtype => Status::BadType,
        N::Moved => Status::Moved,
        N::Locked => Status::Locked,
        N::FileOpen => Status::Busy,
        N::Noxattr => Status::NoAttribute,
        N::Xattr2big => Status::AttributeTooBig,
        // Another request of the same kind succeeds later.
        N::Delay | N::Grace | N::Resource | N::Layouttrylater => Status::TryLater,
        N::Expired
        | N::StaleStateid
        | N::OldStateid
        | N::BadStateid
        | N::AdminRevoked
        | N::DelegRevoked
        | N::Io => Status::Io,
        N::Serverfault | N::Ok => Status::ServerFault,
        other => Status::Unexpected(UnexpectedStatus(other)),
    }
}
