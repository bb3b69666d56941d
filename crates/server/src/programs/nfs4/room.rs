//! How long requests and replies may be: a session's bounds (RFC 8881 section 2.10.6.1), those of a COMPOUND
//! without a session, and what is left of them.
//!
//! A reply lies in memory until the client has read it, so every reply has a bound, and counts while it is
//! built, the payload that is attached to it included. NFSv4.0 has no sessions, and says NFS4ERR_RESOURCE
//! (RFC 7530 section 13.1.10.2).

use proto::nfs4::Nfsstat4;

use super::Result;
use super::compound::Compound;
use crate::programs::nfs3::MAX_TRANSFER;

/// The largest request of a session: a WRITE of the largest size, and what is around it.
pub(super) const MAX_REQUEST: u32 = MAX_TRANSFER + (6 << 10);
/// The largest reply, of a session and without one: a READ of the largest size, and what is around it.
pub(super) const MAX_REPLY: u32 = MAX_TRANSFER + (6 << 10);
/// The largest reply that is kept for a retry.
pub(super) const MAX_CACHED_REPLY: u32 = 8 << 10;
/// The largest reply that the duplicate-request cache is given: it keeps two mebibytes for all clients of
/// NFSv3 and 4.0 together.
const MAX_REMEMBERED_REPLY: usize = 64 << 10;
/// The most operations in a COMPOUND.
pub(super) const MAX_OPERATIONS: u32 = 128;
/// What RPC puts before a result: counted in a session's bounds.
const RPC_HEADER: usize = 24;
/// What every operation leaves to the one after it: the number, the status, and a bitmap where SETATTR fails.
/// So an operation that has no room can be answered at all.
const NEXT: usize = 3 * xdr::UNIT;

/// What a reply may become with the operation that is run, in bytes with the RPC header.
struct Bounds {
    whole: usize,
    /// If it is to be kept for a retry.
    kept: Option<usize>,
}

impl Compound<'_> {
    /// Whether the reply has room for `more` bytes.
    pub fn check_room(&mut self, more: usize) -> Result<()> {
        let length = self.length() + more;
        let bounds = self.bounds();
        if length > bounds.whole {
            Err(self.too_long())
        } else if bounds.kept.is_some_and(|kept| length > kept) {
            Err(self.too_long_to_keep())
        } else {
            Ok(())
        }
    }

    /// How many bytes the reply may still become longer: whole units of XDR, so that padding fits, too.
    pub fn room(&mut self) -> usize {
        let bounds = self.bounds();
        let bound = bounds.kept.map_or(bounds.whole, |kept| kept.min(bounds.whole));
        bound.saturating_sub(self.length()) / xdr::UNIT * xdr::UNIT
    }

    /// The error of a page without an entry: it is the reply's if that had no room for the `allowed` bytes of
    /// the client, else `otherwise`.
    pub fn no_room_for(&mut self, allowed: usize, otherwise: Nfsstat4) -> Nfsstat4 {
        self.check_room(allowed).err().unwrap_or(otherwise)
    }

    /// The reply's length so far, as the bounds count it.
    fn length(&mut self) -> usize {
        let attached = self.reply.attachment().map_or(0, rpc::server::Attachment::len);
        self.reply.encoder().position() - self.start + RPC_HEADER + attached
    }

    fn bounds(&self) -> Bounds {
        let (whole, kept) = match &self.ticket {
            Some(ticket) => {
                let channel = ticket.channel;
                (channel.response as usize, self.cache_this.then_some(channel.cached as usize))
            }
            None => (MAX_REPLY as usize, self.once.is_some().then_some(MAX_REMEMBERED_REPLY)),
        };
        let left =
            |bound: usize| if self.index < self.operations { bound.saturating_sub(NEXT) } else { bound };
        Bounds { whole: left(whole), kept: kept.map(left) }
    }

    const fn too_long(&self) -> Nfsstat4 {
        if self.ticket.is_some() { Nfsstat4::RepTooBig } else { Nfsstat4::Resource }
    }

    const fn too_long_to_keep(&self) -> Nfsstat4 {
        if self.ticket.is_some() { Nfsstat4::RepTooBigToCache } else { Nfsstat4::Resource }
    }
}
