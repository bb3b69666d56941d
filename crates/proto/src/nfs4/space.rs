//! A file's space: ALLOCATE, DEALLOCATE, SEEK and IO_ADVISE (RFC 7862 sections 15.1, 15.4, 15.5, 15.11).

use super::{Bitmap4, Stateid4};
use xdr::{Decode, Encode};

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
