//! Procedures that read metadata: GETATTR, LOOKUP, ACCESS and READLINK (RFC 1813 sections 3.3.1, 3.3.3 to
//! 3.3.5).

use super::{Diropargs3, Fattr3, NfsFh3, Nfspath3, Outcome, PostOpAttr};
use xdr::{Decode, Encode};

/// Arguments of GETATTR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Getattr3Args<'a> {
    /// The object.
    pub object: NfsFh3<'a>,
}

/// Result of GETATTR: `obj_attributes`, or nothing.
pub type Getattr3Res = Outcome<Fattr3, ()>;

/// Arguments of LOOKUP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Lookup3Args<'a> {
    /// The directory and the name in it.
    pub what: Diropargs3<'a>,
}

/// `LOOKUP3resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Lookup3ResOk<'a> {
    /// The object that was found.
    pub object: NfsFh3<'a>,
    /// Its attributes.
    pub obj_attributes: PostOpAttr,
    /// The directory's.
    pub dir_attributes: PostOpAttr,
}

/// Result of LOOKUP: on failure `dir_attributes`.
pub type Lookup3Res<'a> = Outcome<Lookup3ResOk<'a>, PostOpAttr>;

/// Arguments of ACCESS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Access3Args<'a> {
    /// The object.
    pub object: NfsFh3<'a>,
    /// The requested `ACCESS3_*` bits.
    pub access: u32,
}

/// `ACCESS3resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Access3ResOk {
    /// The object's attributes.
    pub obj_attributes: PostOpAttr,
    /// The granted bits among the requested ones.
    pub access: u32,
}

/// Result of ACCESS: on failure `obj_attributes`.
pub type Access3Res = Outcome<Access3ResOk, PostOpAttr>;

/// Arguments of READLINK.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Readlink3Args<'a> {
    /// The symbolic link.
    pub symlink: NfsFh3<'a>,
}

/// `READLINK3resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Readlink3ResOk<'a> {
    /// The link's attributes.
    pub symlink_attributes: PostOpAttr,
    /// Its text.
    pub data: Nfspath3<'a>,
}

/// Result of READLINK: on failure `symlink_attributes`.
pub type Readlink3Res<'a> = Outcome<Readlink3ResOk<'a>, PostOpAttr>;
