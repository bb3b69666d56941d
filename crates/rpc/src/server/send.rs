//! The sending half of a connection: finished replies, in the order in which they were finished.
//!
//! Several workers may finish replies of one connection. The first one sends, without holding the lock; the
//! others leave theirs in the queue, and the first one sends those too. When the socket is full the queue
//! stays, the connection is *blocked*, and no further call of it is run until the socket has room again.

use std::{collections::VecDeque, os::fd::OwnedFd, sync::Arc, time::Instant};

use parking_lot::Mutex;

use super::{
    Peer,
    pieces::{Piece, REPLY_BUFFER, Sent, send_pieces},
    reply::{Attachment, FilePart},
    unread_replies::UnreadReplies,
};
use crate::transport::Transport;

/// A reply longer than this, in bytes, becomes a piece of its own instead of being copied behind the previous
/// one.
const COPIED: usize = 16 << 10;

/// The state of the queue after a flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flushed {
    /// Everything is sent, or another worker is sending it.
    Done,
    /// The socket is full.
    Blocked,
    /// The connection is lost or closed.
    Broken,
}

/// The part under the lock.
#[derive(Debug, Default)]
struct SendQueue {
    pieces: VecDeque<Piece>,
    /// Bytes in memory that aren't sent yet.
    memory: usize,
    /// Bytes not sent yet, files included.
    total: u64,
    sending: bool,
    broken: bool,
    blocked_since: Option<Instant>,
    moved_since_blocked: u64,
    /// The part of `memory` that is counted as unread.
    counted: usize,
    bytes_out: u64,
}

/// The sending half.
#[derive(Debug)]
pub struct Send {
    queue: Mutex<SendQueue>,
    unread: Arc<UnreadReplies>,
    peer: Peer,
}

impl Send {
    /// An empty queue to `peer`.
    pub fn new(unread: Arc<UnreadReplies>, peer: Peer) -> Self {
        Self { queue: Mutex::default(), unread, peer }
    }

    /// Counts `bytes` of the queue as unread.
    fn count(&self, queue: &mut SendQueue, bytes: usize) {
        if queue.counted != bytes {
            queue.counted = bytes;
            self.unread.set(&self.peer, bytes);
        }
    }

    /// Empties the queue for good. The pieces are to be dropped without the lock.
    fn give_up(&self, queue: &mut SendQueue) -> VecDeque<Piece> {
        queue.broken = true;
        (queue.memory, queue.total, queue.blocked_since) = (0, 0, None);
        self.count(queue, 0);
        std::mem::take(&mut queue.pieces)
    }

    /// Adds a reply, mark included, to the end of the queue. `reply` is left empty, with or without its
    /// buffer. Returns how many bytes wait, files included.
    pub fn push(
        &self,
        reply: &mut Vec<u8>,
        attachment: Option<Attachment>,
        spares: &mut Vec<Vec<u8>>,
    ) -> u64 {
        let mut queue = self.queue.lock();
        if queue.broken {
            reply.clear();
            return 0;
        }
        let length = reply.len();
        queue.memory += length;
        queue.total += length as u64;
        match queue.pieces.back_mut() {
            Some(Piece::Bytes { bytes, .. })
                if length <= COPIED && bytes.capacity() - bytes.len() >= length =>
            {
                bytes.extend_from_slice(reply);
                reply.clear();
            }
            _ => {
                let fresh = spares.pop().unwrap_or_else(|| Vec::with_capacity(REPLY_BUFFER));
                queue.pieces.push_back(Piece::Bytes { bytes: std::mem::replace(reply, fresh), sent: 0 });
            }
        }
        if let Some(attachment) = attachment.filter(|attachment| !attachment.is_empty()) {
            let length = attachment.len();
            let padding = xdr::padding(length) as u64;
            queue.total += length as u64 + padding;
            let piece = match attachment {
                Attachment::File(FilePart { file, offset, length }) => {
                    Piece::File { file, offset, left: length.into() }
                }
                Attachment::Memory(bytes) => {
                    queue.memory += length;
                    Piece::Payload { bytes, sent: 0 }
                }
            };
            queue.pieces.push_back(piece);
            if padding > 0 {
                queue.pieces.push_back(Piece::Zeroes { left: padding });
            }
        }
        queue.total
    }

    /// Sends the queue. `writable` means that epoll has reported the socket as writable. Bytes that stay
    /// count as unread, so there may be too many of those afterwards ([`UnreadReplies::surplus`]).
    pub fn flush(
        &self,
        transport: &Transport<OwnedFd>,
        writable: bool,
        spares: &mut Vec<Vec<u8>>,
    ) -> Flushed {
        let mut queue = self.queue.lock();
        if queue.broken {
            return Flushed::Broken;
        }
        if queue.sending || queue.pieces.is_empty() {
            return Flushed::Done;
        }
        if queue.blocked_since.is_some() && !writable {
            let held = queue.memory;
            self.count(&mut queue, held);
            return Flushed::Blocked;
        }
        queue.sending = true;
        loop {
            let mut pieces = std::mem::take(&mut queue.pieces);
            drop(queue);
            let mut sent = Sent::default();
            let outcome = send_pieces(transport, &mut pieces, &mut sent, spares);
            queue = self.queue.lock();
            queue.bytes_out += sent.total;
            queue.total = queue.total.saturating_sub(sent.total);
            queue.memory = queue.memory.saturating_sub(sent.memory);
            if outcome.is_err() || queue.broken {
                queue.sending = false;
                let more = self.give_up(&mut queue);
                drop(queue);
                drop(more);
                return Flushed::Broken;
            }
            if pieces.is_empty() {
                queue.blocked_since = None;
                self.count(&mut queue, 0);
                if queue.pieces.is_empty() {
                    queue.pieces = pieces; // keeps its room
                    queue.sending = false;
                    return Flushed::Done;
                }
                continue;
            }
            pieces.append(&mut queue.pieces);
            for piece in &mut pieces {
                // A peer that doesn't read must not hold a whole buffer for a few bytes.
                if let Piece::Bytes { bytes, .. } = piece {
                    bytes.shrink_to_fit();
                }
            }
            queue.pieces = pieces;
            queue.sending = false;
            if queue.blocked_since.is_none() {
                queue.blocked_since = Some(Instant::now());
                queue.moved_since_blocked = 0;
            }
            queue.moved_since_blocked += sent.total;
            let held = queue.memory;
            self.count(&mut queue, held);
            return Flushed::Blocked;
        }
    }

    /// Whether the socket is full, and whether nothing waits to be sent.
    pub fn state(&self) -> (bool, bool) {
        let queue = self.queue.lock();
        (queue.blocked_since.is_some(), queue.pieces.is_empty() && !queue.sending)
    }

    /// When the socket became full, and how many bytes have moved since then.
    pub fn stalled(&self) -> Option<(Instant, u64)> {
        let queue = self.queue.lock();
        queue.blocked_since.map(|since| (since, queue.moved_since_blocked))
    }

    /// Bytes sent so far.
    pub fn bytes_out(&self) -> u64 {
        self.queue.lock().bytes_out
    }

    /// Discards the queue for good.
    pub fn break_off(&self) {
        let mut queue = self.queue.lock();
        let pieces = self.give_up(&mut queue);
        drop(queue);
        drop(pieces);
    }
}
