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
    /// The rights that the server can check.
    pub supported: u32,
    /// The rights that are granted.
    pub access: u32,
}

/// Arguments of GETATTR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Getattr4Args {
    /// The requested attributes.
    pub attr_request: Bitmap4,
}

/// Arguments of SETATTR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Setattr4Args<'a> {
    /// The state id under which the size is changed.
    pub stateid: Stateid4,
    /// The attributes.
    pub obj_attributes: Fattr4<'a>,
}

/// Arguments of VERIFY and NVERIFY.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Verify4Args<'a> {
    /// The attributes to compare the object's with.
    pub obj_attributes: Fattr4<'a>,
}

/// Arguments of READDIR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Readdir4Args {
    /// The position to continue from; 0 at the start.
    pub cookie: u64,
    /// The verifier from the previous page.
    pub cookieverf: Verifier4,
    /// A hint for the number of bytes of names.
    pub dircount: u32,
    /// The largest result, in bytes.
    pub maxcount: u32,
    /// The requested attributes of each entry.
    pub attr_request: Bitmap4,
}
