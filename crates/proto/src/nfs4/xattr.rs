//! Extended attributes (RFC 8276 section 8).

use super::{Component4, MAX_XATTR};
use xdr::{Array, Decode, Encode, Opaque};

/// Arguments of GETXATTR and REMOVEXATTR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Xattr4Args<'a> {
    /// The attribute's name, without a namespace.
    pub name: Component4<'a>,
}

/// Arguments of SETXATTR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Setxattr4Args<'a> {
    /// `SETXATTR4_EITHER` 0, `SETXATTR4_CREATE` 1, `SETXATTR4_REPLACE` 2.
    pub option: SetxattrOption4,
    /// The attribute's name.
    pub key: Component4<'a>,
    /// Its value.
    pub value: Opaque<'a, MAX_XATTR>,
}

/// `setxattr_option4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum SetxattrOption4 {
    /// The attribute is created or replaced.
    Either = 0,
    /// The attribute must not exist.
    Create = 1,
    /// The attribute must exist.
    Replace = 2,
}

/// Arguments of LISTXATTRS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Listxattrs4Args {
    /// The position to continue from; 0 at the start.
    pub cookie: u64,
    /// The largest result, in bytes.
    pub maxcount: u32,
}

/// `LISTXATTRS4resok`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Listxattrs4ResOk<'a> {
    /// The position to continue from.
    pub cookie: u64,
    /// Names.
    pub names: Array<Component4<'a>, 65_536>,
    /// Whether the list ends here.
    pub eof: bool,
}
