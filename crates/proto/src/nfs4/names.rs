//! Operations on names: CREATE, LINK, LOOKUP, PUTFH, REMOVE, RENAME, SECINFO (RFC 8881 sections 18.4 and
//! following).

use super::{ChangeInfo4, Component4, Fattr4, Linktext4, NfsFh4, Specdata4};
use xdr::{Decode, Encode};

/// `createtype4`: what CREATE makes.
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
    /// Anything else: a directory, a socket, a pipe, or what can't be made so.
    #[xdr(default)]
    Other(u32),
}

/// Arguments of CREATE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Create4Args<'a> {
    /// What.
    pub objtype: Createtype4<'a>,
    /// Under which name.
    pub objname: Component4<'a>,
    /// With which attributes.
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
    /// The saved directory.
    pub source_cinfo: ChangeInfo4,
    /// The current directory.
    pub target_cinfo: ChangeInfo4,
}
