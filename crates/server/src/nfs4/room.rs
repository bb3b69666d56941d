//! How long requests and replies may be: a session's bounds (RFC 8881 section 2.10.6.1), and what is left of them.

use proto::nfs4::Nfsstat4;

use super::Result;
use super::compound::Compound;
use crate::nfs3::MAX_TRANSFER;

/// The largest request of a session: a WRITE of the largest size, and what is around it.
pub(super) const MAX_REQUEST: u32 = MAX_TRANSFER + (6 << 10);
/// The largest reply of a session: a READ of the largest size, and what is around it.
pub(super) const MAX_REPLY: u32 = MAX_TRANSFER + (6 << 10);
/// The largest reply that is kept for a retry.
pub(super) const MAX_CACHED_REPLY: u32 = 8 << 10;
/// The most operations in a COMPOUND.
pub(super) const MAX_OPERATIONS: u32 = 128;
/// What RPC puts before a result: counted in a session's bounds.
const RPC_HEADER: usize = 24;
/// Room that a reply must have left before something is changed: what it has to say about that.
pub(super) const ROOM_TO_CHANGE: usize = 320;

impl Compound<'_> {
    /// Whether the reply has become longer than the session allows.
    pub fn check_length(&mut self) -> Result<()> {
        self.check_room(0)
    }

    /// Whether the reply has room for `more` bytes.
    pub fn check_room(&mut self, more: usize) -> Result<()> {
        let Some(ticket) = &self.ticket else { return Ok(()) };
        let channel = ticket.channel;
        let attached = self.reply.attachment().map_or(0, rpc::server::Attachment::len);
        let length = self.reply.encoder().position() - self.start + RPC_HEADER + attached + more;
        if length > channel.response as usize {
            Err(Nfsstat4::RepTooBig)
        } else if self.cache_this && length > channel.cached as usize {
            Err(Nfsstat4::RepTooBigToCache)
        } else {
            Ok(())
        }
    }

    /// How many bytes the reply may still become longer.
    pub fn room(&mut self) -> usize {
        let Some(ticket) = &self.ticket else { return MAX_REPLY as usize };
        let bound = if self.cache_this {
            ticket.channel.cached.min(ticket.channel.response)
        } else {
            ticket.channel.response
        };
        (bound as usize).saturating_sub(self.reply.encoder().position() - self.start + RPC_HEADER)
    }
}
