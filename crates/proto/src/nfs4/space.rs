//! A file's space: ALLOCATE, DEALLOCATE, SEEK, READ_PLUS and IO_ADVISE (RFC 7862 sections 15.1, 15.4, 15.5,
//! 15.10, 15.11).

use super::{Bitmap4, MAX_DATA, Stateid4};
use xdr::{Array, Decode, Encode, Opaque};

/// Arguments of ALLOCATE and DEALLOCATE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Allocate4Args {
    /// The state id under which the file is accessed.
    pub stateid: Stateid4,
    /// The offset of the first byte.
    pub offset: u64,
    /// The number of bytes.
    pub length: u64,
}

/// `data_content4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum DataContent4 {
    /// Data.
    Data = 0,
    /// A hole.
    Hole = 1,
}

/// Arguments of SEEK.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Seek4Args {
    /// The state id under which the file is accessed.
    pub stateid: Stateid4,
    /// The offset to search from.
    pub offset: u64,
    /// The content to search for: a [`DataContent4`], or an invalid number.
    pub what: u32,
}

/// `seek_res4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct SeekRes4 {
    /// Whether the file has no more of it.
    pub eof: bool,
    /// The offset at which it begins.
    pub offset: u64,
}

/// Arguments of IO_ADVISE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct IoAdvise4Args {
    /// The state id under which the file is accessed.
    pub stateid: Stateid4,
    /// The offset of the first byte.
    pub offset: u64,
    /// The number of bytes; 0 for all up to the end.
    pub count: u64,
    /// `IO_ADVISE4_` hints.
    pub hints: Bitmap4,
}

/// `data4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Data4<'a> {
    /// Where it begins.
    pub offset: u64,
    /// The bytes.
    pub data: Opaque<'a, MAX_DATA>,
}

/// `data_info4`: a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct DataInfo4 {
    /// Where it begins.
    pub offset: u64,
    /// How long it is.
    pub length: u64,
}

/// `read_plus_content`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum ReadPlusContent4<'a> {
    /// Data.
    #[xdr(0)]
    Data(Data4<'a>),
    /// A hole.
    #[xdr(1)]
    Hole(DataInfo4),
}

/// `read_plus_res4`. Its arguments are READ's.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ReadPlus4ResOk<'a> {
    /// Whether the contents reach the end of the file.
    pub eof: bool,
    /// Consecutive segments from the requested offset on.
    pub contents: Array<ReadPlusContent4<'a>, MAX_SEGMENTS>,
}

/// The most segments in a READ_PLUS reply. The RFC has no bound.
pub const MAX_SEGMENTS: usize = 4096;
