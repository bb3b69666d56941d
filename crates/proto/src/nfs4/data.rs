//! Operations that move a file's bytes: READ, WRITE, COMMIT.

use super::{MAX_DATA, StableHow4, Stateid4, Verifier4};
use xdr::{Decode, Encode, Opaque};

/// Arguments of READ and READ_PLUS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Read4Args {
    /// By which right.
    pub stateid: Stateid4,
    /// From where, in bytes.
    pub offset: u64,
    /// How many bytes at most.
    pub count: u32,
}

/// `READ4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Read4ResOk<'a> {
    /// The end of the file was reached.
    pub eof: bool,
    /// The bytes.
    pub data: Opaque<'a, MAX_DATA>,
}

/// Arguments of WRITE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Write4Args<'a> {
    /// By which right.
    pub stateid: Stateid4,
    /// Where, in bytes.
    pub offset: u64,
    /// How durable.
    pub stable: StableHow4,
    /// The bytes.
    pub data: Opaque<'a, MAX_DATA>,
}

/// `WRITE4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Write4ResOk {
    /// Bytes written.
    pub count: u32,
    /// How durable they are.
    pub committed: StableHow4,
    /// Changes when unstable data may have been lost.
    pub writeverf: Verifier4,
}

/// Arguments of COMMIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Commit4Args {
    /// From where, in bytes.
    pub offset: u64,
    /// How many; 0 to the end.
    pub count: u32,
}
