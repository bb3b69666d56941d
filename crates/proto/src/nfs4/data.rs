//! Operations that move a file's bytes: READ, WRITE, COMMIT.

use super::{MAX_DATA, StableHow4, Stateid4, Verifier4};
use xdr::{Decode, Encode, Opaque};

/// Arguments of READ and READ_PLUS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Read4Args {
    /// The state id under which the file is accessed.
    pub stateid: Stateid4,
    /// The offset of the first byte.
    pub offset: u64,
    /// The most bytes to read.
    pub count: u32,
}

/// `READ4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Read4ResOk<'a> {
    /// Whether the read reached the end of the file.
    pub eof: bool,
    /// The bytes.
    pub data: Opaque<'a, MAX_DATA>,
}

/// Arguments of WRITE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Write4Args<'a> {
    /// The state id under which the file is accessed.
    pub stateid: Stateid4,
    /// The offset of the first byte.
    pub offset: u64,
    /// How durable the data must be, or is.
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
    /// The offset of the first byte.
    pub offset: u64,
    /// The number of bytes; 0 for all up to the end.
    pub count: u32,
}
