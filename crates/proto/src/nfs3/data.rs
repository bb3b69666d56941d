//! Procedures that move a file's bytes: READ, WRITE and COMMIT (RFC 1813 sections 3.3.6, 3.3.7 and 3.3.21).

use super::{MAX_DATA, NfsFh3, Outcome, PostOpAttr, WccData, Writeverf3};
use xdr::{Decode, Encode, Opaque};

/// Arguments of READ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Read3Args<'a> {
    /// The file.
    pub file: NfsFh3<'a>,
    /// The offset of the first byte.
    pub offset: u64,
    /// Bytes to read, at most.
    pub count: u32,
}

/// `READ3resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Read3ResOk<'a> {
    /// `file_attributes`.
    pub attributes: PostOpAttr,
    /// Bytes that were read.
    pub count: u32,
    /// Whether the read reached the end of the file.
    pub eof: bool,
    /// The bytes.
    pub data: Opaque<'a, MAX_DATA>,
}

/// Result of READ: on failure `file_attributes`.
pub type Read3Res<'a> = Outcome<Read3ResOk<'a>, PostOpAttr>;

/// [`Read3ResOk`] up to its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Read3Head {
    /// `file_attributes`.
    pub attributes: PostOpAttr,
    /// Bytes that were read.
    pub count: u32,
    /// Whether the read reached the end of the file.
    pub eof: bool,
    /// The length word of `data`: the payload follows, and its padding.
    pub length: u32,
}

/// Result of READ up to its payload.
pub type Read3ResHead = Outcome<Read3Head, PostOpAttr>;

/// `stable_how`: how durable a WRITE must be, and was. Ordered: each promises what those below it do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
pub enum StableHow {
    /// `UNSTABLE`: until a COMMIT, a crash may lose it.
    Unstable = 0,
    /// `DATA_SYNC`: the data and what is needed to read it are on stable storage.
    DataSync = 1,
    /// `FILE_SYNC`: the data and all metadata are.
    FileSync = 2,
}

/// Arguments of WRITE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Write3Args<'a> {
    /// The file.
    pub file: NfsFh3<'a>,
    /// The offset of the first byte.
    pub offset: u64,
    /// Bytes to write; differs from the length of `data` only in a broken client.
    pub count: u32,
    /// How durable it must be.
    pub stable: StableHow,
    /// The bytes.
    pub data: Opaque<'a, MAX_DATA>,
}

/// [`Write3Args`] up to its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Write3Head<'a> {
    /// The file.
    pub file: NfsFh3<'a>,
    /// The offset of the first byte.
    pub offset: u64,
    /// Bytes to write.
    pub count: u32,
    /// How durable it must be.
    pub stable: StableHow,
    /// The length word of `data`: the payload follows, and its padding.
    pub length: u32,
}

/// `WRITE3resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Write3ResOk {
    /// The file before and after.
    pub file_wcc: WccData,
    /// Bytes that were written.
    pub count: u32,
    /// How durable they are.
    pub committed: StableHow,
    /// The server's write verifier.
    pub verf: Writeverf3,
}

/// Result of WRITE: on failure `file_wcc`.
pub type Write3Res = Outcome<Write3ResOk, WccData>;

/// Arguments of COMMIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Commit3Args<'a> {
    /// The file.
    pub file: NfsFh3<'a>,
    /// The offset of the first byte.
    pub offset: u64,
    /// Bytes to commit; 0 means to the end of the file.
    pub count: u32,
}

/// `COMMIT3resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Commit3ResOk {
    /// The file before and after.
    pub file_wcc: WccData,
    /// The server's write verifier.
    pub verf: Writeverf3,
}

/// Result of COMMIT: on failure `file_wcc`.
pub type Commit3Res = Outcome<Commit3ResOk, WccData>;
