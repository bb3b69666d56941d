//! A file's attributes when a write delegation of it was granted: the holder's CB_GETATTR answer differs from
//! them if it has written.

use std::net::IpAddr;

/// A file's attributes when a write delegation of it was granted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GrantedAttributes {
    pub change: u64,
    /// In bytes.
    pub size: u64,
    /// The holder's address if it is a client of 4.0, whose GETATTR doesn't say which client it comes from.
    pub holder_v40: Option<IpAddr>,
}
