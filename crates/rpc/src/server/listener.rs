//! Where connections come from.

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::{AsFd as _, OwnedFd},
    sync::Arc,
    time::{Duration, Instant},
};

use fairness::LogLimit;
use parking_lot::Mutex;
use rustix::{
    event::epoll::{self, EventData, EventFlags},
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt},
};

use super::{connection::Connection, displacing::Newcomer, engine::Engine, spare::is_shortage};

/// How many connections one worker accepts in a row.
const ACCEPTS: usize = 64;

/// The kernel's queue of connections that nobody has accepted yet.
const BACKLOG: i32 = 1024;

/// The send buffer of connections within the host, in bytes (the kernel doubles it). With 128 KiB READs,
/// eight in flight, this gives twice the throughput at a third of the CPU time of the kernel's own choice of
/// up to 4 MiB.
const LOOPBACK_SEND_BUFFER: usize = 128 << 10;

/// A listening socket; none once the server stops.
#[derive(Debug)]
pub struct Listener {
    socket: Mutex<Option<Arc<TcpListener>>>,
    /// The number under which epoll will be asked again once the system has something to spare.
    paused: Mutex<Option<u64>>,
    /// When it was last said that it had to wait.
    complaints: LogLimit,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Listener {
    /// Listens.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        if address.is_ipv6() {
            sockopt::set_ipv6_v6only(&socket, true)?;
        }
        rustix::net::bind(&socket, &address)?;
        rustix::net::listen(&socket, BACKLOG)?;
        let socket = TcpListener::from(socket);
        let address = socket.local_addr()?;
        Ok(Self {
            socket: Mutex::new(Some(Arc::new(socket))),
            paused: Mutex::default(),
            complaints: LogLimit::new(1),
            address,
        })
    }

    /// Enters the socket into epoll, one event at a time.
    pub fn watch(&self, epoll: &OwnedFd, number: u64) -> Result<(), Errno> {
        match &*self.socket.lock() {
            Some(socket) => {
                epoll::add(epoll, socket, EventData::new_u64(number), EventFlags::IN | EventFlags::ONESHOT)
            }
            None => Ok(()),
        }
    }

    /// Accepts what is there, and asks for the next event.
    pub fn serve(&self, engine: &Engine, number: u64) {
        if self.accept(engine) {
            // Short of descriptors or memory: to ask at once would only keep a processor busy.
            *self.paused.lock() = Some(number);
            engine.wake_supervisor();
        } else {
            self.rearm(&engine.epoll, number);
        }
    }

    /// Goes on after a pause; returns whether there was one.
    pub fn resume(&self, epoll: &OwnedFd) -> bool {
        let paused = self.paused.lock().take();
        if let Some(number) = paused {
            self.rearm(epoll, number);
        }
        paused.is_some()
    }

    /// Asks for the next event.
    fn rearm(&self, epoll: &OwnedFd, number: u64) {
        if let Some(socket) = &*self.socket.lock() {
            let flags = EventFlags::IN | EventFlags::ONESHOT;
            if let Err(error) = epoll::modify(epoll, socket, EventData::new_u64(number), flags) {
                tracing::error!(address = %self.address, %error, "can't wait for connections any more");
            }
        }
    }

    /// Listens no more.
    pub fn close(&self) {
        // Who is accepting right now has it open a moment longer; closing takes it out of epoll.
        drop(self.socket.lock().take());
    }

    /// Accepts what is there. Returns whether the system has run short of something.
    fn accept(&self, engine: &Engine) -> bool {
        let Some(socket) = self.socket.lock().clone() else { return false };
        for _ in 0..ACCEPTS {
            let (mut accepted, mut short) = (socket.accept(), false);
            if accepted.as_ref().is_err_and(lacks_descriptors) && engine.spare.release() {
                (accepted, short) = (socket.accept(), true);
            }
            match accepted {
                Ok((stream, address)) => {
                    if let Err(error) = enter(engine, stream, address, &mut short) {
                        tracing::debug!(%address, %error, "connection lost before its first call");
                    }
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => {
                        engine.spare.refill();
                        return false;
                    }
                    // The connection was gone before we came; there may be others.
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => {}
                    _ => {
                        self.complain(&error);
                        return true;
                    }
                },
            }
            if short && !engine.spare.refill() {
                self.complain(&Errno::MFILE.into());
                return true;
            }
        }
        false
    }

    /// Says that connections have to wait, not more often than anybody wants to read it.
    fn complain(&self, error: &io::Error) {
        if let Some(skipped) = self.complaints.admit(Instant::now()) {
            tracing::warn!(address = %self.address, %error, skipped, "can't accept connections for now");
        }
    }
}

fn lacks_descriptors(error: &io::Error) -> bool {
    Errno::from_io_error(error).is_some_and(is_shortage)
}

/// Makes a connection of an accepted socket, if there may be one more or another one makes way. `short` says
/// that there are no descriptors left: then another one must.
fn enter(engine: &Engine, stream: TcpStream, address: SocketAddr, short: &mut bool) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(&stream, true)?;
    sockopt::set_tcp_keepidle(stream.as_fd(), engine.limits.keepalive.max(Duration::from_secs(1)))?;
    sockopt::set_tcp_keepintvl(stream.as_fd(), Duration::from_secs(10))?;
    sockopt::set_tcp_keepcnt(stream.as_fd(), 6)?;
    let local = stream.local_addr()?;
    if local.ip() == address.ip() || address.ip().is_loopback() {
        // Nothing is gained by queueing megabytes to oneself, and much is lost: what is queued falls out of
        // the processor's caches before it is read. A matter of buffers only; nothing else asks where a peer
        // is.
        sockopt::set_socket_send_buffer_size(&stream, LOOPBACK_SEND_BUFFER)?;
    }
    let mut owner = sys::tcp_owner(&stream);
    if owner.is_err_and(is_shortage) && engine.spare.release() {
        *short = true;
        owner = sys::tcp_owner(&stream);
    }
    let owner = owner?;
    let number = engine.number();
    let connection = Connection::new(stream.into(), number, address, local, owner, engine);
    let connection = Arc::new(connection);
    if engine.is_stopping() {
        return Ok(());
    }
    let newcomer = Newcomer { peer: connection.share, standing: connection.standing() };
    let entered = !*short && engine.registry.insert(&connection, false)
        || engine.make_way(newcomer) && engine.registry.insert(&connection, true);
    if !entered {
        engine.registry.refused();
        return Ok(());
    }
    let flags = EventFlags::IN | EventFlags::ONESHOT;
    if let Err(error) = epoll::add(&engine.epoll, &*connection, EventData::new_u64(number), flags) {
        engine.registry.remove(&connection, false);
        return Err(error.into());
    }
    Ok(())
}
