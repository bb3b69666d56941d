//! Descriptors that the service manager has opened for this process (sd_listen_fds(3)).

use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::FdFlags;

/// The number of the first one.
const FIRST: RawFd = 3;

/// Those that are meant for this process (`LISTEN_PID`), by their names (`LISTEN_FDNAMES`). Only the first
/// call returns any: from then on they are somebody's.
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
        // SAFETY: fcntl takes any number, and says whether it is open.
        if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
            break;
        }
        // SAFETY: it is open, and was before this process began, as its environment says: nobody in it has
        // opened it, or owns it.
        let file = unsafe { OwnedFd::from_raw_fd(number) };
        // Programs that this process starts don't get it.
        let _ = rustix::io::fcntl_setfd(&file, FdFlags::CLOEXEC);
        found.push((names.next().unwrap_or_default().to_owned(), file));
    }
    found
}
