//! One call from the caller's side: into the table, and out of it with the results.

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

use super::silence::Silence;
use super::table::{Frame, Slot, State, Table, Target};
use super::{Error, Options, Reply, Request, Stats};
use crate::message::CallHeader;

/// The bit of a record mark that says "last fragment" (RFC 5531 section 11).
const LAST_FRAGMENT: u32 = 1 << 31;

/// What callers and the driver of one connection share.
pub(super) struct Connection {
    pub(super) address: SocketAddr,
    pub(super) options: Options,
    pub(super) table: Mutex<Table>,
    /// Places in the table that are free.
    pub(super) places: Semaphore,
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
            table: Mutex::new(Table::new(in_flight, u32::from_ne_bytes(start))),
            places: Semaphore::new(in_flight),
            reconnects: AtomicU64::new(0),
            retransmits: AtomicU64::new(0),
            silence,
        }
    }

    pub(super) fn stats(&self) -> Stats {
        Stats { reconnects: self.reconnects.load(Relaxed), retransmits: self.retransmits.load(Relaxed) }
    }

    /// No calls any more.
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
    ) -> Result<Reply, Error> {
        let closed = || Error::Closed { address: self.address };
        self.places.acquire().await.map_err(|_| closed())?.forget();
        let target =
            Target { program: request.program, version: request.version, procedure: request.procedure };
        let mut to = Encoder::from_vec(Vec::with_capacity(256));
        to.u32(0);
        CallHeader::encode(&mut to, 0, target.program, target.version, target.procedure, request.credential);
        args(&mut to);
        let whole = to.position() - 4 + request.payload.len() + xdr::padding(request.payload.len());
        let Some(mark) = u32::try_from(whole).ok().filter(|len| *len < LAST_FRAGMENT) else {
            self.places.add_permits(1);
            return Err(Error::TooLong { len: whole, max: LAST_FRAGMENT as usize - 1 });
        };
        to.patch_u32(0, mark | LAST_FRAGMENT);
        let xid = {
            let mut table = self.table.lock();
            // There are twice as many places as permits: a number is always found.
            let number = if table.closed { None } else { table.number() };
            let Some(xid) = number else {
                drop(table);
                self.places.add_permits(1);
                return Err(closed());
            };
            to.patch_u32(4, xid);
            table.insert(Slot {
                target,
                state: State::Waiting(None),
                frame: Frame { xid, head: to.into_vec(), payload: request.payload },
                receive: request.receive,
                large: false,
                since: Instant::now(),
                sent_on: 0,
                writing: false,
            });
            if let Some(driver) = &table.driver {
                driver.wake_by_ref();
            }
            xid
        };
        Answer { connection: self, xid, fetched: false }.await
    }
}

/// The wait for one call's results.
struct Answer<'a> {
    connection: &'a Connection,
    xid: u32,
    fetched: bool,
}

impl Future for Answer<'_> {
    type Output = Result<Reply, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let connection = self.connection;
        let mut table = connection.table.lock();
        match table.get(self.xid).map(|slot| &mut slot.state) {
            Some(State::Waiting(waker)) => {
                match waker {
                    Some(waker) => waker.clone_from(cx.waker()),
                    None => *waker = Some(cx.waker().clone()),
                }
                Poll::Pending
            }
            Some(State::Done(_)) => {
                let slot = table.remove(self.xid);
                drop(table);
                self.fetched = true;
                connection.places.add_permits(1);
                match slot.map(|slot| slot.state) {
                    Some(State::Done(result)) => Poll::Ready(result),
                    _ => Poll::Ready(Err(Error::Closed { address: connection.address })),
                }
            }
            Some(State::Abandoned) | None => {
                drop(table);
                self.fetched = true;
                Poll::Ready(Err(Error::Closed { address: connection.address }))
            }
        }
    }
}

impl Drop for Answer<'_> {
    fn drop(&mut self) {
        if self.fetched {
            return;
        }
        let mut table = self.connection.table.lock();
        let Some(slot) = table.get(self.xid) else { return };
        let unsent = slot.sent_on == 0 && !slot.writing;
        if unsent || matches!(slot.state, State::Done(_)) {
            table.remove(self.xid);
            drop(table);
            self.connection.places.add_permits(1);
        } else {
            // An answer will come, and its number must not be given to another call before.
            slot.state = State::Abandoned;
        }
    }
}
