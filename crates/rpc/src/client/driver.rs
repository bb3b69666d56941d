//! The task that drives a connection: connects, reconnects after a loss, and resends what is unanswered.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Poll, Waker};
use std::time::Instant;

use tokio::net::TcpStream;

use super::call::Connection;
use super::error::Error;
use super::recovery::Recovery;
use super::running::{ConnectionEnd, Running};
use super::socket;
use super::table::CallState;
use super::timeouts::{MIN_INTERVAL, check};
use crate::transport::Transport;

/// The number of failed attempts to connect that a restart of the server explains.
const RESTART: u32 = 8;

/// Drives one connection and its successors until the client is dropped.
pub(super) async fn drive(connection: Arc<Connection>, mut first: Option<Transport<TcpStream>>) {
    let mut recovery = Recovery::new(connection.options.policy);
    let mut port = None;
    let mut epoch = 0_u32;
    loop {
        let transport = match first.take() {
            Some(transport) => transport,
            None => match establish(&connection, &mut recovery, port).await {
                Some(transport) => transport,
                None => break,
            },
        };
        port = transport.local_port();
        epoch = epoch.wrapping_add(1).max(1);
        if epoch > 1 {
            connection.reconnects.fetch_add(1, Relaxed);
        }
        requeue(&connection);
        let policy = connection.options.policy;
        socket::watch(&transport, policy.timeo, policy.timeout());
        let end = Running::new(&connection, &mut recovery, transport, epoch).run().await;
        if end == ConnectionEnd::Closed {
            break;
        }
        recovery.lost(Instant::now(), random());
        if let Some(program) = &connection.options.callbacks {
            program.disconnected();
        }
    }
    abort(&connection);
}

/// Puts every waiting call into the queue, oldest first, and removes abandoned ones.
fn requeue(connection: &Connection) {
    let (mut resent, mut freed) = (0, 0);
    let mut table = connection.table.lock();
    let now = Instant::now();
    let waiting = table.waiting();
    table.queue.clear();
    for xid in waiting {
        let Some(slot) = table.get(xid) else { continue };
        slot.writing = false;
        if matches!(slot.state, CallState::Abandoned) {
            table.remove(xid);
            freed += 1;
            continue;
        }
        resent += u64::from(slot.sent_on != 0);
        // Also for a call that was made during the outage: it is sent now.
        if connection.options.policy.hard {
            slot.since = now;
        }
        table.queue.push_back(xid);
    }
    drop(table);
    connection.permits.add_permits(freed);
    connection.retransmits.fetch_add(resent, Relaxed);
}

/// Ends all calls: the client was dropped.
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
    connection.permits.close();
    wakers.into_iter().for_each(Waker::wake);
}

fn random() -> u32 {
    let mut bytes = [0; 4];
    let _ = getrandom::fill(&mut bytes);
    u32::from_ne_bytes(bytes)
}

/// Connects when a call waits. `None` if the client was dropped.
async fn establish(
    connection: &Connection,
    recovery: &mut Recovery,
    port: Option<u16>,
) -> Option<Transport<TcpStream>> {
    loop {
        if !work(connection).await {
            return None;
        }
        let now = Instant::now();
        let Some(next_check) = check(connection, recovery, None, now).next_check else { continue };
        let at = recovery.connect_at(now);
        if at > now {
            let nap = tokio::time::sleep_until(at.min(next_check).into());
            tokio::select! { () = nap => {} () = closed(connection) => return None }
            continue;
        }
        let options = &connection.options;
        let limit = options.connect_timeout.min(options.policy.timeo.max(MIN_INTERVAL));
        match socket::connect(connection.address, options.reserved_port, port, limit).await {
            Ok(transport) => return Some(transport),
            Err(error) => {
                // The first failures may be a restart of the server. Persistent ones are logged.
                tracing::debug!(server = %connection.address, %error, "no connection");
                if recovery.failures() >= RESTART {
                    connection.silence.note(connection.address, options.policy.hard);
                }
                recovery.lost(Instant::now(), random());
            }
        }
    }
}

/// Waits until there is a call to make (true) or the client was dropped (false).
async fn work(connection: &Connection) -> bool {
    std::future::poll_fn(|cx| {
        let mut table = connection.table.lock();
        if table.closed {
            return Poll::Ready(false);
        }
        if table.waiting().is_empty() {
            table.register_driver(cx);
            return Poll::Pending;
        }
        Poll::Ready(true)
    })
    .await
}

/// Waits until the client was dropped.
async fn closed(connection: &Connection) {
    std::future::poll_fn(|cx| {
        let mut table = connection.table.lock();
        if table.closed {
            return Poll::Ready(());
        }
        table.register_driver(cx);
        Poll::Pending
    })
    .await;
}
