//! One connection while it stands: writes calls, several in one system call, and reads replies.
//!
//! A call that is made doesn't go out at once: whoever else is ready to make one does so first (a turn of the
//! executor, without waiting for anything), and all of them go in one system call. The server then finds them
//! together, too, and so do the replies.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::mem;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

use bytes::{BufMut as _, Bytes};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

use super::call::Connection;
use super::driver::{TICK_MAX, look, register};
use super::reader::{Outcome, Place, Reader};
use super::recovery::Recovery;
use super::table::State;

/// Calls in one `writev`.
const BATCH: usize = 64;

/// Bytes in one batch, roughly: what the socket can't take is only held longer.
const BATCH_BYTES: usize = 1 << 20;

/// Rounds of writing and reading before other tasks get a turn.
const ROUNDS: usize = 32;

/// Why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The client was dropped.
    Closed,
    /// The connection is gone, or has to go.
    Lost,
}

/// A call that is being written.
struct Outgoing {
    xid: u32,
    head: Vec<u8>,
    payload: Bytes,
}

impl Outgoing {
    fn len(&self) -> usize {
        self.head.len() + self.payload.len() + xdr::padding(self.payload.len())
    }
}

/// One connection while it stands.
pub(super) struct Running<'a> {
    connection: &'a Connection,
    recovery: &'a mut Recovery,
    stream: TcpStream,
    epoch: u32,
    reader: Reader,
    batch: VecDeque<Outgoing>,
    /// Bytes of the first call of the batch that are written already.
    written: usize,
    large: bool,
    /// Everybody else has had their turn since there was something to write.
    gathered: bool,
    timer: Pin<Box<Sleep>>,
    armed: bool,
    outcome: Outcome,
}

impl<'a> Running<'a> {
    pub(super) fn new(
        connection: &'a Connection,
        recovery: &'a mut Recovery,
        stream: TcpStream,
        epoch: u32,
    ) -> Self {
        Self {
            connection,
            recovery,
            stream,
            epoch,
            reader: Reader::new(connection.address, connection.options.max_reply),
            batch: VecDeque::new(),
            written: 0,
            large: false,
            gathered: false,
            timer: Box::pin(tokio::time::sleep(TICK_MAX)),
            armed: false,
            outcome: Outcome::default(),
        }
    }

    pub(super) async fn run(mut self) -> End {
        let end = std::future::poll_fn(|cx| self.poll(cx)).await;
        let mut table = self.connection.table.lock();
        self.reader.lost(&mut table);
        for call in self.batch.drain(..) {
            if let Some(slot) = table.get(call.xid) {
                (slot.frame.head, slot.frame.payload) = (call.head, call.payload);
                slot.writing = false;
                // Part of it may have been written: as good as sent, for the number may be known to the
                // server.
                slot.sent_on = self.epoch;
            }
        }
        end
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        let waits = self.lets_others_first(cx);
        for _ in 0..ROUNDS {
            let read = match self.poll_read(cx) {
                Poll::Ready(Err(_)) => return Poll::Ready(End::Lost),
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

    /// Looks at the waiting calls now and then.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        loop {
            if !self.armed {
                let now = Instant::now();
                let look = look(self.connection, self.recovery, Some(self.epoch), now);
                if look.reconnect {
                    return Poll::Ready(End::Lost);
                }
                let Some(again) = look.again else { return Poll::Pending };
                self.timer.as_mut().reset(again.into());
                self.armed = true;
            }
            ready!(self.timer.as_mut().poll(cx));
            self.armed = false;
        }
    }

    /// Whether there is something to write that is to wait for others, who have their turn now; this task
    /// comes back after them.
    fn lets_others_first(&mut self, cx: &mut Context<'_>) -> bool {
        let mut table = self.connection.table.lock();
        if self.gathered || table.queue.is_empty() {
            return false;
        }
        self.gathered = true;
        // Whoever makes a call now needn't wake it.
        table.driver = None;
        drop(table);
        // Polled once, this wakes the task when all others have had their turn.
        pin!(tokio::task::yield_now()).poll(cx).is_pending()
    }

    /// Takes calls from the queue. False if there is nothing to write.
    fn fill(&mut self, cx: &Context<'_>) -> Result<bool, End> {
        let mut table = self.connection.table.lock();
        if table.closed {
            return Err(End::Closed);
        }
        register(&mut table, cx);
        self.large = table.large > 0;
        let mut bytes: usize = self.batch.iter().map(Outgoing::len).sum();
        while self.batch.len() < BATCH && bytes < BATCH_BYTES {
            let Some(xid) = table.queue.pop_front() else { break };
            let Some(slot) = table.get(xid) else { continue };
            if slot.writing || !matches!(slot.state, State::Waiting(_)) {
                continue;
            }
            slot.writing = true;
            let call = Outgoing {
                xid,
                head: mem::take(&mut slot.frame.head),
                payload: mem::take(&mut slot.frame.payload),
            };
            bytes += call.len();
            self.batch.push_back(call);
        }
        Ok(!self.batch.is_empty())
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        self.gathered = self.fill(cx)?;
        if !self.gathered {
            return Poll::Pending;
        }
        static ZEROS: [u8; 3] = [0; 3];
        let mut slices = [IoSlice::new(&[]); BATCH * 3];
        let mut count = 0;
        let mut skip = self.written;
        for call in &self.batch {
            let pad = &ZEROS[..xdr::padding(call.payload.len())];
            for part in [&call.head[..], &call.payload[..], pad] {
                let part_skip = skip.min(part.len());
                skip -= part_skip;
                if part_skip < part.len() {
                    slices[count] = IoSlice::new(&part[part_skip..]);
                    count += 1;
                }
            }
        }
        let result = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, &slices[..count]));
        let mut written = self.written + result.map_err(|_| End::Lost)?;
        let mut table = self.connection.table.lock();
        while let Some(call) = self.batch.front() {
            if written < call.len() {
                break;
            }
            written -= call.len();
            let Some(call) = self.batch.pop_front() else { break };
            if let Some(slot) = table.get(call.xid) {
                slot.writing = false;
                slot.sent_on = self.epoch;
                if !matches!(slot.state, State::Done(_)) {
                    (slot.frame.head, slot.frame.payload) = (call.head, call.payload);
                }
            }
        }
        self.written = written;
        Poll::Ready(Ok(()))
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.reader.target(self.large) {
            Place::Staging(room) => {
                let mut buffer = ReadBuf::new(room);
                ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
                match buffer.filled().len() {
                    0 => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                    count => self.reader.staged(count),
                }
            }
            Place::Payload(into, left) => {
                let mut limited = into.limit(left);
                let count = ready!(pin!(self.stream.read_buf(&mut limited)).poll(cx))?;
                if count == 0 {
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
                self.reader.received(count);
            }
        }
        let mut table = self.connection.table.lock();
        let result = self.reader.advance(&mut table, &mut self.outcome);
        self.large = table.large > 0;
        drop(table);
        let freed = mem::take(&mut self.outcome.freed);
        if freed > 0 {
            self.connection.places.add_permits(freed);
        }
        self.outcome.wake.drain(..).for_each(Waker::wake);
        if mem::take(&mut self.outcome.sense) {
            self.recovery.answered();
            self.connection.silence.answered(self.connection.address);
        }
        Poll::Ready(result.map_err(|what| {
            tracing::warn!(server = %self.connection.address, what, "the server breaks the protocol, \
                                                                     reconnecting");
            io::Error::from(io::ErrorKind::InvalidData)
        }))
    }
}
