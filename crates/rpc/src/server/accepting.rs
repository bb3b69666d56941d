//! Turns accepted sockets into connections: socket options, owner, shares, and displacement of idle
//! connections.

use std::{
    io,
    net::{SocketAddr, TcpStream},
    os::fd::{AsFd as _, OwnedFd},
    sync::Arc,
    time::Duration,
};

use rustix::{
    event::epoll::{self, EventData, EventFlags},
    io::Errno,
    net::sockopt,
};

use super::{
    Peer, connection::Connection, displacing::Newcomer, engine::Engine, listener::Listener,
    reserved_descriptors::is_shortage,
};
use crate::transport::Transport;

/// The most connections that one worker accepts in a row.
const MAX_ACCEPTS: usize = 64;

/// The send buffer of connections within the host, in bytes (the kernel doubles it). With 128 KiB READs,
/// eight in flight, this gives twice the throughput at a third of the CPU time of the kernel's own choice of
/// up to 4 MiB.
const LOOPBACK_SEND_BUFFER: usize = 128 << 10;

/// Accepts the connections that wait, and arms the listener for the next event.
pub fn serve(engine: &Engine, listener: &Listener, number: u64) {
    if accept(engine, listener) {
        // Descriptors or memory have run out: arming the listener now would only keep a processor busy.
        listener.pause(number);
        engine.wake_supervisor();
    } else {
        listener.rearm(&engine.epoll, number);
    }
}

/// Accepts the connections that wait. Returns whether the system has run out of descriptors or memory.
fn accept(engine: &Engine, listener: &Listener) -> bool {
    for _ in 0..MAX_ACCEPTS {
        let Some(mut accepted) = listener.accept() else { return false };
        let mut short = false;
        if accepted.as_ref().is_err_and(lacks_descriptors) && engine.reserved_descriptors.release() {
            let Some(again) = listener.accept() else { return false };
            (accepted, short) = (again, true);
        }
        match accepted {
            Ok((stream, address)) => {
                if let Err(error) = enter(engine, stream, address, &mut short) {
                    tracing::debug!(%address, %error, "connection lost before its first call");
                }
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => {
                    engine.reserved_descriptors.refill();
                    return false;
                }
                // The connection was closed before it was accepted. Others may wait.
                io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => {}
                _ => {
                    listener.log_error(&error);
                    return true;
                }
            },
        }
        if short && !engine.reserved_descriptors.refill() {
            listener.log_error(&Errno::MFILE.into());
            return true;
        }
    }
    false
}

fn lacks_descriptors(error: &io::Error) -> bool {
    Errno::from_io_error(error).is_some_and(is_shortage)
}

/// Makes a connection of an accepted socket, if its peer may have one more or another connection is
/// displaced. `short` says that no descriptor is left, so that another connection must be displaced.
fn enter(engine: &Engine, stream: TcpStream, address: SocketAddr, short: &mut bool) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(&stream, true)?;
    sockopt::set_tcp_keepidle(stream.as_fd(), engine.limits.keepalive.max(Duration::from_secs(1)))?;
    sockopt::set_tcp_keepintvl(stream.as_fd(), Duration::from_secs(10))?;
    sockopt::set_tcp_keepcnt(stream.as_fd(), 6)?;
    let local = stream.local_addr()?;
    if local.ip() == address.ip() || address.ip().is_loopback() {
        // Queueing megabytes within a host gains nothing, and the queued data leaves the processor's caches
        // before it is read. This concerns buffer sizes only; nothing else depends on where a peer is.
        sockopt::set_socket_send_buffer_size(&stream, LOOPBACK_SEND_BUFFER)?;
    }
    let mut owner = sys::tcp_owner(&stream);
    if owner.is_err_and(is_shortage) && engine.reserved_descriptors.release() {
        *short = true;
        owner = sys::tcp_owner(&stream);
    }
    let peer = Peer { connection: engine.number(), address, local, owner: owner? };
    let connection = Arc::new(Connection::new(engine, Transport::plain(OwnedFd::from(stream)), peer, None));
    if engine.is_stopping() {
        return Ok(());
    }
    let newcomer = Newcomer { peer: connection.share, standing: connection.standing() };
    let entered = !*short && engine.registry.insert(&connection, false)
        || engine.displace_idle(newcomer) && engine.registry.insert(&connection, true);
    if !entered {
        engine.registry.refused();
        return Ok(());
    }
    Ok(watch(engine, &connection)?)
}

/// Adds a connection of the registry to epoll.
pub fn watch(engine: &Engine, connection: &Connection) -> Result<(), Errno> {
    let flags = EventFlags::IN | EventFlags::ONESHOT;
    let added = epoll::add(&engine.epoll, connection, EventData::new_u64(connection.number()), flags);
    if added.is_err() {
        engine.registry.remove(connection, false);
    }
    added
}
