//! A connection's receiving half: from the socket to whole calls, with as few copies and as little memory as
//! the stream allows.
//!
//! - Small calls come in batches into the driving worker's buffer. Between drives a connection holds at most
//!   the beginning of one call.
//! - A large call gets a buffer of its own size, for which there must be a permit, and is received straight
//!   into it, not a byte further. After a large call the next one is expected to be large too: then the first
//!   receive is short, so that next to nothing has to be copied from the batch into the large buffer.
//! - A call in several fragments (nobody's fast path) is put together by [`record::Reader`], under a permit
//!   that grows with what has come.

use std::{ops::Range, sync::Arc, time::Instant};

use rustix::{
    io::Errno,
    net::{RecvFlags, recv},
};

use super::{
    Placement, Program,
    memory::{BATCH, Chunk, LARGE, Memory, Permit, rounded},
    placing::{self, gap},
    turn::Turn,
};
use crate::record::{self, Framing, MARK, Reader};

/// The most of an unfinished small call that a connection keeps without a permit.
const KEPT: usize = 4 << 10;

/// The longest call of a stranger, in bytes; a longer one is denied and not received.
const STRANGERS_RECORD: usize = 4 << 10;

/// So much of it is waited for: a call's header with credential and verifier is shorter.
const STRANGERS_HEAD: usize = 1 << 10;

/// How far the first receive reaches, and the shortest one when calls are small.
const SMALL_REACH: usize = 16 << 10;

/// How far a receive reaches when a large call is expected: an RPC header and an NFS WRITE's arguments.
const LARGE_REACH: usize = 256;

/// What the stream has next.
#[derive(Debug)]
pub enum Next {
    /// A whole call.
    Call(Arc<Chunk>, Range<usize>),
    /// The beginning of a call that is longer than a stranger's may be. The rest won't be received.
    Cut(Arc<Chunk>, Range<usize>),
    /// Nothing before more is received.
    Receive,
    /// A permit for so many bytes (more) must be had first.
    Permit(usize),
}

/// What a receive brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// Something; if `drained`, the socket has probably no more.
    Some {
        /// Less came than there was room for.
        drained: bool,
    },
    /// Nothing is there.
    Nothing,
    /// The peer will send no more.
    End,
}

/// A large call that is coming in.
#[derive(Debug)]
enum Large {
    /// The call is what is behind the first `start` bytes.
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
    /// Who drives.
    pub turn: Turn,
    /// Calls found so far.
    pub calls: u64,
    /// Bytes received so far.
    pub bytes: u64,
    /// The peer will send no more.
    pub ended: bool,
    /// The connection has been closed.
    pub closed: bool,
    /// The connection is in the queue for a permit.
    pub queued: bool,
    /// What it holds while it waits there, as counted by [`Memory::hold`].
    pub held: usize,
    /// Since when the large call is coming in, and how much of it has come.
    pub large_since: Option<Instant>,
    max_record: usize,
    batch: Option<Arc<Chunk>>,
    unread: Range<usize>,
    /// Bytes of a stranger's call that are still to come and to be forgotten.
    skipped: usize,
    reach: usize,
    /// Where the payload of the large call to come should lie.
    place: Placement,
    large: Option<Large>,
}

impl Receive {
    /// Nothing received yet. Calls may have at most `max_record` bytes.
    pub fn new(max_record: usize) -> Self {
        Self {
            turn: Turn::default(),
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
            place: Placement::Anywhere,
            large: None,
        }
    }

