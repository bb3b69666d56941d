//! Who wants to know what a session learns in passing.
//!
//! Nearly every NFSv3 reply carries attributes of the files it is about, failures included, and those of
//! changes carry what they were before, too (weak cache consistency, RFC 1813 section 2.6). Whoever keeps a
//! cache of attributes gets them all here, whichever method, file or user the call was made for, and need not
//! ask again.

use std::fmt::Debug;
use std::time::Instant;

use crate::lane::LaneReport;
use crate::types::{Attributes, Handle, Timestamp};

/// What told a client whether its cache was good before a change (RFC 1813 section 2.6, wcc_attr).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Before {
    /// Bytes.
    pub size: u64,
    /// Last change of the data.
    pub mtime: Timestamp,
    /// Last change of the attributes.
    pub ctime: Timestamp,
}

/// What one reply said of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// As it was right before the call changed it, atomically; `None` for calls that change nothing, and
    /// where the server can't tell.
    pub before: Option<Before>,
    /// As it was after the call; `None` if the server didn't say: what is cached may then be old.
    pub attributes: Option<Attributes>,
    /// When the call was made. Replies overtake one another: what was asked before a change may be told after
    /// it.
    pub asked: Instant,
}

/// Is told what a session learns. Called from the tasks that make the calls: it must not block.
pub trait Observer: Debug + Send + Sync {
    /// A reply over the wire, or an Open over the lane, told attributes of a file, or should have.
    fn seen(&self, file: &Handle, seen: &Seen);

    /// The session got a lane, lost it, or was told to use or not to use one; at most once a change.
    fn road(&self, report: &LaneReport);
}
