//! One connection while it stands: writes calls, several in one system call, and reads replies.
//!
//! A new call isn't written at once. Other tasks that are ready to make a call run first (one turn of the
//! executor, without waiting), and all their calls go out in one system call. The server then receives them
//! together, and so do the replies.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::mem;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

use tokio::net::TcpStream;
use tokio::time::Sleep;

use super::call::Connection;
use super::callbacks::{MAX_UNSENT_REPLIES, execute};
use super::reader::{Broken, ReadEffects, ReadTarget, Reader};
use super::recovery::Recovery;
use super::table::{CallSlot, CallState, CallTable, Frame};
use super::timeouts::{MAX_INTERVAL, check};
use crate::transport::Transport;

/// The most calls in one `writev`.
const BATCH: usize = 64;

/// The approximate number of bytes in one batch. Bytes that the socket can't take would only be held longer.
const BATCH_BYTES: usize = 1 << 20;

/// The number of rounds of writing and reading before other tasks get a turn.
const ROUNDS: usize = 32;

/// Why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionEnd {
    /// The client was dropped.
    Closed,
    /// The connection is lost, or must be given up.
    Lost,
}

/// A call, or the reply to a callback, being written.
struct Outgoing {
    is_reply: bool,
    frame: Frame,
}

impl Outgoing {
    fn len(&self) -> usize {
        let Frame { head, payload, trailer, .. } = &self.frame;
        head.len() + payload.len() + xdr::padding(payload.len()) + trailer.len()
    }

    /// The call's slot in the table, if it is there still.
    fn slot<'t>(&self, table: &'t mut CallTable) -> Option<&'t mut CallSlot> {
        if self.is_reply { None } else { table.get(self.frame.xid) }
    }
}

/// One connection while it stands.
pub(super) struct Running<'a> {
    connection: &'a Connection,
    recovery: &'a mut Recovery,
    transport: Transport<TcpStream>,
    epoch: u32,
    reader: Reader,
    batch: VecDeque<Outgoing>,
    /// Bytes of the batch's first call that are written already.
    written: usize,
    large: bool,
    /// Other tasks have run since there was something to write.
    gathered: bool,
    timer: Pin<Box<Sleep>>,
    armed: bool,
    outcome: ReadEffects,
}

impl<'a> Running<'a> {
    pub(super) fn new(
        connection: &'a Connection,
        recovery: &'a mut Recovery,
        transport: Transport<TcpStream>,
        epoch: u32,
    ) -> Self {
        Self {
            connection,
            recovery,
            transport,
            epoch,
            reader: Reader::new(
                connection.address,
                connection.options.max_reply,
                connection.options.callbacks.is_some(),
            ),
            batch: VecDeque::new(),
            written: 0,
            large: false,
            gathered: false,
            timer: Box::pin(tokio::time::sleep(MAX_INTERVAL)),
            armed: false,
            outcome: ReadEffects::default(),
        }
    }

