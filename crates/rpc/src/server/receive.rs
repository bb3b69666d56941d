//! The receiving half of a connection: from the socket to whole calls, with as few copies and as little
//! memory as the stream allows.
//!
//! - Small calls arrive in batches in the driving worker's buffer. Without a driver, a connection holds at
//!   most the beginning of one call.
//! - A large call needs a permit and gets a buffer of its own size. It is received straight into that buffer,
//!   and the receive stops at its end. The next call is then expected to be large too, so the first receive
//!   is short and little has to be copied from the batch into the large buffer.
//! - A call in several fragments, which common clients never send, is assembled by [`record::Reader`] under a
//!   permit that grows with the bytes that arrive.

use std::{ops::Range, os::fd::OwnedFd, sync::Arc, time::Instant};

use rustix::io::Errno;

use super::{
    PayloadAlignment, Program,
    memory::{BATCH, Chunk, LARGE, Permit, ReceiveMemory, rounded},
    payload_alignment::{self, gap},
    turn::DriverTurn,
};
use crate::record::{self, Framing, MARK, Reader};
use crate::transport::Transport;

/// The most bytes of an unfinished small call that a connection keeps without a permit.
const KEPT: usize = 4 << 10;

/// The longest call of a stranger, in bytes. A longer one is denied and not received.
const STRANGERS_RECORD: usize = 4 << 10;

/// The number of its bytes that are received before it is denied: a call's header with credential and
/// verifier is shorter.
const STRANGERS_HEAD: usize = 1 << 10;

/// The length of the first receive, and of the shortest one while calls are small.
const SMALL_REACH: usize = 16 << 10;

/// The length of a receive when a large call is expected: an RPC header and an NFS WRITE's arguments.
const LARGE_REACH: usize = 256;

/// What comes next in the stream.
#[derive(Debug)]
pub enum Next {
    /// A whole call.
    Call(Arc<Chunk>, Range<usize>),
    /// The beginning of a call that is longer than a stranger's may be. The rest is skipped.
    Cut(Arc<Chunk>, Range<usize>),
    /// More must be received first.
    Receive,
    /// A permit for this many (further) bytes is needed first.
    Permit(usize),
}

/// The result of a receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// Some bytes. If `drained`, the socket is probably empty.
    Some {
        /// Fewer bytes arrived than there was room for.
        drained: bool,
    },
    /// The socket is empty.
    Nothing,
    /// The peer will send no more.
    End,
}

/// A large call that is being received.
#[derive(Debug)]
enum Large {
    /// The call follows the first `start` bytes.
    Whole {
        bytes: Vec<u8>,
        start: usize,
        filled: usize,
        permit: Permit,
    },
    Fragments {
        reader: Reader,
        permit: Permit,
    },
}

/// The receiving half.
#[derive(Debug)]
pub struct Receive {
    /// The driver's role.
    pub turn: DriverTurn,
    /// The number of calls so far.
    pub calls: u64,
    /// The number of bytes received so far.
    pub bytes: u64,
    /// The peer will send no more.
    pub ended: bool,
    /// The connection has been closed.
    pub closed: bool,
    /// The connection waits for a permit.
    pub queued: bool,
    /// The bytes that it holds while it waits, as counted by [`ReceiveMemory::hold`].
    pub held: usize,
    /// When the reception of the large call began.
    pub large_since: Option<Instant>,
    max_record: usize,
    batch: Option<Arc<Chunk>>,
    unread: Range<usize>,
    /// Bytes of a stranger's call that will arrive and are to be skipped.
    skipped: usize,
    reach: usize,
    /// The alignment of the next large call's payload.
    alignment: PayloadAlignment,
    large: Option<Large>,
    /// [`Receive::next`] found no call, and nothing has been received since.
    found_none: bool,
}

impl Receive {
    /// A connection that has received nothing. Calls may have at most `max_record` bytes.
    pub fn new(max_record: usize) -> Self {
        Self {
            turn: DriverTurn::default(),
            calls: 0,
            bytes: 0,
            ended: false,
            closed: false,
            queued: false,
            held: 0,
            large_since: None,
            max_record,
            batch: None,
            unread: 0..0,
            skipped: 0,
            reach: SMALL_REACH,
            alignment: PayloadAlignment::Anywhere,
            large: None,
            found_none: true,
        }
    }

