//! The NFSACL program (100227 version 3): POSIX access control lists beside NFSv3, introduced by Solaris and
//! implemented by the Linux kernel (include/uapi/linux/nfsacl.h, fs/nfs_common/nfsacl.c). There is no RFC.
//!
//! It runs on the NFS port with NFSv3's file handles, statuses and attributes.

use crate::nfs3::{NfsFh3, Outcome, PostOpAttr};
use crate::numbered::numbered;
use xdr::{Array, Decode, Encode};

/// The program's number.
pub const PROGRAM: u32 = 100_227;
/// The version that goes with NFS version 3.
pub const VERSION: u32 = 3;
/// Entries in a list (`NFS_ACL_MAX_ENTRIES`).
pub const MAX_ENTRIES: usize = 1024;

/// The access list (`NFS_ACL`).
pub const NFS_ACL: u32 = 1;
/// The number of its entries (`NFS_ACLCNT`).
pub const NFS_ACLCNT: u32 = 2;
/// The default list, which a directory's new entries inherit (`NFS_DFACL`).
pub const NFS_DFACL: u32 = 4;
/// The number of its entries (`NFS_DFACLCNT`).
pub const NFS_DFACLCNT: u32 = 8;

/// `USER_OBJ`: the owner.
pub const USER_OBJ: u32 = 0x01;
/// `USER`: the user with the entry's id.
pub const USER: u32 = 0x02;
/// `GROUP_OBJ`: the file's group.
pub const GROUP_OBJ: u32 = 0x04;
/// `GROUP`: the group with the entry's id.
pub const GROUP: u32 = 0x08;
/// `CLASS_OBJ`, the mask: the most that all but the owner and `OTHER_OBJ` have.
pub const CLASS_OBJ: u32 = 0x10;
/// `OTHER_OBJ`: all other users.
pub const OTHER_OBJ: u32 = 0x20;
/// `NFS_ACL_DEFAULT`: set in the tags of the default list.
pub const DEFAULT: u32 = 0x1000;

numbered!(
    "The procedures of NFSACL version 3.",
    Procedure,
    Null = 0 "NULL",
    Getacl = 1 "GETACL",
    Setacl = 2 "SETACL",
);

/// `aclent`: an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Encode, Decode)]
pub struct Aclent {
    /// The tag: [`USER_OBJ`] to [`OTHER_OBJ`], with [`DEFAULT`] in a default list.
    pub tag: u32,
    /// The user's or group's number.
    pub id: u32,
    /// 4 to read, 2 to write, 1 to execute or search.
    pub perm: u32,
}

/// `secattr`: both lists.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
pub struct Secattr {
    /// The lists that are meant: [`NFS_ACL`] to [`NFS_DFACLCNT`].
    pub mask: u32,
    /// The number of entries of the access list, whether they follow or not.
    pub acl_count: u32,
    /// The access list.
    pub acl: Array<Aclent, MAX_ENTRIES>,
    /// The number of entries of the default list, whether they follow or not.
    pub default_count: u32,
    /// The default list.
    pub default: Array<Aclent, MAX_ENTRIES>,
}

/// Arguments of GETACL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Getacl3Args<'a> {
    /// The file.
    pub fh: NfsFh3<'a>,
    /// The requested lists: [`NFS_ACL`] to [`NFS_DFACLCNT`].
    pub mask: u32,
}

/// `GETACL3resok`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Getacl3ResOk {
    /// The file's attributes.
    pub attributes: PostOpAttr,
    /// The requested lists.
    pub lists: Secattr,
}

/// The result of GETACL.
pub type Getacl3Res = Outcome<Getacl3ResOk, PostOpAttr>;

/// Arguments of SETACL.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Setacl3Args<'a> {
    /// The file.
    pub fh: NfsFh3<'a>,
    /// The new lists.
    pub lists: Secattr,
}

/// The result of SETACL: the attributes behind it, either way.
pub type Setacl3Res = Outcome<PostOpAttr, PostOpAttr>;
