//! Tells the service manager how the server is doing: sd_notify(3)'s datagrams, which need no library.

use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

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

fn send_to(socket: &OsString, state: &str) -> std::io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    let sender = UnixDatagram::unbound()?;
    sender.set_nonblocking(true)?;
    sender.send_to_addr(state.as_bytes(), &address).map(drop)
}
