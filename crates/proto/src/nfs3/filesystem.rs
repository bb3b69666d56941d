//! Procedures about the file system: FSSTAT, FSINFO and PATHCONF (RFC 1813 sections 3.3.18 to 3.3.20).

use super::{NfsFh3, Nfstime3, Outcome, PostOpAttr};
use xdr::{Decode, Encode};

/// Arguments of FSSTAT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Fsstat3Args<'a> {
    /// An object in the file system.
    pub fsroot: NfsFh3<'a>,
}

/// `FSSTAT3resok`: values that change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Fsstat3ResOk {
    /// The object's attributes.
    pub obj_attributes: PostOpAttr,
    /// Bytes in all.
    pub tbytes: u64,
    /// Free bytes.
    pub fbytes: u64,
    /// Free bytes that the caller may use.
    pub abytes: u64,
    /// File slots in all.
    pub tfiles: u64,
    /// Free file slots.
    pub ffiles: u64,
    /// Free file slots that the caller may use.
    pub afiles: u64,
    /// Seconds for which none of this is expected to change; 0 if it may at any time.
    pub invarsec: u32,
}

/// Result of FSSTAT: on failure `obj_attributes`.
pub type Fsstat3Res = Outcome<Fsstat3ResOk, PostOpAttr>;

/// Arguments of FSINFO.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Fsinfo3Args<'a> {
    /// An object in the file system.
    pub fsroot: NfsFh3<'a>,
}

/// `FSINFO3resok`: values that don't change. Sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Fsinfo3ResOk {
    /// The object's attributes.
    pub obj_attributes: PostOpAttr,
    /// The largest READ.
    pub rtmax: u32,
    /// The preferred READ.
    pub rtpref: u32,
    /// What a READ's size should be a multiple of.
    pub rtmult: u32,
    /// The largest WRITE.
    pub wtmax: u32,
    /// The preferred WRITE.
    pub wtpref: u32,
    /// What a WRITE's size should be a multiple of.
    pub wtmult: u32,
    /// The preferred READDIR.
    pub dtpref: u32,
    /// The largest file.
    pub maxfilesize: u64,
    /// The resolution of the server's timestamps.
    pub time_delta: Nfstime3,
    /// `FSF3_*` bits.
    pub properties: u32,
}

/// Result of FSINFO: on failure `obj_attributes`.
pub type Fsinfo3Res = Outcome<Fsinfo3ResOk, PostOpAttr>;

/// Arguments of PATHCONF.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Pathconf3Args<'a> {
    /// The object.
    pub object: NfsFh3<'a>,
}

/// `PATHCONF3resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Pathconf3ResOk {
    /// The object's attributes.
    pub obj_attributes: PostOpAttr,
    /// Hard links to an object, at most.
    pub linkmax: u32,
    /// Bytes in a name, at most.
    pub name_max: u32,
    /// Whether a longer name is refused rather than cut.
    pub no_trunc: bool,
    /// Whether only the privileged may change an owner.
    pub chown_restricted: bool,
    /// Whether names that differ in case only are one.
    pub case_insensitive: bool,
    /// Whether a name keeps its case.
    pub case_preserving: bool,
}

/// Result of PATHCONF: on failure `obj_attributes`.
pub type Pathconf3Res = Outcome<Pathconf3ResOk, PostOpAttr>;