    /// Takes the next call out of the received bytes. `programs` are asked for the alignment of payloads, if
    /// any program wants one. The call of a `stranger` has a bound of its own.
    pub fn next(
        &mut self,
        programs: Option<&[Arc<dyn Program>]>,
        stranger: bool,
    ) -> Result<Next, record::Error> {
        let next = self.look(programs, stranger)?;
        self.found_none = matches!(next, Next::Receive);
        Ok(next)
    }

    /// As [`Receive::next`].
    #[inline]
    fn look(&mut self, programs: Option<&[Arc<dyn Program>]>, stranger: bool) -> Result<Next, record::Error> {
        if let Some(large) = &mut self.large {
            let whole = match large {
                Large::Whole { bytes, start, filled, .. } => *start + *filled == bytes.len(),
                Large::Fragments { reader, permit } => {
                    let batch = self.batch.as_deref().map_or(&[][..], |chunk| &chunk.bytes);
                    let mut unread = &batch[self.unread.clone()];
                    let more = pieces(reader.held() + unread.len(), self.max_record);
                    if let Some(more) = more.checked_sub(permit.bytes()).filter(|more| *more > 0) {
                        return Ok(Next::Permit(more));
                    }
                    let record = reader.take(&mut unread)?;
                    self.unread.start = self.unread.end - unread.len();
                    match record {
                        Some(record) => return Ok(self.large_call(Some(record))),
                        None => false,
                    }
                }
            };
            return Ok(if whole { self.large_call(None) } else { Next::Receive });
        }
        let Some(chunk) = &self.batch else { return Ok(Next::Receive) };
        let unread = &chunk.bytes[self.unread.clone()];
        let Some((mark, rest)) = unread.split_first_chunk::<MARK>() else { return Ok(Next::Receive) };
        let fragment = Framing::new(self.max_record).mark(*mark)?;
        if stranger && !fragment.only {
            return Err(record::Error::TooLong { length: fragment.length, max: STRANGERS_RECORD });
        }
        if stranger && fragment.length > STRANGERS_RECORD {
            if rest.len() < STRANGERS_HEAD {
                return Ok(Next::Receive);
            }
            let start = self.unread.start + MARK;
            let end = start + rest.len().min(fragment.length);
            self.skipped = fragment.length - (end - start);
            self.unread.start = end;
            self.calls += 1;
            return Ok(Next::Cut(Arc::clone(chunk), start..end));
        }
        if !fragment.only {
            return self.fragments();
        }
        if rest.len() >= fragment.length {
            let start = self.unread.start + MARK;
            self.unread.start = start + fragment.length;
            self.calls += 1;
            return Ok(Next::Call(Arc::clone(chunk), start..start + fragment.length));
        }
        self.alignment = programs
            .map_or(PayloadAlignment::Anywhere, |programs| payload_alignment::of_call(programs, rest));
        Ok(match self.alignment {
            PayloadAlignment::NotYet => Next::Receive,
            PayloadAlignment::At { .. } => Next::Permit(rounded(fragment.length)),
            PayloadAlignment::Anywhere if fragment.length > LARGE => Next::Permit(rounded(fragment.length)),
            PayloadAlignment::Anywhere => Next::Receive,
        })
    }

    /// The next call, which is in several fragments, out of what has been received.
    #[cold]
    fn fragments(&mut self) -> Result<Next, record::Error> {
        let Some(chunk) = &self.batch else { return Ok(Next::Receive) };
        let unread = &chunk.bytes[self.unread.clone()];
        let mut rest = unread;
        if let Some(bytes) = Reader::new(self.max_record).take(&mut rest)? {
            self.unread.start = self.unread.end - rest.len();
            self.calls += 1;
            let length = bytes.len();
            return Ok(Next::Call(Arc::new(Chunk { bytes, permit: None }), 0..length));
        }
        // A few bytes cost no more than the beginning of a small call.
        Ok(if unread.len() <= KEPT {
            Next::Receive
        } else {
            Next::Permit(pieces(unread.len(), self.max_record))
        })
    }

    /// Returns the large call, which is whole.
    fn large_call(&mut self, assembled: Option<Vec<u8>>) -> Next {
        let (bytes, start, permit) = match (self.large.take(), assembled) {
            (Some(Large::Fragments { permit, .. }), Some(bytes)) => (bytes, 0, permit),
            (Some(Large::Whole { bytes, start, permit, .. }), _) => (bytes, start, permit),
            _ => return Next::Receive,
        };
        self.large_since = None;
        self.calls += 1;
        let length = bytes.len();
        Next::Call(Arc::new(Chunk { bytes, permit: Some(permit) }), start..length)
    }

