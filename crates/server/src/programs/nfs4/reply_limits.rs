//! What is left of the bounds of a reply: the session's (RFC 8881 section 2.10.6.1), or those of a COMPOUND
//! without a session.
//!
//! A reply stays in memory until the client has read it. So every reply has a bound, which holds while it is
//! built and includes the attached payload. NFSv4.0 has no sessions; its error is NFS4ERR_RESOURCE (RFC 7530
//! section 13.1.10.2).

use proto::nfs4::Nfsstat4;

use super::context::Context;
use super::status::Result;
use crate::service::limits::{MAX_DRC_REPLY, MAX_REPLY};

/// What RPC puts before a result, in bytes: a session's bounds count it.
const RPC_HEADER: usize = 24;
/// What every operation leaves to the one after it, in bytes: the number, the status, and the bitmap of a
/// SETATTR that fails. So an operation that has no room can still be answered.
const NEXT_OPERATION: usize = 3 * xdr::UNIT;

/// The bounds of a reply at the operation that is executed, in bytes with the RPC header.
struct ReplyLimits {
    whole: usize,
    /// The bound of a reply that is kept for a retransmission.
    kept: Option<usize>,
}

impl Context<'_> {
    /// Whether the reply has room for `more` bytes.
    ///
    /// # Errors
    /// `RepTooBig`, `RepTooBigToCache`; without a session `Resource`.
    pub fn check_room(&mut self, more: usize) -> Result<()> {
        let length = self.reply_length() + more;
        let limits = self.reply_limits();
        let in_session = self.ticket.is_some();
        if length > limits.whole {
            Err(if in_session { Nfsstat4::RepTooBig } else { Nfsstat4::Resource })
        } else if limits.kept.is_some_and(|kept| length > kept) {
            Err(if in_session { Nfsstat4::RepTooBigToCache } else { Nfsstat4::Resource })
        } else {
            Ok(())
        }
    }

    /// How many bytes the reply may still grow by: whole units of XDR, so that padding fits, too.
    pub fn room(&mut self) -> usize {
        let limits = self.reply_limits();
        let bound = limits.kept.map_or(limits.whole, |kept| kept.min(limits.whole));
        bound.saturating_sub(self.reply_length()) / xdr::UNIT * xdr::UNIT
    }

    /// The error of a page without an entry: the reply's if that has no room for the `allowed` bytes of the
    /// client, else `otherwise`.
    pub fn no_room_for(&mut self, allowed: usize, otherwise: Nfsstat4) -> Nfsstat4 {
        self.check_room(allowed).err().unwrap_or(otherwise)
    }

    /// The reply's length so far, as the bounds count it.
    fn reply_length(&mut self) -> usize {
        let attached = self.reply.attachment().map_or(0, rpc::server::Attachment::len);
        self.reply.encoder().position() - self.start + RPC_HEADER + attached
    }

    fn reply_limits(&self) -> ReplyLimits {
        let (whole, kept) = match &self.ticket {
            Some(ticket) => {
                let channel = ticket.channel;
                (channel.response as usize, self.cache_this.then_some(channel.cached as usize))
            }
            None => (MAX_REPLY as usize, self.drc_keeps.then_some(MAX_DRC_REPLY)),
        };
        let is_last = self.index == self.operations;
        let left = |bound: usize| if is_last { bound } else { bound.saturating_sub(NEXT_OPERATION) };
        ReplyLimits { whole: left(whole), kept: kept.map(left) }
    }
}
