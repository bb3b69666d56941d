//! The task that owns a connection's socket: writes calls, reads replies, makes the next connection.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::mem;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use bytes::{BufMut as _, Bytes};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

use super::call::Connection;
use super::reader::{Outcome, Place, Reader};
use super::recovery::{Recovery, Verdict};
use super::table::{State, Table};
use super::{Error, socket};

/// Calls in one `writev`.
const BATCH: usize = 64;

/// Bytes in one batch, roughly: what the socket can't take is only held longer.
const BATCH_BYTES: usize = 1 << 20;

/// Rounds of writing and reading before other tasks get a turn.
const ROUNDS: usize = 32;

/// How often waiting calls are looked at, at most.
const TICK_MIN: Duration = Duration::from_millis(10);

/// How often waiting calls are looked at, at least.
const TICK_MAX: Duration = Duration::from_secs(1);

/// Why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The client was dropped.
    Closed,
    /// The connection is gone, or has to go.
    Lost,
}

/// Drives one connection and its successors until the client is dropped.
pub(super) async fn drive(connection: Arc<Connection>, mut first: Option<TcpStream>) {
    let mut recovery = Recovery::new(connection.options.policy);
    let mut port = None;
    let mut epoch = 0_u32;
    loop {
        let stream = match first.take() {
            Some(stream) => stream,
            None => match establish(&connection, &mut recovery, port).await {
                Some(stream) => stream,
                None => break,
            },
        };
        port = stream.local_addr().ok().map(|address| address.port());
        epoch = epoch.wrapping_add(1).max(1);
        if epoch > 1 {
            connection.reconnects.fetch_add(1, Relaxed);
        }
        requeue(&connection);
        let policy = connection.options.policy;
        socket::watch(&stream, policy.timeo, policy.patience());
        let end = Running::new(&connection, &mut recovery, stream, epoch).run().await;
        if end == End::Closed {
            break;
        }
        recovery.lost(Instant::now(), random());
    }
    abort(&connection);
}

/// Every call that waits goes into the queue, oldest first; those that nobody waits for any more are forgotten.
fn requeue(connection: &Connection) {
    let (mut resent, mut freed) = (0, 0);
    let mut table = connection.table.lock();
    let now = Instant::now();
    let waiting = table.waiting();
    table.queue.clear();
    for xid in waiting {
        let Some(slot) = table.get(xid) else { continue };
        slot.writing = false;
        if matches!(slot.state, State::Abandoned) {
            table.remove(xid);
            freed += 1;
            continue;
        }
        if slot.sent_on != 0 {
            resent += 1;
            if connection.options.policy.hard {
                slot.since = now;
            }
        }
        table.queue.push_back(xid);
    }
    drop(table);
    connection.places.add_permits(freed);
    connection.retransmits.fetch_add(resent, Relaxed);
}

/// The client has gone: nobody gets an answer any more.
fn abort(connection: &Connection) {
    let address = connection.address;
    let mut freed = 0;
    let mut table = connection.table.lock();
    table.closed = true;
    let wakers: Vec<Waker> = table
        .waiting()
        .into_iter()
        .filter_map(|xid| table.finish(xid, Err(Error::Closed { address }), &mut freed))
        .collect();
    drop(table);
    connection.places.close();
    wakers.into_iter().for_each(Waker::wake);
}

/// What a look at the waiting calls said.
struct Look {
    /// Look again then; `None` if nobody waits.
    again: Option<Instant>,
    /// The connection is dead.
    reconnect: bool,
}

/// Looks at every call that waits, and ends those that have waited long enough. `epoch`: the connection that stands.
fn look(connection: &Connection, recovery: &Recovery, epoch: Option<u32>, now: Instant) -> Look {
    let (mut freed, mut wakers) = (0, Vec::new());
    let mut look = Look { again: None, reconnect: false };
    let mut table = connection.table.lock();
    for xid in table.waiting() {
        let Some(slot) = table.get(xid) else { continue };
        match recovery.verdict(slot.since, Some(slot.sent_on) == epoch, now) {
            Verdict::Wait(until) => look.again = Some(look.again.map_or(until, |at| at.min(until))),
            Verdict::Reconnect => look.reconnect = true,
            Verdict::GiveUp => {
                let after = now - slot.since;
                let error = Error::TimedOut { address: connection.address, after };
                wakers.extend(table.finish(xid, Err(error), &mut freed));
            }
        }
    }
    drop(table);
    connection.places.add_permits(freed);
    wakers.into_iter().for_each(Waker::wake);
    look.again = look.again.map(|at| at.clamp(now + TICK_MIN, now + TICK_MAX));
    look
}

