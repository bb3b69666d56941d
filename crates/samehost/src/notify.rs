//! Tells the service manager how the server is doing: sd_notify(3)'s datagrams, which need no library.

use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use std::sync::Arc;

use server::LockStore;

use crate::human;

/// The server takes calls.
pub fn ready(what: &str) {
    // A line of its own for each variable; a line break inside would start another.
    send(&format!("READY=1\nSTATUS={}", human::name(what.as_bytes())));
}

/// The server has begun to drain.
pub fn stopping() {
    send("STOPPING=1");
}

/// Sends `state` if a service manager listens. That it doesn't is never the server's problem.
fn send(state: &str) {
    if let Some(socket) = std::env::var_os("NOTIFY_SOCKET")
        && let Err(error) = send_to(&socket, state)
    {
        tracing::debug!(%error, "the service manager can't be told");
    }
}

/// The service manager as a keeper of locks, and what it has passed of the last server's: if it takes any
/// descriptors, which `FDSTORE` says how many of (systemd 254, or the unit's `Environment=`). To be called
/// first of all.
pub fn lock_store() -> Option<Arc<LockStore>> {
    let passed = sys::socket_activation::take_listen_fds();
    let most = std::env::var("FDSTORE").ok()?.parse().ok().filter(|most| *most > 0)?;
    let manager = address(&std::env::var_os("NOTIFY_SOCKET")?).ok()?;
    let locks = passed.into_iter().filter(|(name, _)| server::is_lock(name)).collect();
    Some(Arc::new(LockStore::new(manager, most, locks)))
}

fn address(socket: &OsString) -> std::io::Result<SocketAddr> {
    match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(socket),
    }
}

fn send_to(socket: &OsString, state: &str) -> std::io::Result<()> {
    let address = address(socket)?;
    let sender = UnixDatagram::unbound()?;
    sender.set_nonblocking(true)?;
    sender.send_to_addr(state.as_bytes(), &address).map(drop)
}
