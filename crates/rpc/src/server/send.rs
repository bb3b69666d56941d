//! The sending half of a connection: finished replies, in the order in which they were finished.
//!
//! Several workers may finish replies of one connection. The first one sends, without holding the lock; the
//! others leave theirs in the queue, and the first one sends those too. [`SenderTurn`] decides who sends, and
//! when no further call is run because too much waits.

use std::{collections::VecDeque, os::fd::OwnedFd, sync::Arc, time::Instant};

use parking_lot::Mutex;

use super::{
    Peer,
    pieces::{Piece, REPLY_BUFFER, SendError, Sent, send_pieces},
    reply::{Attachment, FilePart},
    sender_turn::{AfterSend, SendInterest, SenderClaim, SenderTurn},
    unread_replies::UnreadReplies,
};
use crate::transport::Transport;

/// A reply longer than this, in bytes, becomes a piece of its own instead of being copied behind the previous
/// one.
const COPIED: usize = 16 << 10;

/// The state of the queue after a flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flushed {
    /// Everything is sent, or another thread is sending it.
    Done,
    /// No call may be run: the socket is full, or too much waits behind what another thread is sending.
    Blocked,
    /// The connection is lost or closed.
    Broken,
}

/// The part under the lock.
#[derive(Debug)]
struct SendQueue {
    pieces: VecDeque<Piece>,
    turn: SenderTurn,
    /// Bytes in memory that aren't sent yet.
    memory: usize,
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
    /// An empty queue to `peer`. No call is run while `limit` bytes wait in it.
    pub fn new(unread: Arc<UnreadReplies>, peer: Peer, limit: usize) -> Self {
        let queue = SendQueue {
            pieces: VecDeque::new(),
            turn: SenderTurn::new(limit as u64),
            memory: 0,
            counted: 0,
            bytes_out: 0,
        };
        Self { queue: Mutex::new(queue), unread, peer }
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
        queue.turn.break_off();
        queue.memory = 0;
        self.count(queue, 0);
        std::mem::take(&mut queue.pieces)
    }

    /// Adds a reply, mark included, to the end of the queue. `reply` is left empty, with or without its
    /// buffer. Returns whether so much waits that it should be sent before another call is run.
    pub fn push(
        &self,
        reply: &mut Vec<u8>,
        attachment: Option<Attachment>,
        spares: &mut Vec<Vec<u8>>,
    ) -> bool {
        let mut queue = self.queue.lock();
        if queue.turn.is_broken() {
            reply.clear();
            return false;
        }
        let length = reply.len();
        queue.memory += length;
        let mut added = length as u64;
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
            added += length as u64 + padding;
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
        queue.turn.add(added)
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
        match queue.turn.claim(writable) {
            SenderClaim::Send => {}
            SenderClaim::Leave => return Flushed::Done,
            SenderClaim::Full => return Flushed::Blocked,
            SenderClaim::Blocked => {
                let held = queue.memory;
                self.count(&mut queue, held);
                return Flushed::Blocked;
            }
            SenderClaim::Broken => return Flushed::Broken,
        }
        loop {
            let mut pieces = std::mem::take(&mut queue.pieces);
            drop(queue);
            let mut sent = Sent::default();
            let outcome = send_pieces(transport, &mut pieces, &mut sent, spares);
            if let Err(SendError::File(error)) = &outcome {
                let peer = self.peer.address;
                tracing::error!(%peer, %error, "closed within a reply: its file can't be read");
            }
            queue = self.queue.lock();
            // What was on its way when the connection was closed isn't counted: its numbers are final then.
            if !queue.turn.is_broken() {
                queue.bytes_out += sent.total;
            }
            queue.memory = (queue.memory + sent.copied).saturating_sub(sent.memory);
            if outcome.is_err() {
                queue.turn.break_off();
            }
            match queue.turn.sent(sent.total, Instant::now()) {
                AfterSend::Send => self.count(&mut queue, 0),
                AfterSend::Done => {
                    debug_assert!(pieces.is_empty(), "everything was sent");
                    self.count(&mut queue, 0);
                    queue.pieces = pieces; // keeps its room
                    return Flushed::Done;
                }
                AfterSend::Blocked => {
                    pieces.append(&mut queue.pieces);
                    for piece in &mut pieces {
                        // A peer that doesn't read must not hold a whole buffer for a few bytes.
                        if let Piece::Bytes { bytes, .. } = piece {
                            bytes.shrink_to_fit();
                        }
                    }
                    queue.pieces = pieces;
                    let held = queue.memory;
                    self.count(&mut queue, held);
                    return Flushed::Blocked;
                }
                AfterSend::Broken => {
                    let more = self.give_up(&mut queue);
                    drop(queue);
                    drop((pieces, more));
                    return Flushed::Broken;
                }
            }
        }
    }

    /// What the connection can continue with, if it has no driver.
    pub fn interest(&self) -> SendInterest {
        self.queue.lock().turn.interest()
    }

    /// Whether nothing waits to be sent, and nobody is sending.
    pub fn is_idle(&self) -> bool {
        self.queue.lock().turn.is_idle()
    }

    /// If the socket is full: since when, and how many bytes have moved since then.
    pub fn stalled(&self) -> Option<(Instant, u64)> {
        self.queue.lock().turn.stalled()
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
