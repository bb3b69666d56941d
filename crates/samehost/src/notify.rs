//! Notifications for the service manager: sd_notify(3)'s datagrams, without the library.

use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use server::LockStore;

use crate::human;

/// How long a service manager with a full queue is waited for.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);

/// What a step may take longer than it expects, on a slow machine, and what short steps after it take.
const EXTRA_TIME: Duration = Duration::from_secs(30);

/// The server, or the mount, is ready; or has finished a reload.
pub fn ready(what: &str) {
    // Each variable is a line, so a newline in `what` is escaped.
    send(&format!("READY=1\nSTATUS={}", human::name(what.as_bytes())));
}

/// The server begins a reload, whose end is [`ready`].
pub fn reloading() {
    let now = clock_gettime(ClockId::Monotonic);
    // From version 253 on, systemd takes the READY of an earlier reload for another one's without the time.
    send(&format!("RELOADING=1\nMONOTONIC_USEC={}", now.tv_sec * 1_000_000 + now.tv_nsec / 1000));
}

/// The interval at which the service manager expects [`alive`] (`WATCHDOG_USEC`, `WATCHDOG_PID`); `None` if
/// it doesn't expect any.
pub fn watchdog_interval() -> Option<Duration> {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let is_for_us = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
    number("WATCHDOG_USEC").filter(|usec| is_for_us && *usec > 0).map(Duration::from_micros)
}

/// The process works.
pub fn alive() {
    send("WATCHDOG=1");
}

/// The start goes on with `doing`, which may take as long as `at_most`.
pub fn starting(doing: &str, at_most: Duration) {
    send(&format!("{}\nSTATUS={}", more_time(at_most), human::name(doing.as_bytes())));
}

/// The process is stopping.
pub fn stopping() {
    send("STOPPING=1");
}

/// The process is stopping, which may take as long as `at_most`.
pub fn stopping_within(at_most: Duration) {
    send(&format!("STOPPING=1\n{}", more_time(at_most)));
}

/// A request that a start or a stop may take this long, with what comes after it, beyond the limits of the
/// unit (`TimeoutStartSec=`, `TimeoutStopSec=`). systemd never shortens these.
fn more_time(at_most: Duration) -> String {
    format!("EXTEND_TIMEOUT_USEC={}", (at_most + EXTRA_TIME).as_micros())
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
    sender.set_write_timeout(Some(SEND_TIMEOUT))?;
    sender.send_to_addr(state.as_bytes(), &address).map(drop)
}
