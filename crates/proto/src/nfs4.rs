//! NFS version 4, minor versions 0, 1 and 2 (RFC 7530, 8881, 7862, 8275, 8276): every argument and result in
//! use.
//!
//! Operation `X` takes `X4Args`; arguments that several operations share have a name of their own. A result
//! is its status and, behind `NFS4_OK`, `X4ResOk` or the one value that it consists of. A COMPOUND is decoded
//! and encoded operation by operation, because each may change the current handle of the next: there is no
//! type for the whole.

mod acl;
mod attribute;
mod basic;
mod bitmap;
mod callback;
mod client;
mod copy;
mod data;
mod exchange;
mod file;
mod lock;
mod names;
mod open;
mod operation;
mod session;
mod slots;
mod space;
mod status;
mod xattr;

/// Attributes' numbers.
pub mod attributes {
    pub use super::attribute::*;
}

pub use acl::*;
pub use attribute::Fattr4;
pub use basic::{
    ChangeInfo4, Component4, Fsid4, Linktext4, MinorVersion, Netaddr4, NfsFh4, NfsFtype4, Nfstime4,
    Sessionid4, Settime4, Specdata4, StableHow4, StateOwner4, Stateid4, Verifier4,
};
pub use bitmap::{Bitmap4, MAX_BITMAP_WORDS};
pub use callback::*;
pub use client::{
    NfsClientId4, ReleaseLockowner4Args, Setclientid4Args, Setclientid4ResOk, SetclientidConfirm4Args,
};
pub use copy::*;
pub use data::{Commit4Args, Read4Args, Read4ResOk, Write4Args, Write4ResOk};
pub use exchange::*;
pub use file::{Access4Args, Access4ResOk, Getattr4Args, Readdir4Args, Setattr4Args, Verify4Args};
pub use lock::{
    ExistLockOwner4, Lock4Args, Lock4Denied, Locker4, Lockt4Args, Locku4Args, NfsLockType4, OpenToLockOwner4,
};
pub use names::{Create4Args, Createtype4, Name4Args, Putfh4Args, Rename4Args, Rename4ResOk};
pub use open::*;
pub use operation::{ILLEGAL, Operation};
pub use session::*;
pub use slots::{RequestSlot, SessionSlots};
pub use space::*;
pub use status::Nfsstat4;
pub use xattr::*;

/// The program's number.
pub const PROGRAM: u32 = 100_003;
/// The protocol's version.
pub const VERSION: u32 = 4;
/// COMPOUND, the only procedure but NULL.
pub const COMPOUND: u32 = 1;

/// `NFS4_FHSIZE`: bytes in a file handle, at most.
pub const FHSIZE: usize = 128;
/// `NFS4_VERIFIER_SIZE`.
pub const VERIFIER_SIZE: usize = 8;
/// `NFS4_SESSIONID_SIZE`.
pub const SESSIONID_SIZE: usize = 16;
/// `NFS4_OPAQUE_LIMIT`: bytes in an owner, a server's scope and their like.
pub const OPAQUE_LIMIT: usize = 1024;
/// Bytes in a COMPOUND's tag. The RFC has no bound.
pub const MAX_TAG: usize = 1024;
/// The longest name in bytes. The RFC has no bound; this one is above any filesystem's, so that the server
/// can answer a name that is too long.
pub const MAX_COMPONENT: usize = 65_536;
/// Bytes in a symbolic link's text. As [`MAX_COMPONENT`].
pub const MAX_LINKTEXT: usize = 65_536;
/// Bytes in attributes' values. The RFC has no bound.
pub const MAX_ATTRIBUTES: usize = 131_072;
/// Bytes of payload in one READ or WRITE. The RFC has no bound; the record's own comes first.
pub const MAX_DATA: usize = 16 << 20;
/// Bytes in an extended attribute. The RFC has no bound; Linux has this one.
pub const MAX_XATTR: usize = 65_536;
/// Algorithms in EXCHANGE_ID.
pub const MAX_OIDS: usize = 64;
/// Requests that a callback refers to. The RFC has no bound.
pub const MAX_REFERRING_CALLS: usize = 256;
/// Credentials for callbacks in CREATE_SESSION.
pub const MAX_FLAVORS: usize = 64;
/// State ids in TEST_STATEID.
pub const MAX_STATEIDS: usize = 16_384;
/// Servers in COPY.
pub const MAX_SERVERS: usize = 64;

/// `ACCESS4_READ` ... `ACCESS4_EXECUTE` have NFSv3's values; these are RFC 8276's.
pub const ACCESS4_XAREAD: u32 = 0x40;
/// `ACCESS4_XAWRITE`.
pub const ACCESS4_XAWRITE: u32 = 0x80;
/// `ACCESS4_XALIST`.
pub const ACCESS4_XALIST: u32 = 0x100;
