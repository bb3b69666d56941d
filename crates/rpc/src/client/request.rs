//! A call as its caller describes it, and its successful reply.

use bytes::Bytes;

use crate::message::Credential;

/// Locates the payload in successful results. Given their first bytes (all of them, or at least
/// [`HEAD_MAX`]), it returns the length of the results before the payload and the length of the payload;
/// `None` if these results have no payload.
pub type Split = fn(results: &[u8]) -> Option<(usize, usize)>;

/// The number of bytes of results that a [`Split`] may need.
pub const HEAD_MAX: usize = 128;

/// The smallest payload that is received straight into the caller's buffer instead of through the staging
/// buffer, in bytes.
pub const DIRECT_MIN: usize = 32 << 10;

/// A buffer for a reply's payload.
pub struct Receive {
    /// The payload replaces its contents; its capacity is reused.
    pub into: Vec<u8>,
    /// The longest valid payload, in bytes. A longer one makes the reply malformed.
    pub limit: usize,
    /// Locates the payload.
    pub split: Split,
}

/// A call without its arguments.
pub struct Request<'a> {
    /// The program's number.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// The procedure.
    pub procedure: u32,
    /// The caller's credential.
    pub credential: &'a Credential,
    /// Bulk data behind the arguments, XDR padding excluded; sent without a copy.
    pub payload: Bytes,
    /// Arguments behind the payload.
    pub trailer: Bytes,
    /// The buffer for the reply's payload, for a procedure that has one.
    pub receive: Option<Receive>,
}

/// A successful call's results.
#[derive(Debug, Default)]
pub struct Reply {
    /// The results; without the payload, if [`Receive::into`] has received one.
    pub results: Vec<u8>,
    /// [`Receive::into`] with the payload in it, XDR padding excluded; empty if there was none.
    pub payload: Vec<u8>,
    /// Whether they came over the call socket.
    pub local: bool,
}