    /// Whether [`Receive::next`] may have a result without receiving more: bytes that nobody has looked at
    /// may be a call, or an error, and only [`Receive::next`] can tell.
    pub fn has_next(&self) -> bool {
        match &self.large {
            Some(Large::Whole { bytes, start, filled, .. }) => *start + *filled == bytes.len(),
            _ => !self.found_none && !self.unread.is_empty(),
        }
    }

    /// Begins the large call for which [`Receive::next`] wanted `permit`.
    pub fn begin_large(&mut self, permit: Permit, memory: &ReceiveMemory) {
        self.queued = false;
        if let Some(Large::Fragments { permit: had, .. }) = &mut self.large {
            had.merge(permit);
            return;
        }
        self.reach = LARGE_REACH;
        self.large_since = Some(Instant::now());
        let batch = self.batch.as_deref().map_or(&[][..], |chunk| &chunk.bytes);
        let unread = &batch[self.unread.clone()];
        let Some((mark, rest)) = unread.split_first_chunk::<MARK>() else { return };
        // The mark was valid when the permit was requested, and nothing has been received since.
        let Ok(fragment) = Framing::new(self.max_record).mark(*mark) else { return };
        if !fragment.only {
            self.large = Some(Large::Fragments { reader: Reader::new(self.max_record), permit });
            return;
        }
        let mut bytes = memory.buffer(fragment.length);
        let start = match std::mem::replace(&mut self.alignment, PayloadAlignment::Anywhere) {
            PayloadAlignment::At { at, offset } => gap(bytes.as_ptr().addr(), at, offset),
            _ => 0,
        };
        // The length stays within the capacity, so the bytes don't move.
        bytes.resize(start + fragment.length, 0);
        let filled = rest.len().min(fragment.length);
        bytes[start..start + filled].copy_from_slice(&rest[..filled]);
        self.unread = 0..0;
        self.large = Some(Large::Whole { bytes, start, filled, permit });
    }

    /// The number of received bytes of an unfinished large call, if there is one.
    pub fn large_progress(&self) -> Option<usize> {
        match self.large.as_ref()? {
            Large::Whole { filled, .. } => Some(*filled),
            Large::Fragments { reader, .. } => Some(reader.held()),
        }
    }

    /// Receives once. `spare` is the worker's buffer, taken if needed. With `aligning`, receives no more than
    /// the next call's beginning.
    pub fn receive(
        &mut self,
        transport: &Transport<OwnedFd>,
        spare: &mut Option<Arc<Chunk>>,
        aligning: bool,
    ) -> Result<Received, Errno> {
        let (room, brought) = if let Some(Large::Whole { bytes, start, filled, .. }) = &mut self.large {
            let into = &mut bytes[*start + *filled..];
            let room = into.len();
            let brought = transport.receive(into);
            if let Ok(brought) = brought {
                *filled += brought;
            }
            (room, brought)
        } else {
            if aligning {
                self.reach = self.reach.min(payload_alignment::HEAD_REACH);
            }
            let into = self.make_room(spare);
            let room = into.len();
            let brought = transport.receive(into);
            if let Ok(brought) = brought {
                self.unread.end += brought;
                let forgotten = self.skipped.min(self.unread.len());
                self.skipped -= forgotten;
                self.unread.start += forgotten;
                if brought == room {
                    self.reach = (self.reach * 2).clamp(SMALL_REACH, BATCH);
                }
            }
            (room, brought)
        };
        match brought {
            Ok(0) => Ok(Received::End),
            Ok(brought) => {
                self.bytes += brought as u64;
                self.found_none = false;
                Ok(Received::Some { drained: brought < room })
            }
            Err(Errno::AGAIN) => Ok(Received::Nothing),
            Err(error) => Err(error),
        }
    }

