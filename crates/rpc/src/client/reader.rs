//! From the byte stream to waiting calls: records, replies, payloads. No I/O.
//!
//! Bytes arrive in a staging buffer, so that one `recv` brings many small replies. When the beginning of a
//! large reply announces a payload for which the caller gave a buffer, the rest of that payload is read
//! straight into that buffer. While such replies are expected the staging buffer accepts only about a header,
//! so that little of the payload lands in it.
//!
//! The server isn't trusted. A record above the bound, one in too many fragments, or one too short to be a
//! reply ends the connection. A reply that doesn't match a call is skipped without being stored. Memory for a
//! record grows with the bytes that arrive.

use std::mem;
use std::net::SocketAddr;
use std::task::Waker;

use xdr::Decoder;

use super::callbacks::is_call;
use super::error::Error;
use super::request::{DIRECT_MIN, HEAD_MAX, Receive, Reply};
use super::table::{CallTable, Procedure};
use crate::message::{ReplyHeader, ReplyStatus};

/// The size of the staging buffer in bytes.
const STAGING: usize = 64 << 10;

/// The length of a reply's RPC header with its record mark (with an AUTH_NONE verifier: 28 bytes) and enough
/// results to locate the payload.
const HEADER: usize = 28 + HEAD_MAX;

/// The most fragments in a record.
const MAX_FRAGMENTS: u32 = 1024;

/// The shortest record that can be a reply: xid, REPLY, reply_stat, and a word more.
const MIN_REPLY: usize = 16;

/// How the server broke the protocol, so that the connection must end.
pub(super) type Broken = &'static str;

enum Phase {
    /// At a record mark.
    Mark,
    /// Within the last fragment, of this many bytes, which is or will be in the staging buffer.
    Staged(usize),
    /// Collecting a record that is long or in several fragments.
    Gather { record: Vec<u8>, left: usize, last: bool, fragments: u32 },
    /// Receiving a payload into the caller's buffer: `left` bytes of it, then `skip` unused bytes.
    Direct { xid: u32, results: Vec<u8>, receive: Receive, left: usize, skip: usize },
    /// Skipping this many bytes of a record without a call.
    Skip(usize),
}

