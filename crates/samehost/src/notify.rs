//! Notifications for the service manager: sd_notify(3)'s datagrams, without the library.

use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use std::sync::Arc;

use server::LockStore;

use crate::human;

/// The server, or the mount, is ready.
pub fn ready(what: &str) {
    // Each variable is a line, so a newline in `what` is escaped.
    send(&format!("READY=1\nSTATUS={}", human::name(what.as_bytes())));
}

/// The process is stopping.
pub fn stopping() {
    send("STOPPING=1");
}

/// Sends `state` if there is a service manager. A failure is only logged.
fn send(state: &str) {
    if let Some(socket) = std::env::var_os("NOTIFY_SOCKET")
        && let Err(error) = send_to(&socket, state)
    {
        tracing::debug!(%error, "the service manager can't be notified");
    }
}

/// The service manager's file descriptor store, which keeps the server's locks, with the ones it has passed
/// from the last server. `None` if it stores no descriptors; `FDSTORE` is their number (systemd 254, or the
/// unit's `Environment=`). Called before anything else opens descriptors.
pub fn lock_store() -> Option<Arc<LockStore>> {
    let passed = sys::socket_activation::take_listen_fds();
    let max = std::env::var("FDSTORE").ok()?.parse().ok().filter(|max| *max > 0)?;
    let manager = address(&std::env::var_os("NOTIFY_SOCKET")?).ok()?;
    let locks = passed.into_iter().filter(|(name, _)| server::is_lock(name)).collect();
    Some(Arc::new(LockStore::new(manager, max, locks)))
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
