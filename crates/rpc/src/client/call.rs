//! The caller's side of one call: into the table, and out of it with the results.

use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use xdr::Encoder;

use super::call_socket::{CallSocket, MAX_CALL};
use super::error::Error;
use super::options::{Options, Stats};
use super::request::{Reply, Request};
use super::silence::Silence;
use super::table::{CallSlot, CallState, CallTable, Frame, Procedure};
use crate::message::CallHeader;

/// The bit of a record mark for the last fragment (RFC 5531 section 11).
const LAST_FRAGMENT: u32 = 1 << 31;

/// The state that the callers and the driver of one connection share.
pub(super) struct Connection {
    pub(super) address: SocketAddr,
    pub(super) options: Options,
    pub(super) table: Mutex<CallTable>,
    /// One permit for each call that may be made.
    pub(super) permits: Semaphore,
    pub(super) reconnects: AtomicU64,
    pub(super) retransmits: AtomicU64,
    pub(super) silence: Arc<Silence>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Connection {
    pub(super) fn new(address: SocketAddr, options: &Options, silence: Arc<Silence>) -> Self {
        let in_flight = options.in_flight.clamp(1, 4096);
        let mut start = [0; 4];
        if getrandom::fill(&mut start).is_err() {
            start = std::process::id().to_ne_bytes();
        }
        Self {
            address,
            options: options.clone(),
            table: Mutex::new(CallTable::new(in_flight, u32::from_ne_bytes(start))),
            permits: Semaphore::new(in_flight),
            reconnects: AtomicU64::new(0),
            retransmits: AtomicU64::new(0),
            silence,
        }
    }

    pub(super) fn stats(&self) -> Stats {
        Stats { reconnects: self.reconnects.load(Relaxed), retransmits: self.retransmits.load(Relaxed) }
    }

    /// Ends the driver. No further call can be made.
    pub(super) fn close(&self) {
        let mut table = self.table.lock();
        table.closed = true;
        if let Some(driver) = &table.driver {
            driver.wake_by_ref();
        }
    }

    pub(super) async fn call(
        &self,
        request: Request<'_>,
        args: impl FnOnce(&mut Encoder),
        socket: Option<&CallSocket>,
    ) -> Result<Reply, Error> {
        let closed = || Error::Closed { address: self.address };
        self.permits.acquire().await.map_err(|_| closed())?.forget();
        let target =
            Procedure { program: request.program, version: request.version, procedure: request.procedure };
        let mut to = Encoder::from_vec(Vec::with_capacity(256));
        to.u32(0);
        CallHeader::encode(&mut to, 0, target.program, target.version, target.procedure, request.credential);
        args(&mut to);
        let payload = request.payload.len();
        let whole = to.position() - 4 + payload + xdr::padding(payload) + request.trailer.len();
        let Some(mark) = u32::try_from(whole).ok().filter(|len| *len < LAST_FRAGMENT) else {
            self.permits.add_permits(1);
            return Err(Error::TooLong { len: whole, max: LAST_FRAGMENT as usize - 1 });
        };
        to.patch_u32(0, mark | LAST_FRAGMENT);
        let bare = request.payload.is_empty() && request.receive.is_none() && to.position() <= MAX_CALL;
        let socket = socket.filter(|_| bare);
        let xid = {
            let mut table = self.table.lock();
            // The table has twice as many slots as there are permits, so there is always a free number.
            let number = if table.closed { None } else { table.number() };
            let Some(xid) = number else {
                drop(table);
                self.permits.add_permits(1);
                return Err(closed());
            };
            to.patch_u32(4, xid);
            let (state, head) = match socket {
                Some(_) => (CallState::OnCallSocket, Vec::new()),
                None => (CallState::Waiting(None), std::mem::take(&mut to).into_vec()),
            };
            table.insert(CallSlot {
                target,
                state,
                frame: Frame { xid, head, payload: request.payload, trailer: request.trailer },
                receive: request.receive,
                large: false,
                since: Instant::now(),
                sent_on: 0,
                writing: false,
            });
            if socket.is_none()
                && let Some(driver) = &table.driver
            {
                driver.wake_by_ref();
            }
            xid
        };
        let pending = PendingCall { connection: self, xid, fetched: false };
        match socket {
            Some(socket) => self.call_on_socket(pending, socket, to.into_vec()).await,
            None => pending.await,
        }
    }

    /// Makes a call on the call socket, and over TCP if that doesn't reply.
    async fn call_on_socket(
        &self,
        mut pending: PendingCall<'_>,
        socket: &CallSocket,
        call: Vec<u8>,
    ) -> Result<Reply, Error> {
        let local = |results| Ok(Reply { results, payload: Vec::new(), local: true });
        let policy = &self.options.policy;
        // A soft client's call has the rest of its time over TCP.
        let limit = policy.timeo.min(policy.timeout() / 2);
        let mut late = None;
        if let Some(mut reply) = socket.send(pending.xid, &call) {
            match tokio::time::timeout(limit, reply.results()).await {
                Ok(Some(results)) => return local(results),
                Ok(None) => {}
                Err(_) => late = Some(reply),
            }
        }
        self.send_over_tcp(pending.xid, call);
        let Some(mut reply) = late else { return pending.await };
        // The server may be executing the call still. Then it won't answer the retransmission.
        tokio::select! {
            biased;
            Some(results) = reply.results() => local(results),
            result = &mut pending => result,
        }
    }

    /// Queues a call that was made on the call socket.
    fn send_over_tcp(&self, xid: u32, call: Vec<u8>) {
        let mut table = self.table.lock();
        if table.closed {
            // No driver is left to end the call.
            table.remove(xid);
            return;
        }
        let Some(slot) = table.get(xid) else { return };
        slot.state = CallState::Waiting(None);
        slot.frame.head = call;
        if self.options.policy.hard {
            slot.since = Instant::now();
        }
        table.queue.push_back(xid);
        if let Some(driver) = &table.driver {
            driver.wake_by_ref();
        }
    }
}

/// Waits for the results of one call.
struct PendingCall<'a> {
    connection: &'a Connection,
    xid: u32,
    fetched: bool,
}

impl Future for PendingCall<'_> {
    type Output = Result<Reply, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let connection = self.connection;
        let mut table = connection.table.lock();
        match table.get(self.xid).map(|slot| &mut slot.state) {
            Some(CallState::Waiting(waker)) => {
                match waker {
                    Some(waker) => waker.clone_from(cx.waker()),
                    None => *waker = Some(cx.waker().clone()),
                }
                Poll::Pending
            }
            Some(CallState::Done(_)) => {
                let slot = table.remove(self.xid);
                drop(table);
                self.fetched = true;
                connection.permits.add_permits(1);
                match slot.map(|slot| slot.state) {
                    Some(CallState::Done(result)) => Poll::Ready(result),
                    _ => Poll::Ready(Err(Error::Closed { address: connection.address })),
                }
            }
            Some(CallState::OnCallSocket | CallState::Abandoned) | None => {
                drop(table);
                self.fetched = true;
                Poll::Ready(Err(Error::Closed { address: connection.address }))
            }
        }
    }
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        if self.fetched {
            return;
        }
        let mut table = self.connection.table.lock();
        let Some(slot) = table.get(self.xid) else { return };
        let unsent = slot.sent_on == 0 && !slot.writing;
        if unsent || matches!(slot.state, CallState::Done(_)) {
            table.remove(self.xid);
            drop(table);
            self.connection.permits.add_permits(1);
        } else {
            // A reply will come, and the transaction id must not be reused before.
            slot.state = CallState::Abandoned;
        }
    }
}
