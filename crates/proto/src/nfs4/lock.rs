//! Byte-range locks: LOCK, LOCKT, LOCKU (RFC 8881 sections 18.10 to 18.12).

use super::{StateOwner4, Stateid4};
use xdr::{Decode, Encode};

/// `nfs_lock_type4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
pub enum NfsLockType4 {
    /// Shared.
    Read = 1,
    /// Exclusive.
    Write = 2,
    /// Shared, for a client that waits.
    Readw = 3,
    /// Exclusive, for a client that waits.
    Writew = 4,
}

/// `open_to_lock_owner4`: the first lock of an owner on an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct OpenToLockOwner4<'a> {
    /// The open owner's sequence number (4.0).
    pub open_seqid: u32,
    /// The open.
    pub open_stateid: Stateid4,
    /// The lock owner's first sequence number (4.0).
    pub lock_seqid: u32,
    /// The lock owner.
    pub lock_owner: StateOwner4<'a>,
}

/// `exist_lock_owner4`: one more lock of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct ExistLockOwner4 {
    /// The owner's locks on the file.
    pub lock_stateid: Stateid4,
    /// The lock owner's sequence number (4.0).
    pub lock_seqid: u32,
}

/// `locker4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum Locker4<'a> {
    /// The owner has locks on the file.
    #[xdr(0)]
    Existing(ExistLockOwner4),
    /// The owner has no locks on the file yet.
    #[xdr(1)]
    New(OpenToLockOwner4<'a>),
}

/// Arguments of LOCK.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Lock4Args<'a> {
    /// The kind of lock.
    pub locktype: NfsLockType4,
    /// Whether the client held the lock before the server restarted.
    pub reclaim: bool,
    /// The offset of the first byte.
    pub offset: u64,
    /// The number of bytes; all ones for all up to the end.
    pub length: u64,
    /// The owner.
    pub locker: Locker4<'a>,
}

/// `LOCK4denied`: the conflicting lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Lock4Denied<'a> {
    /// The offset of the first byte.
    pub offset: u64,
    /// The number of bytes; all ones for all up to the end.
    pub length: u64,
    /// The kind of lock.
    pub locktype: NfsLockType4,
    /// Its owner; client 0 for a process on the server.
    pub owner: StateOwner4<'a>,
}

/// Arguments of LOCKT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Lockt4Args<'a> {
    /// The kind of lock.
    pub locktype: NfsLockType4,
    /// The offset of the first byte.
    pub offset: u64,
    /// The number of bytes; all ones for all up to the end.
    pub length: u64,
    /// The owner.
    pub owner: StateOwner4<'a>,
}

/// Arguments of LOCKU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Locku4Args {
    /// Ignored.
    pub locktype: NfsLockType4,
    /// The lock owner's sequence number (4.0).
    pub seqid: u32,
    /// The owner's locks on the file.
    pub lock_stateid: Stateid4,
    /// The offset of the first byte.
    pub offset: u64,
    /// The number of bytes; all ones for all up to the end.
    pub length: u64,
}
