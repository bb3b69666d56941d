//! The receiver of attributes that replies carry.
//!
//! Nearly every NFSv3 reply carries attributes of the files in the call, failures included. Replies to
//! changes also carry attributes from before the change (weak cache consistency, RFC 1813 section 2.6). An
//! attribute cache implements [`AttributeSink`] and gets all of them, from every file and every user of the
//! session, without GETATTR calls of its own.

use std::fmt::Debug;
use std::time::Instant;

use crate::types::{Attributes, Handle, LaneReport, ReplyAcls, Timestamp};

/// A file's attributes right before an operation that changes it; a client compares them with its cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreOpAttributes {
    /// NFSv3's (RFC 1813 section 2.6, `wcc_attr`).
    Times {
        /// Bytes.
        size: u64,
        /// Last modification of the data.
        mtime: Timestamp,
        /// Last change of the attributes.
        ctime: Timestamp,
    },
    /// The change attribute before and after the operation (RFC 8881 section 3.3.5, `change_info4`). The
    /// reply's attributes were read later, and may show another change since.
    Change {
        /// Right before.
        before: u64,
        /// Right after.
        after: u64,
    },
}

/// The attributes of one file in one reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttributeUpdate {
    /// Its attributes right before the change, read atomically with it. `None` if the call changes nothing,
    /// or the server didn't send them.
    pub before: Option<PreOpAttributes>,
    /// Its attributes after the call. `None` if the server didn't send them: cached attributes may then be
    /// stale.
    pub attributes: Option<Attributes>,
    /// When the call was sent. Replies may arrive in another order than their calls, so older attributes may
    /// arrive after the reply to a change.
    pub asked: Instant,
}

/// Receives the attributes in a session's replies. The tasks that make the calls run it, so it must not
/// block.
pub trait AttributeSink: Debug + Send + Sync {
    /// A reply over the wire, or an Open over the lane, carried attributes of a file, or should have.
    fn attributes(&self, file: &Handle, update: &AttributeUpdate);

    /// A reply carried a file's access control lists beside these attributes, which
    /// [`AttributeSink::attributes`] was called with before. The call was sent at `asked`.
    fn acls(&self, file: &Handle, attributes: &Attributes, acls: &ReplyAcls, asked: Instant) {
        let _ = (file, attributes, acls, asked);
    }

    /// The session got a lane, lost it, or its lane mode was changed. Called once for each change.
    fn lane_changed(&self, report: &LaneReport);
}
