//! A file's space: ALLOCATE, DEALLOCATE, SEEK, READ_PLUS and IO_ADVISE (RFC 7862 sections 15.1, 15.4, 15.5,
//! 15.10, 15.11).

use super::{Bitmap4, MAX_DATA, Stateid4};
use xdr::{Array, Decode, Encode, Opaque};

/// Arguments of ALLOCATE and DEALLOCATE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Allocate4Args {
    /// By which right.
    pub stateid: Stateid4,
    /// First byte.
    pub offset: u64,
    /// How many.
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
    /// By which right.
    pub stateid: Stateid4,
    /// From where.
    pub offset: u64,
    /// For what: a [`DataContent4`], or what is none.
    pub what: u32,
}

/// `seek_res4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct SeekRes4 {
    /// There is no more of it up to the end.
    pub eof: bool,
    /// Where it is.
    pub offset: u64,
}

/// Arguments of IO_ADVISE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct IoAdvise4Args {
    /// By which right.
    pub stateid: Stateid4,
    /// First byte.
    pub offset: u64,
    /// How many; 0 to the end.
    pub count: u64,
    /// `IO_ADVISE4_` hints.
    pub hints: Bitmap4,
}

/// `data4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Data4<'a> {
    /// Where it begins.
    pub offset: u64,
    /// What is there.
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
    /// It goes to the end of the file.
    pub eof: bool,
    /// What follows one another from the offset that was asked for.
    pub contents: Array<ReadPlusContent4<'a>, MAX_SEGMENTS>,
}

/// Segments in a READ_PLUS's answer. The RFC has no bound.
pub const MAX_SEGMENTS: usize = 4096;