    /// The buffer for the next bytes: behind the unread ones, in a buffer that no other worker reads.
    fn make_room(&mut self, spare: &mut Option<Arc<Chunk>>) -> &mut [u8] {
        let unread = self.unread.len();
        let fits =
            |chunk: &mut Arc<Chunk>| Arc::get_mut(chunk).is_some_and(|chunk| chunk.bytes.len() == BATCH);
        if !self.batch.as_mut().is_some_and(fits) {
            // The unread bytes are in a small buffer, or in one that a detached worker still reads.
            let mut fresh =
                spare.take().filter(|chunk| Arc::strong_count(chunk) == 1).unwrap_or_else(Chunk::batch);
            if let (Some(to), Some(old)) = (Arc::get_mut(&mut fresh), &self.batch) {
                to.bytes[..unread].copy_from_slice(&old.bytes[self.unread.clone()]);
            }
            self.batch = Some(fresh);
            self.unread = 0..unread;
        }
        let Some(chunk) = self.batch.as_mut().and_then(Arc::get_mut) else { return &mut [] };
        if unread == 0 {
            self.unread = 0..0;
        } else if BATCH - self.unread.end < self.reach {
            chunk.bytes.copy_within(self.unread.clone(), 0);
            self.unread = 0..unread;
        }
        let end = self.unread.end;
        &mut chunk.bytes[end..BATCH.min(end + self.reach)]
    }

    /// Gives the worker its buffer back before the turn is released, and keeps only the unread bytes, in a
    /// buffer of their size. Returns how many there are.
    pub fn rest(&mut self, spare: &mut Option<Arc<Chunk>>) -> usize {
        let Some(mut chunk) = self.batch.take() else { return 0 };
        let unread = self.unread.len();
        if unread > 0 && chunk.bytes.len() == BATCH {
            let kept = chunk.bytes[self.unread.clone()].to_vec();
            self.batch = Some(Arc::new(Chunk { bytes: kept, permit: None }));
            self.unread = 0..unread;
        } else if unread > 0 {
            self.batch = Some(chunk);
            return unread;
        } else {
            self.unread = 0..0;
        }
        if spare.is_none() && chunk.bytes.len() == BATCH && Arc::get_mut(&mut chunk).is_some() {
            *spare = Some(chunk);
        }
        unread
    }

    /// The permit that the unfinished call needs, if more of it has arrived than may be kept without one.
    pub fn wants_permit(&self) -> Option<usize> {
        if self.large.is_some() || self.queued || self.unread.len() <= KEPT {
            return None;
        }
        let bytes = &self.batch.as_deref()?.bytes[self.unread.clone()];
        let mark = bytes.first_chunk::<MARK>()?;
        let fragment = Framing::new(self.max_record).mark(*mark).ok()?;
        (fragment.only && bytes.len() < MARK + fragment.length).then(|| rounded(fragment.length))
    }

    /// Discards everything. The returned buffers must be dropped outside the lock.
    pub fn clear(&mut self) -> impl Sized + use<> {
        self.unread = 0..0;
        self.large_since = None;
        (self.batch.take(), self.large.take())
    }
}

/// The memory for a call in fragments of which `length` bytes have arrived.
fn pieces(length: usize, max_record: usize) -> usize {
    rounded(length.min(max_record))
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, os::unix::net::UnixStream};

    use super::*;

    /// A worker leaves after some number of receives, whatever it received last. If nobody looked at these
    /// bytes then, a connection whose peer sends no more would wait for ever.
    #[test]
    fn received_bytes_are_looked_at_once() {
        let (mut peer, socket) = UnixStream::pair().unwrap();
        let transport = Transport::plain(OwnedFd::from(socket));
        let (mut receive, mut spare) = (Receive::new(1 << 20), None);
        assert!(!receive.has_next(), "nothing has arrived");
        // The beginning of a small call.
        peer.write_all(&[0x80, 0, 0, 8, 1, 2]).unwrap();
        receive.receive(&transport, &mut spare, false).unwrap();
        receive.rest(&mut spare);
        assert!(receive.has_next());
        assert!(matches!(receive.next(None, true), Ok(Next::Receive)));
        assert!(!receive.has_next(), "nothing else has arrived");
        // Its rest, and the first of several fragments, which is an error of a stranger only.
        peer.write_all(&[3, 4, 5, 6, 7, 8, 0, 0, 0, 8]).unwrap();
        receive.receive(&transport, &mut spare, false).unwrap();
        assert!(receive.has_next());
        assert!(matches!(receive.next(None, true), Ok(Next::Call(..))));
        receive.rest(&mut spare);
        assert!(receive.has_next());
        assert!(receive.next(None, true).is_err());
    }
}
