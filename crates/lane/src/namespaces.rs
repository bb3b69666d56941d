//! The other network namespaces of this host, as far as /proc shows them.
//!
//! A namespace is found through a process that lives in it. Everything is bounded: processes looked at, namespaces
//! found, time. What is found is a descriptor of the namespace, so it can't be exchanged afterwards.

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use std::collections::HashSet;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// How many processes are looked at.
const MAX_PROCESSES: usize = 32_768;
/// How many namespaces are entered.
const MAX_NAMESPACES: usize = 256;
/// How long looking may take.
pub(crate) const MAX_TIME: Duration = Duration::from_millis(300);

/// A network namespace that isn't ours.
pub(crate) struct Namespace {
    /// A process in it.
    pub(crate) pid: u32,
    /// The namespace.
    pub(crate) file: OwnedFd,
}

/// Whether this process has CAP_SYS_ADMIN, without which setns(2) is refused.
pub(crate) fn may_enter() -> bool {
    rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(rustix::thread::CapabilitySet::SYS_ADMIN))
}

/// Whether this process sees, and may enter, everything: it has CAP_SYS_ADMIN in the initial user namespace, and its
/// /proc shows the initial pid namespace. Whoever has it in a container of its own (a user namespace, a pid namespace)
/// sees a part only.
pub(crate) fn sees_the_host() -> bool {
    /// The inode numbers of the kernel's first namespaces (include/uapi/linux/nsfs.h).
    const FIRST: [(&str, &[u8]); 2] = [("user", b"user:[4026531837]"), ("pid", b"pid:[4026531836]")];
    may_enter()
        && FIRST.iter().all(|(kind, first)| {
            rustix::fs::readlink(format!("/proc/self/ns/{kind}"), Vec::new())
                .is_ok_and(|link| link.as_bytes() == *first)
        })
}

/// Walks through /proc that may be under way, those that are stuck included.
const MAX_WALKS: usize = 8;

/// The walks under way.
static WALKS: Mutex<Vec<Arc<Walk>>> = Mutex::new(Vec::new());

/// A walk through /proc, which the kernel may hold up for ever at a process that hangs.
#[derive(Default)]
struct Walk {
    /// The process it is at.
    at: AtomicU32,
    /// Nobody waits for it any more.
    overdue: AtomicBool,
}

impl Walk {
    /// Begins one, unless too many are stuck.
    fn begin() -> std::io::Result<Arc<Self>> {
        let mut walks = WALKS.lock();
        if walks.len() >= MAX_WALKS {
            return Err(std::io::Error::other("processes that hang hold up the search through /proc"));
        }
        let walk = Arc::new(Self::default());
        walks.push(Arc::clone(&walk));
        Ok(walk)
    }

    fn end(self: &Arc<Self>) {
        WALKS.lock().retain(|other| !Arc::ptr_eq(other, self));
    }

    /// Whether another walk has got stuck at this process.
    fn is_known_to_hang(pid: u32) -> bool {
        WALKS.lock().iter().any(|walk| walk.overdue.load(SeqCst) && walk.at.load(SeqCst) == pid)
    }
}

/// The other network namespaces, as far as they are found in [`MAX_TIME`]. A process that hangs in the kernel can hold up who
/// looks at it in /proc, so a thread looks that isn't waited for any longer than that, and the next search passes such a
/// process over.
///
/// # Errors
/// When /proc can't be read, when there is no thread to be had, and when too many of them are stuck.
pub(crate) fn others() -> std::io::Result<Vec<Namespace>> {
    let deadline = Instant::now() + MAX_TIME;
    let own = rustix::fs::readlink("/proc/thread-self/ns/net", Vec::new())?;
    let walk = Walk::begin()?;
    let (sender, receiver) = sync_channel(MAX_NAMESPACES);
    let walker = Arc::clone(&walk);
    let thread = std::thread::Builder::new().name("lane-namespaces".into()).spawn(move || {
        walk_proc(&walker, own, deadline, &sender);
        walker.end();
    });
    if let Err(error) = thread {
        walk.end();
        return Err(error);
    }
    let mut found = Vec::new();
    loop {
        match receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(namespace) => found.push(namespace),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                walk.overdue.store(true, SeqCst);
                break;
            }
        }
    }
    Ok(found)
}

/// Looks at one process after the other, and sends the namespaces that weren't seen before.
fn walk_proc(walk: &Walk, own: CString, deadline: Instant, found: &SyncSender<Namespace>) {
    let mut seen = HashSet::from([own]);
    let Ok(entries) = std::fs::read_dir("/proc") else { return };
    for entry in entries.flatten().take(MAX_PROCESSES) {
        if seen.len() > MAX_NAMESPACES || Instant::now() >= deadline {
            return;
        }
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if Walk::is_known_to_hang(pid) {
            continue;
        }
        walk.at.store(pid, SeqCst);
        let path = format!("/proc/{pid}/ns/net");
        // A process that has ended meanwhile, or that we may not look at, shows no namespace.
        let Ok(link) = rustix::fs::readlink(path.as_str(), Vec::new()) else { continue };
        if !seen.insert(link) {
            continue;
        }
        if let Ok(file) = rustix::fs::open(path.as_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            && found.try_send(Namespace { pid, file }).is_err()
        {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_at_which_a_walk_is_stuck_is_passed_over_and_stuck_walks_are_bounded() {
        let stuck = Walk::begin().expect("room");
        stuck.at.store(u32::MAX, SeqCst);
        assert!(!Walk::is_known_to_hang(u32::MAX), "it is still waited for");
        stuck.overdue.store(true, SeqCst);
        assert!(Walk::is_known_to_hang(u32::MAX));
        let more: Vec<_> = std::iter::from_fn(|| Walk::begin().ok()).take(MAX_WALKS + 1).collect();
        assert!(more.len() < MAX_WALKS);
        more.iter().chain([&stuck]).for_each(|walk| walk.end());
        assert!(!Walk::is_known_to_hang(u32::MAX));
        assert!(others().is_ok());
    }
}