    /// Takes the next call out of what has been received. `programs` are asked where payloads should lie, if
    /// any of them cares. The call of a `stranger` has a bound of its own.
    pub fn next(
        &mut self,
        programs: Option<&[Arc<dyn Program>]>,
        stranger: bool,
    ) -> Result<Next, record::Error> {
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
        self.place = programs.map_or(Placement::Anywhere, |programs| placing::place(programs, rest));
        Ok(match self.place {
            Placement::NotYet => Next::Receive,
            Placement::At { .. } => Next::Permit(rounded(fragment.length)),
            Placement::Anywhere if fragment.length > LARGE => Next::Permit(rounded(fragment.length)),
            Placement::Anywhere => Next::Receive,
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

    /// Ends the large call that is whole now.
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

    /// Whether [`Receive::next`] has something to say without receiving more.
    pub fn has_next(&self) -> bool {
        match &self.large {
            Some(Large::Whole { bytes, start, filled, .. }) => *start + *filled == bytes.len(),
            Some(Large::Fragments { .. }) => !self.unread.is_empty(),
            None => {
                let Some(chunk) = &self.batch else { return false };
                let unread = &chunk.bytes[self.unread.clone()];
                let Some((mark, rest)) = unread.split_first_chunk::<MARK>() else { return false };
                match Framing::new(self.max_record).mark(*mark) {
                    Ok(fragment) if fragment.only => rest.len() >= fragment.length,
                    // To put a few bytes together costs less than to remember that there is nothing new.
                    Ok(_) => unread.len() > KEPT || self.is_whole(unread),
                    // A broken mark is something to say, too.
                    Err(_) => true,
                }
            }
        }
    }

    /// Whether a record in several fragments is there, or a broken one.
    #[cold]
    fn is_whole(&self, mut unread: &[u8]) -> bool {
        !matches!(Reader::new(self.max_record).take(&mut unread), Ok(None))
    }

    /// Begins the large call that [`Receive::next`] wanted `permit` for.
    pub fn begin_large(&mut self, permit: Permit, memory: &Memory) {
        self.queued = false;
        if let Some(Large::Fragments { permit: had, .. }) = &mut self.large {
            had.absorb(permit);
            return;
        }
        self.reach = LARGE_REACH;
        self.large_since = Some(Instant::now());
        let batch = self.batch.as_deref().map_or(&[][..], |chunk| &chunk.bytes);
        let unread = &batch[self.unread.clone()];
        let Some((mark, rest)) = unread.split_first_chunk::<MARK>() else { return };
        // The mark was good when the permit was asked for, and nothing has been received since.
        let Ok(fragment) = Framing::new(self.max_record).mark(*mark) else { return };
        if !fragment.only {
            self.large = Some(Large::Fragments { reader: Reader::new(self.max_record), permit });
            return;
        }
        let mut bytes = memory.buffer(fragment.length);
        let start = match std::mem::replace(&mut self.place, Placement::Anywhere) {
            Placement::At { at, offset } => gap(bytes.as_ptr().addr(), at, offset),
            _ => 0,
        };
        // Within its capacity: the bytes stay where they are.
        bytes.resize(start + fragment.length, 0);
        let filled = rest.len().min(fragment.length);
        bytes[start..start + filled].copy_from_slice(&rest[..filled]);
        self.unread = 0..0;
        self.large = Some(Large::Whole { bytes, start, filled, permit });
    }

    /// Whether a large call is unfinished, and how many of its bytes have come.
    pub fn large_progress(&self) -> Option<usize> {
        match self.large.as_ref()? {
            Large::Whole { filled, .. } => Some(*filled),
            Large::Fragments { reader, .. } => Some(reader.held()),
        }
    }

    /// Receives once. `spare` is the worker's buffer; it is taken if needed. With `placing` no more than the
    /// next call's beginning.
    pub fn receive(
        &mut self,
        socket: &impl std::os::fd::AsFd,
        spare: &mut Option<Arc<Chunk>>,
        placing: bool,
    ) -> Result<Received, Errno> {
        let (room, brought) = if let Some(Large::Whole { bytes, start, filled, .. }) = &mut self.large {
            let into = &mut bytes[*start + *filled..];
            let room = into.len();
            let brought = retry(|| recv(socket, &mut *into, RecvFlags::DONTWAIT)).map(|(brought, _)| brought);
            if let Ok(brought) = brought {
                *filled += brought;
            }
            (room, brought)
        } else {
            if placing {
                self.reach = self.reach.min(placing::REACH);
            }
            let into = self.make_room(spare);
            let room = into.len();
            let brought = retry(|| recv(socket, &mut *into, RecvFlags::DONTWAIT)).map(|(brought, _)| brought);
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
                Ok(Received::Some { drained: brought < room })
            }
            Err(Errno::AGAIN) => Ok(Received::Nothing),
            Err(error) => Err(error),
        }
    }

    /// Where the next bytes go: behind the unread ones, in a buffer that nobody else looks at.
    fn make_room(&mut self, spare: &mut Option<Arc<Chunk>>) -> &mut [u8] {
        let unread = self.unread.len();
        let fits =
            |chunk: &mut Arc<Chunk>| Arc::get_mut(chunk).is_some_and(|chunk| chunk.bytes.len() == BATCH);
        if !self.batch.as_mut().is_some_and(fits) {
            // The beginning of a call in a small buffer, or a buffer that a detached worker still reads.
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

    /// Before the turn is released: gives the worker its buffer back and keeps only what is unread, in a
    /// buffer of its size. Returns how many bytes those are.
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

    /// How much must be permitted for the unfinished call, if so much of it is there that it may not be kept
    /// without.
    pub fn wants_permit(&self) -> Option<usize> {
        if self.large.is_some() || self.queued || self.unread.len() <= KEPT {
            return None;
        }
        let bytes = &self.batch.as_deref()?.bytes[self.unread.clone()];
        let mark = bytes.first_chunk::<MARK>()?;
        let fragment = Framing::new(self.max_record).mark(*mark).ok()?;
        (fragment.only && bytes.len() < MARK + fragment.length).then(|| rounded(fragment.length))
    }

    /// Forgets everything; what is returned must be dropped outside the lock.
    pub fn clear(&mut self) -> impl Sized + use<> {
        self.unread = 0..0;
        self.large_since = None;
        (self.batch.take(), self.large.take())
    }
}

/// The memory for a call in fragments, of which `length` bytes have come.
fn pieces(length: usize, max_record: usize) -> usize {
    rounded(length.min(max_record))
}

/// Again after a signal.
fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}
