//! The headers of calls and replies (RFC 5531 sections 9 and 8.2), in front of a procedure's arguments and
//! results.
//!
//! Decoding borrows from the record. Every length has the RFC's bound (400 bytes for an authentication body,
//! 255 for a machine name, 16 groups).

mod auth;
mod call;
mod reply;

pub use auth::{
    AuthFlavor, AuthStat, AuthSys, Credential, MAX_AUTH_BODY, MAX_GIDS, MAX_MACHINE_NAME, OpaqueAuth,
};
pub use call::CallHeader;
pub use reply::{AcceptStat, RejectStat, ReplyHeader, ReplyStatus};

/// The version of the RPC protocol (section 9, `rpcvers`).
pub const RPC_VERSION: u32 = 2;

/// `msg_type` (section 9): a call.
pub const CALL: u32 = 0;

/// `msg_type` (section 9): a reply.
pub const REPLY: u32 = 1;

/// Why a record is not the expected message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The header can't be decoded.
    #[error("RPC header: {0}")]
    Xdr(#[from] xdr::Error),
    /// A call where a reply was expected, or the reverse, or neither.
    #[error("message type {0} is not the one expected here")]
    Direction(u32),
}
