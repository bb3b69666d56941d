//! Operations on names: CREATE, LINK, LOOKUP, PUTFH, REMOVE, RENAME, SECINFO (RFC 8881 sections 18.4 and
//! following).

use super::{ChangeInfo4, Component4, Fattr4, Linktext4, NfsFh4, Specdata4};
use xdr::{Decode, Encode};

/// `createtype4`: the type of the new object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum Createtype4<'a> {
    /// A block device.
    #[xdr(3)]
    Blk(Specdata4),
    /// A character device.
    #[xdr(4)]
    Chr(Specdata4),
    /// A symbolic link with this text.
    #[xdr(5)]
    Lnk(Linktext4<'a>),
    /// Any other type: a directory, a socket, a pipe, or one that can't be created so.
    #[xdr(default)]
    Other(u32),
}

/// Arguments of CREATE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Create4Args<'a> {
    /// The type of the object.
    pub objtype: Createtype4<'a>,
    /// The name.
    pub objname: Component4<'a>,
    /// The attributes to set.
    pub createattrs: Fattr4<'a>,
}

/// Arguments of the operations that take one name: LOOKUP, LINK, REMOVE, SECINFO.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Name4Args<'a> {
    /// The name.
    pub name: Component4<'a>,
}

/// Arguments of PUTFH.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Putfh4Args<'a> {
    /// The handle.
    pub object: NfsFh4<'a>,
}

/// Arguments of RENAME.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Rename4Args<'a> {
    /// The name in the saved directory.
    pub oldname: Component4<'a>,
    /// The name in the current directory.
    pub newname: Component4<'a>,
}

/// `RENAME4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Rename4ResOk {
    /// The change of the saved directory.
    pub source_cinfo: ChangeInfo4,
    /// The change of the current directory.
    pub target_cinfo: ChangeInfo4,
}
