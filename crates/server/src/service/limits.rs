//! The largest requests and replies: what every version of NFS transfers, what the server offers to sessions
//! (RFC 8881 section 18.36), and the bounds of a COMPOUND without a session.

/// The largest READ and WRITE, in bytes.
pub(crate) const MAX_TRANSFER: u32 = 1 << 20;
/// The largest request of a session, in bytes: a WRITE of the largest size, and what is around it.
pub(crate) const MAX_REQUEST: u32 = MAX_TRANSFER + (6 << 10);
/// The largest reply, with a session and without one, in bytes: a READ of the largest size, and what is
/// around it.
pub(crate) const MAX_REPLY: u32 = MAX_TRANSFER + (6 << 10);
/// The largest reply that a session's slot keeps for a retransmission, in bytes.
pub(crate) const MAX_CACHED_REPLY: u32 = 8 << 10;
/// The largest reply for the duplicate-request cache, in bytes. The cache holds one mebibyte for a client of
/// NFSv3 or 4.0.
pub(crate) const MAX_DRC_REPLY: usize = 64 << 10;
/// The most operations in a COMPOUND.
pub(crate) const MAX_OPERATIONS: u32 = 128;
