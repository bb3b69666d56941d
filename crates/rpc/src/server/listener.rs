//! Listening sockets: binding, arming in epoll, pausing and closing.

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::OwnedFd,
    sync::Arc,
    time::Instant,
};

use fairness::LogLimit;
use parking_lot::Mutex;
use rustix::{
    event::epoll::{self, EventData, EventFlags},
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt},
};

/// The length of the kernel's queue of connections that aren't accepted yet.
const BACKLOG: i32 = 1024;

/// A listening socket. It is closed once the server stops.
#[derive(Debug)]
pub struct Listener {
    socket: Mutex<Option<Arc<TcpListener>>>,
    /// The listener's epoll number, while it waits for the system to have resources again.
    paused: Mutex<Option<u64>>,
    /// Bounds the log lines about waiting.
    complaints: LogLimit,
    /// The address that it listens on.
    pub address: SocketAddr,
}

impl Listener {
    /// Binds and listens.
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

    /// Adds the socket to epoll, for one event at a time.
    pub fn watch(&self, epoll: &OwnedFd, number: u64) -> Result<(), Errno> {
        match &*self.socket.lock() {
            Some(socket) => {
                epoll::add(epoll, socket, EventData::new_u64(number), EventFlags::IN | EventFlags::ONESHOT)
            }
            None => Ok(()),
        }
    }

    /// Accepts one connection.
    pub fn accept(&self) -> Option<io::Result<(TcpStream, SocketAddr)>> {
        // Not under the lock: `close` doesn't wait for a connection.
        let socket = self.socket.lock().clone()?;
        Some(socket.accept())
    }

    /// Waits, instead of asking for the next event, until [`Listener::resume`].
    pub fn pause(&self, number: u64) {
        *self.paused.lock() = Some(number);
    }

    /// Arms the socket again after a pause. Returns whether there was one.
    pub fn resume(&self, epoll: &OwnedFd) -> bool {
        let paused = self.paused.lock().take();
        if let Some(number) = paused {
            self.rearm(epoll, number);
        }
        paused.is_some()
    }

    /// Arms the socket for the next event.
    pub fn rearm(&self, epoll: &OwnedFd, number: u64) {
        if let Some(socket) = &*self.socket.lock() {
            let flags = EventFlags::IN | EventFlags::ONESHOT;
            if let Err(error) = epoll::modify(epoll, socket, EventData::new_u64(number), flags) {
                tracing::error!(address = %self.address, %error, "can't wait for connections any more");
            }
        }
    }

    /// Stops listening.
    pub fn close(&self) {
        // A worker that is accepting keeps it open for a moment longer. Closing removes it from epoll.
        drop(self.socket.lock().take());
    }

    /// Logs, at a bounded rate, that connections have to wait.
    pub fn log_error(&self, error: &io::Error) {
        if let Some(skipped) = self.complaints.admit(Instant::now()) {
            tracing::warn!(address = %self.address, %error, skipped, "can't accept connections for now");
        }
    }
}
