//! The task that drives a connection: makes it, makes the next one when it is lost, and looks after the calls
//! that wait.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;

use super::call::Connection;
use super::recovery::{Recovery, Verdict};
use super::running::{End, Running};
use super::table::{State, Table};
use super::{Error, socket};

/// How often waiting calls are looked at, at most.
const TICK_MIN: Duration = Duration::from_millis(10);

/// How often waiting calls are looked at, at least.
pub(super) const TICK_MAX: Duration = Duration::from_secs(1);

/// Attempts to connect that may fail while a server restarts.
const RESTART: u32 = 8;

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

/// Every call that waits goes into the queue, oldest first; those that nobody waits for any more are
/// forgotten.
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
pub(super) struct Look {
    /// Look again then; `None` if nobody waits.
    pub(super) again: Option<Instant>,
    /// The connection is dead.
    pub(super) reconnect: bool,
}

/// Looks at every call that waits, and ends those that have waited long enough. `epoch`: the connection that
/// stands.
pub(super) fn look(connection: &Connection, recovery: &Recovery, epoch: Option<u32>, now: Instant) -> Look {
    let (mut freed, mut wakers) = (0, Vec::new());
    let mut look = Look { again: None, reconnect: false };
    let mut late = false;
    let mut table = connection.table.lock();
    for xid in table.waiting() {
        let Some(slot) = table.get(xid) else { continue };
        late |= recovery.is_late(slot.since, now);
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
    if late {
        connection.silence.note(connection.address, recovery.policy().hard);
    }
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
                tracing::debug!(server = %connection.address, %error, "no connection");
                if recovery.failures() >= RESTART {
                    connection.silence.note(connection.address, options.policy.hard);
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

pub(super) fn register(table: &mut Table, cx: &Context<'_>) {
    match &mut table.driver {
        Some(waker) => waker.clone_from(cx.waker()),
        None => table.driver = Some(cx.waker().clone()),
    }
}
