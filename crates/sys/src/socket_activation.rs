//! Descriptors passed by the service manager (sd_listen_fds(3)).

use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::FdFlags;

/// The number of the first descriptor.
const FIRST: RawFd = 3;

/// The descriptors for this process (`LISTEN_PID`) with their names (`LISTEN_FDNAMES`). Only the first call
/// returns any, and the caller owns them.
#[must_use]
pub fn take_listen_fds() -> Vec<(String, OwnedFd)> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let variable = |name| std::env::var(name).ok();
    let is_ours = variable("LISTEN_PID").and_then(|pid| pid.parse().ok()) == Some(std::process::id());
    let count = variable("LISTEN_FDS").filter(|_| is_ours).and_then(|count| count.parse::<RawFd>().ok());
    let names = variable("LISTEN_FDNAMES").unwrap_or_default();
    if TAKEN.swap(true, Ordering::AcqRel) {
        return Vec::new();
    }
    let mut names = names.split(':');
    let mut found = Vec::new();
    for number in FIRST..FIRST.saturating_add(count.unwrap_or_default()) {
        // SAFETY: fcntl(2) accepts any number and reports whether it is open.
        if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
            break;
        }
        // SAFETY: the descriptor is open, and was before this process began, as its environment says. So no
        // code in this process owns it.
        let file = unsafe { OwnedFd::from_raw_fd(number) };
        // Child processes don't inherit it.
        let _ = rustix::io::fcntl_setfd(&file, FdFlags::CLOEXEC);
        found.push((names.next().unwrap_or_default().to_owned(), file));
    }
    found
}