    pub(super) async fn run(mut self) -> ConnectionEnd {
        let end = std::future::poll_fn(|cx| self.poll(cx)).await;
        let mut table = self.connection.table.lock();
        self.reader.lost(&mut table);
        for call in self.batch.drain(..) {
            if let Some(slot) = call.slot(&mut table) {
                slot.frame = call.frame;
                slot.writing = false;
                // A part may have been written, so the server may know the transaction id: count the call as
                // sent.
                slot.sent_on = self.epoch;
            }
        }
        end
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ConnectionEnd> {
        let waits = self.lets_others_first(cx);
        for _ in 0..ROUNDS {
            let read = match self.poll_read(cx) {
                Poll::Ready(Err(_)) => return Poll::Ready(ConnectionEnd::Lost),
                Poll::Ready(Ok(())) => true,
                Poll::Pending => false,
            };
            let wrote = !waits
                && match self.poll_write(cx) {
                    Poll::Ready(Err(end)) => return Poll::Ready(end),
                    Poll::Ready(Ok(())) => true,
                    Poll::Pending => false,
                };
            if !wrote && !read {
                return self.poll_timer(cx);
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Applies the timeouts of the waiting calls.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<ConnectionEnd> {
        loop {
            if !self.armed {
                let now = Instant::now();
                let check = check(self.connection, self.recovery, Some(self.epoch), now);
                if check.reconnect {
                    return Poll::Ready(ConnectionEnd::Lost);
                }
                let Some(next_check) = check.next_check else { return Poll::Pending };
                self.timer.as_mut().reset(next_check.into());
                self.armed = true;
            }
            ready!(self.timer.as_mut().poll(cx));
            self.armed = false;
        }
    }

    /// Whether there is something to write that waits for other tasks to run first. This task is woken after
    /// them.
    fn lets_others_first(&mut self, cx: &mut Context<'_>) -> bool {
        let mut table = self.connection.table.lock();
        if self.gathered || table.queue.is_empty() {
            return false;
        }
        self.gathered = true;
        // Callers needn't wake this task meanwhile.
        table.driver = None;
        drop(table);
        // Polled once, it wakes the task after all other ready tasks have run.
        pin!(tokio::task::yield_now()).poll(cx).is_pending()
    }

    /// Takes calls from the queue. False if there is nothing to write.
    fn fill(&mut self, cx: &Context<'_>) -> Result<bool, ConnectionEnd> {
        let mut table = self.connection.table.lock();
        if table.closed {
            return Err(ConnectionEnd::Closed);
        }
        table.register_driver(cx);
        self.large = table.large > 0;
        let mut bytes: usize = self.batch.iter().map(Outgoing::len).sum();
        while self.batch.len() < BATCH && bytes < BATCH_BYTES {
            let Some(xid) = table.queue.pop_front() else { break };
            let Some(slot) = table.get(xid) else { continue };
            if slot.writing || !matches!(slot.state, CallState::Waiting(_)) {
                continue;
            }
            slot.writing = true;
            let frame = mem::replace(&mut slot.frame, Frame { xid, ..Frame::default() });
            let call = Outgoing { is_reply: false, frame };
            bytes += call.len();
            self.batch.push_back(call);
        }
        Ok(!self.batch.is_empty())
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionEnd>> {
        self.gathered = self.fill(cx)?;
        if !self.gathered {
            return Poll::Pending;
        }
        static ZEROS: [u8; 3] = [0; 3];
        let mut slices = [IoSlice::new(&[]); BATCH * 3];
        let mut count = 0;
        let mut skip = self.written;
        for Outgoing { frame, .. } in &self.batch {
            let pad = &ZEROS[..xdr::padding(frame.payload.len())];
            let parts = [&frame.head[..], &frame.payload[..], pad, &frame.trailer[..]];
            if count + parts.len() > slices.len() {
                break;
            }
            for part in parts {
                let part_skip = skip.min(part.len());
                skip -= part_skip;
                if part_skip < part.len() {
                    slices[count] = IoSlice::new(&part[part_skip..]);
                    count += 1;
                }
            }
        }
        let result = ready!(self.transport.poll_send(cx, &slices[..count]));
        let mut written = self.written + result.map_err(|_| ConnectionEnd::Lost)?;
        let mut table = self.connection.table.lock();
        while let Some(call) = self.batch.front() {
            if written < call.len() {
                break;
            }
            written -= call.len();
            let Some(call) = self.batch.pop_front() else { break };
            if let Some(slot) = call.slot(&mut table) {
                slot.writing = false;
                slot.sent_on = self.epoch;
                if !matches!(slot.state, CallState::Done(_)) {
                    slot.frame = call.frame;
                }
            }
        }
        self.written = written;
        Poll::Ready(Ok(()))
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let short = self.large && self.transport.capabilities().placed_receive;
        match self.reader.target(short) {
            ReadTarget::Staging(room) => {
                let count = ready!(self.transport.poll_receive(cx, room))?;
                self.reader.staged(count);
            }
            ReadTarget::Payload(into, left) => {
                let count = ready!(self.transport.poll_append(cx, into, left))?;
                self.reader.received(count);
            }
        }
        let mut table = self.connection.table.lock();
        let result = self.reader.advance(&mut table, &mut self.outcome);
        self.large = table.large > 0;
        drop(table);
        let freed = mem::take(&mut self.outcome.freed);
        if freed > 0 {
            self.connection.permits.add_permits(freed);
        }
        self.outcome.wake.drain(..).for_each(Waker::wake);
        if mem::take(&mut self.outcome.sense) {
            self.recovery.answered();
            self.connection.silence.answered(self.connection.address);
        }
        Poll::Ready(result.and_then(|()| self.execute_calls()).map_err(|what| {
            tracing::warn!(server = %self.connection.address, what, "the server breaks the protocol, \
                                                                     reconnecting");
            io::Error::from(io::ErrorKind::InvalidData)
        }))
    }

    /// Executes the calls that the server has made.
    fn execute_calls(&mut self) -> Result<(), Broken> {
        let Some(program) = &self.connection.options.callbacks else { return Ok(()) };
        for record in self.outcome.calls.drain(..) {
            if self.batch.iter().filter(|outgoing| outgoing.is_reply).count() >= MAX_UNSENT_REPLIES {
                return Err("too many calls whose replies it doesn't read");
            }
            let head = execute(&**program, &record).ok_or("a call that can't be decoded")?;
            self.batch.push_back(Outgoing { is_reply: true, frame: Frame { head, ..Frame::default() } });
        }
        Ok(())
    }
}
