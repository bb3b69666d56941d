//! Operations on attributes and directories: ACCESS, GETATTR, SETATTR, VERIFY, READDIR.

use super::{Bitmap4, Fattr4, Stateid4, Verifier4};
use xdr::{Decode, Encode};

/// Arguments of ACCESS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Access4Args {
    /// `ACCESS4_` bits.
    pub access: u32,
}

/// `ACCESS4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Access4ResOk {
    /// What the server can say of.
    pub supported: u32,
    /// What is allowed.
    pub access: u32,
}

/// Arguments of GETATTR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Getattr4Args {
    /// Which attributes.
    pub attr_request: Bitmap4,
}

/// Arguments of SETATTR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Setattr4Args<'a> {
    /// Needed for the size only.
    pub stateid: Stateid4,
    /// The attributes.
    pub obj_attributes: Fattr4<'a>,
}

/// Arguments of VERIFY and NVERIFY.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Verify4Args<'a> {
    /// What the object's attributes are compared with.
    pub obj_attributes: Fattr4<'a>,
}

/// Arguments of READDIR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Readdir4Args {
    /// Where to go on; 0 at the start.
    pub cookie: u64,
    /// From the page before.
    pub cookieverf: Verifier4,
    /// A hint: how many bytes of names.
    pub dircount: u32,
    /// The most bytes of the result.
    pub maxcount: u32,
    /// Attributes for each entry.
    pub attr_request: Bitmap4,
}