/// The destination of the next bytes.
pub(super) enum ReadTarget<'a> {
    /// The staging buffer; report with [`Reader::staged`].
    Staging(&'a mut [u8]),
    /// The end of this vector, at most this many bytes.
    Payload(&'a mut Vec<u8>, usize),
}

pub(super) struct Reader {
    address: SocketAddr,
    max_reply: usize,
    /// Whether the server may make calls.
    takes_calls: bool,
    staging: Box<[u8]>,
    start: usize,
    end: usize,
    phase: Phase,
}

/// The effects of the bytes so far.
#[derive(Default)]
pub(super) struct ReadEffects {
    /// Callers to wake.
    pub(super) wake: Vec<Waker>,
    /// The number of slots of the table that were freed.
    pub(super) freed: usize,
    /// At least one valid reply was received.
    pub(super) sense: bool,
    /// The records of calls that the server made.
    pub(super) calls: Vec<Vec<u8>>,
}

impl Reader {
    pub(super) fn new(address: SocketAddr, max_reply: usize, takes_calls: bool) -> Self {
        Self {
            address,
            max_reply,
            takes_calls,
            staging: vec![0; STAGING].into_boxed_slice(),
            start: 0,
            end: 0,
            phase: Phase::Mark,
        }
    }

    /// The destination of the next bytes. `short` means that payloads are expected which should bypass the
    /// staging buffer, so that only their headers are read into it.
    pub(super) fn target(&mut self, short: bool) -> ReadTarget<'_> {
        if self.start == self.end && matches!(self.phase, Phase::Direct { left: 1.., .. }) {
            let Phase::Direct { receive, left, .. } = &mut self.phase else {
                return ReadTarget::Staging(&mut []);
            };
            return ReadTarget::Payload(&mut receive.into, *left);
        }
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.staging.len() - self.end < DIRECT_MIN {
            self.staging.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let room = self.staging.len() - self.end;
        let limit = match &self.phase {
            Phase::Mark | Phase::Staged(_) if short => {
                let wanted = match self.phase {
                    Phase::Staged(len) if len <= DIRECT_MIN => len,
                    _ => HEADER,
                };
                wanted.saturating_sub(self.end - self.start).max(1)
            }
            _ => room,
        };
        ReadTarget::Staging(&mut self.staging[self.end..][..limit.min(room)])
    }

    /// `count` bytes were read into the staging buffer.
    pub(super) fn staged(&mut self, count: usize) {
        self.end = (self.end + count).min(self.staging.len());
    }

    /// `count` bytes were read onto the payload.
    pub(super) fn received(&mut self, count: usize) {
        if let Phase::Direct { left, .. } = &mut self.phase {
            *left = left.saturating_sub(count);
        }
    }

    /// The connection is lost: a partly filled payload buffer goes back to its call.
    pub(super) fn lost(&mut self, table: &mut CallTable) {
        (self.start, self.end) = (0, 0);
        if let Phase::Direct { xid, mut receive, .. } = mem::replace(&mut self.phase, Phase::Mark)
            && let Some(slot) = table.get(xid)
        {
            receive.into.clear();
            slot.receive = Some(receive);
        }
    }

    fn staged_len(&self) -> usize {
        self.end - self.start
    }

    /// Takes up to `max` staged bytes.
    fn take(&mut self, max: usize) -> &[u8] {
        let count = max.min(self.staged_len());
        let bytes = &self.staging[self.start..][..count];
        self.start += count;
        bytes
    }

    /// Processes the staged bytes as far as possible.
    pub(super) fn advance(&mut self, table: &mut CallTable, outcome: &mut ReadEffects) -> Result<(), Broken> {
        loop {
            match mem::replace(&mut self.phase, Phase::Mark) {
                Phase::Mark => {
                    if self.staged_len() < 4 {
                        return Ok(());
                    }
                    let (len, last) = self.mark();
                    if len > self.max_reply {
                        return Err("a record above the bound");
                    }
                    self.phase = if last {
                        if len < MIN_REPLY {
                            return Err("a record too short to be a reply");
                        }
                        Phase::Staged(len)
                    } else {
                        Phase::Gather { record: Vec::new(), left: len, last, fragments: 1 }
                    };
                }
                Phase::Staged(len) => {
                    let here = self.staged_len();
                    if here >= len {
                        let at = self.start;
                        self.start += len;
                        self.whole(at, len, table, outcome)?;
                    } else if len <= DIRECT_MIN || here < len.min(HEADER - 4) {
                        self.phase = Phase::Staged(len);
                        return Ok(());
                    } else {
                        self.phase = self.long(len, table);
                    }
                }
                Phase::Gather { mut record, mut left, mut last, mut fragments } => {
                    let bytes = self.take(left);
                    record.extend_from_slice(bytes);
                    left -= bytes.len();
                    if left > 0 || (!last && self.staged_len() < 4) {
                        self.phase = Phase::Gather { record, left, last, fragments };
                        return Ok(());
                    }
                    if last {
                        self.deliver(&record, table, outcome)?;
                        continue;
                    }
                    (left, last) = self.mark();
                    fragments += 1;
                    if record.len() + left > self.max_reply || fragments > MAX_FRAGMENTS {
                        return Err("a record above the bound");
                    }
                    self.phase = Phase::Gather { record, left, last, fragments };
                }
                Phase::Direct { xid, results, mut receive, mut left, skip } => {
                    let bytes = self.take(left);
                    receive.into.extend_from_slice(bytes);
                    left -= bytes.len();
                    if left > 0 {
                        self.phase = Phase::Direct { xid, results, receive, left, skip };
                        return Ok(());
                    }
                    outcome.sense = true;
                    let reply = Reply { results, payload: receive.into, local: false };
                    outcome.wake.extend(table.finish(xid, Ok(reply), &mut outcome.freed));
                    self.phase = Phase::Skip(skip);
                }
                Phase::Skip(len) => {
                    let skipped = self.take(len).len();
                    if skipped < len {
                        self.phase = Phase::Skip(len - skipped);
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Takes the next record mark.
    fn mark(&mut self) -> (usize, bool) {
        let mark = self.take(4).first_chunk::<4>().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        ((mark & (u32::MAX >> 1)) as usize, mark >> 31 == 1)
    }

    /// Delivers a record of `len` bytes that is completely in the staging buffer at `at`.
    fn whole(
        &self,
        at: usize,
        len: usize,
        table: &mut CallTable,
        outcome: &mut ReadEffects,
    ) -> Result<(), Broken> {
        self.deliver(&self.staging[at..][..len], table, outcome)
    }

    /// Delivers a whole record to its call, or notes it as a call of the server.
    fn deliver(&self, record: &[u8], table: &mut CallTable, outcome: &mut ReadEffects) -> Result<(), Broken> {
        if self.takes_calls && is_call(record) {
            outcome.calls.push(record.to_vec());
            return Ok(());
        }
        deliver(self.address, record, table, outcome)
    }

    /// Chooses the phase for a long record of `len` bytes of which only the beginning has arrived.
    fn long(&mut self, len: usize, table: &mut CallTable) -> Phase {
        let begun = &self.staging[self.start..self.end];
        let gather = Phase::Gather { record: Vec::new(), left: len, last: true, fragments: 1 };
        let mut from = Decoder::new(begun);
        // A record that can't be decoded from its beginning is collected and decoded as a whole.
        let Ok(header) = ReplyHeader::decode(&mut from) else { return gather };
        let Some(slot) = table.get(header.xid) else { return Phase::Skip(len) };
        let Some(receive) = &slot.receive else { return gather };
        if header.status != ReplyStatus::Success || from.rest().len() < HEAD_MAX.min(len) {
            return gather;
        }
        let header_len = begun.len() - from.rest().len();
        let Some((head, payload)) = (receive.split)(from.rest()) else { return gather };
        let sensible =
            head <= from.rest().len() && payload <= receive.limit && header_len + head + payload <= len;
        if !sensible {
            return gather;
        }
        let Some(mut receive) = slot.receive.take() else { return gather };
        let mut results = if slot.writing { Vec::new() } else { mem::take(&mut slot.frame.head) };
        // The call can't be resent without its head, which is kept for the case that the connection is lost
        // before the rest of the payload.
        let keep = results.clone();
        results.clear();
        results.extend_from_slice(&from.rest()[..head]);
        slot.frame.head = keep;
        receive.into.clear();
        receive.into.reserve(payload);
        self.start += header_len + head;
        Phase::Direct {
            xid: header.xid,
            results,
            receive,
            left: payload,
            skip: len - header_len - head - payload,
        }
    }
}

/// Delivers a whole record to its call.
fn deliver(
    address: SocketAddr,
    record: &[u8],
    table: &mut CallTable,
    outcome: &mut ReadEffects,
) -> Result<(), Broken> {
    let Some(xid) = record.first_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes)) else {
        return Err("a record too short to be a reply");
    };
    let mut from = Decoder::new(record);
    let header = ReplyHeader::decode(&mut from);
    let Some(slot) = table.get(xid) else {
        // The reply is late, or matches no call. A record that isn't a reply at all ends the connection.
        return header.map(|_| ()).map_err(|_| "a record that is no reply");
    };
    let result = match header {
        Err(_) => Err(Error::Malformed { address, what: "its header is no RPC reply's" }),
        Ok(header) => match refusal(address, header.status, slot.target) {
            Some(error) => {
                outcome.sense = true;
                Err(error)
            }
            None => {
                outcome.sense = true;
                let buffer = if slot.writing { Vec::new() } else { mem::take(&mut slot.frame.head) };
                results(address, from.rest(), buffer, slot.receive.take())
            }
        },
    };
    outcome.wake.extend(table.finish(xid, result, &mut outcome.freed));
    Ok(())
}

/// Splits successful results from their payload, if there is one.
fn results(
    address: SocketAddr,
    from: &[u8],
    mut buffer: Vec<u8>,
    receive: Option<Receive>,
) -> Result<Reply, Error> {
    buffer.clear();
    let Some(Receive { mut into, limit, split }) = receive else {
        buffer.extend_from_slice(from);
        return Ok(Reply { results: buffer, payload: Vec::new(), local: false });
    };
    into.clear();
    let Some((head, payload)) = split(from) else {
        buffer.extend_from_slice(from);
        return Ok(Reply { results: buffer, payload: into, local: false });
    };
    let (Some(head), Some(payload)) =
        (from.get(..head), from.get(head..).and_then(|rest| rest.get(..payload)))
    else {
        return Err(Error::Malformed { address, what: "its payload is shorter than it says" });
    };
    if payload.len() > limit {
        return Err(Error::Malformed { address, what: "its payload is longer than was asked for" });
    }
    buffer.extend_from_slice(head);
    into.extend_from_slice(payload);
    Ok(Reply { results: buffer, payload: into, local: false })
}

/// The error of an unsuccessful status.
fn refusal(address: SocketAddr, status: ReplyStatus, target: Procedure) -> Option<Error> {
    let Procedure { program, version, procedure } = target;
    Some(match status {
        ReplyStatus::Success => return None,
        ReplyStatus::ProgUnavail => Error::ProgramUnavailable { address, program },
        ReplyStatus::ProgMismatch { low, high } => {
            Error::ProgramMismatch { address, program, version, low, high }
        }
        ReplyStatus::ProcUnavail => Error::ProcedureUnavailable { address, program, version, procedure },
        ReplyStatus::GarbageArgs => Error::GarbageArguments { address, program, procedure },
        ReplyStatus::SystemErr => Error::System { address },
        ReplyStatus::RpcMismatch { low, high } => Error::RpcVersion { address, low, high },
        ReplyStatus::AuthError(status) => Error::Auth { address, status },
    })
}