fn random() -> u32 {
    let mut bytes = [0; 4];
    let _ = getrandom::fill(&mut bytes);
    u32::from_ne_bytes(bytes)
}

/// Makes a connection when somebody wants one; `None` if the client has gone.
async fn establish(connection: &Connection, recovery: &mut Recovery, port: Option<u16>) -> Option<TcpStream> {
    loop {
        if !work(connection).await {
            return None;
        }
        let now = Instant::now();
        let look = look(connection, recovery, None, now);
        let Some(again) = look.again else { continue };
        let at = recovery.connect_at(now);
        if at > now {
            let nap = tokio::time::sleep_until(at.min(again).into());
            tokio::select! { () = nap => {} () = closed(connection) => return None }
            continue;
        }
        let options = &connection.options;
        let limit = options.connect_timeout.min(options.policy.timeo.max(TICK_MIN));
        match socket::connect(connection.address, options.reserved_port, port, limit).await {
            Ok(stream) => return Some(stream),
            Err(error) => {
                // The first failures are a restart; what lasts is worth a word.
                if recovery.failures().is_power_of_two() && recovery.failures() >= 8 {
                    tracing::warn!(server = %connection.address, %error, "server not responding, still trying");
                }
                recovery.lost(Instant::now(), random());
            }
        }
    }
}

/// Waits until there is a call to make (true) or the client has gone (false).
async fn work(connection: &Connection) -> bool {
    std::future::poll_fn(|cx| {
        let mut table = connection.table.lock();
        if table.closed {
            return Poll::Ready(false);
        }
        if table.waiting().is_empty() {
            register(&mut table, cx);
            return Poll::Pending;
        }
        Poll::Ready(true)
    })
    .await
}

/// Waits until the client has gone.
async fn closed(connection: &Connection) {
    std::future::poll_fn(|cx| {
        let mut table = connection.table.lock();
        if table.closed {
            return Poll::Ready(());
        }
        register(&mut table, cx);
        Poll::Pending
    })
    .await;
}

fn register(table: &mut Table, cx: &Context<'_>) {
    match &mut table.driver {
        Some(waker) => waker.clone_from(cx.waker()),
        None => table.driver = Some(cx.waker().clone()),
    }
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
struct Running<'a> {
    connection: &'a Connection,
    recovery: &'a mut Recovery,
    stream: TcpStream,
    epoch: u32,
    reader: Reader,
    batch: VecDeque<Outgoing>,
    /// Bytes of the first call of the batch that are written already.
    written: usize,
    large: bool,
    timer: Pin<Box<Sleep>>,
    armed: bool,
    outcome: Outcome,
}

impl<'a> Running<'a> {
    fn new(connection: &'a Connection, recovery: &'a mut Recovery, stream: TcpStream, epoch: u32) -> Self {
        Self {
            connection,
            recovery,
            stream,
            epoch,
            reader: Reader::new(connection.address, connection.options.max_reply),
            batch: VecDeque::new(),
            written: 0,
            large: false,
            timer: Box::pin(tokio::time::sleep(TICK_MAX)),
            armed: false,
            outcome: Outcome::default(),
        }
    }

    async fn run(mut self) -> End {
        let end = std::future::poll_fn(|cx| self.poll(cx)).await;
        let mut table = self.connection.table.lock();
        self.reader.lost(&mut table);
        for call in self.batch.drain(..) {
            if let Some(slot) = table.get(call.xid) {
                (slot.frame.head, slot.frame.payload) = (call.head, call.payload);
                slot.writing = false;
                // Part of it may have been written: as good as sent, for the number may be known to the server.
                slot.sent_on = self.epoch;
            }
        }
        end
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        for _ in 0..ROUNDS {
            let wrote = match self.poll_write(cx) {
                Poll::Ready(Err(end)) => return Poll::Ready(end),
                Poll::Ready(Ok(())) => true,
                Poll::Pending => false,
            };
            let read = match self.poll_read(cx) {
                Poll::Ready(Err(_)) => return Poll::Ready(End::Lost),
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
                    tracing::warn!(server = %self.connection.address, "server not responding, reconnecting");
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
        if !self.fill(cx)? {
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
        }
        Poll::Ready(result.map_err(|what| {
            tracing::warn!(server = %self.connection.address, what, "the server breaks the protocol, reconnecting");
            io::Error::from(io::ErrorKind::InvalidData)
        }))
    }
}
