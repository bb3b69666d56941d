//! The other network namespaces of this host, as far as /proc shows them.
//!
//! A namespace is found through a process in it. The processes, the namespaces and the time are bounded.
//! Users share the namespaces ([`crate::round_robin`]), since every user can make some. The result is a
//! descriptor of the namespace, so it can't be replaced afterwards.

use crate::round_robin::round_robin;
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use std::collections::HashMap;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// The most processes that are examined.
const MAX_PROCESSES: usize = 32_768;
/// The number of processes that are examined whatever the time.
const MIN_PROCESSES: usize = 1024;
/// The most namespaces that are entered.
const MAX_NAMESPACES: usize = 256;
/// The time limit for examining the processes.
const MAX_TIME: Duration = Duration::from_millis(300);

/// Another network namespace.
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

/// Whether this process sees, and may enter, all namespaces: it has CAP_SYS_ADMIN in the initial user
/// namespace, and its /proc shows the initial pid namespace. A process with the capability in a container of
/// its own (a user namespace, a pid namespace) sees only some.
pub(crate) fn sees_the_host() -> bool {
    /// The inode numbers of the kernel's first namespaces (include/uapi/linux/nsfs.h).
    const FIRST: [(&str, &[u8]); 2] = [("user", b"user:[4026531837]"), ("pid", b"pid:[4026531836]")];
    may_enter()
        && FIRST.iter().all(|(kind, first)| {
            rustix::fs::readlink(format!("/proc/self/ns/{kind}"), Vec::new())
                .is_ok_and(|link| link.as_bytes() == *first)
        })
}

/// The most walks through /proc at the same time, including stuck ones.
const MAX_WALKS: usize = 8;

/// The walks in progress.
static WALKS: Mutex<Vec<Arc<Walk>>> = Mutex::new(Vec::new());

/// A walk through /proc, which the kernel may block for ever at a process that hangs.
#[derive(Default)]
struct Walk {
    /// The process that it is examining.
    at: AtomicU32,
    /// The searching thread has stopped waiting for it.
    overdue: AtomicBool,
}

impl Walk {
    /// Begins a walk, unless too many are stuck.
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

    /// Whether another walk is stuck at this process.
    fn is_known_to_hang(pid: u32) -> bool {
        WALKS.lock().iter().any(|walk| walk.overdue.load(SeqCst) && walk.at.load(SeqCst) == pid)
    }
}

/// The other network namespaces that are found within [`MAX_TIME`], to be used within as much again. A
/// process that hangs in the kernel can block a thread that examines it in /proc. So a separate thread walks,
/// which isn't waited for any longer than that, and the next search skips such a process. Namespaces with
/// processes of `preferred` users come first, and the users take turns; `None` among the preferred stands for
/// all users whom this user namespace doesn't map.
///
/// They are opened one after the other, so that a search has few of their descriptors open at a time.
///
/// # Errors
/// When /proc can't be read, when no thread can be created, and when too many walks are stuck.
pub(crate) fn others(preferred: Vec<Option<u32>>) -> std::io::Result<Others> {
    let began = Instant::now();
    let own = rustix::fs::readlink("/proc/thread-self/ns/net", Vec::new())
        .map_err(|errno| sys::proc_error(errno.into()))?;
    let walk = Walk::begin()?;
    let (sender, receiver) = sync_channel(AHEAD);
    let others = Others { receiver, walk: Arc::clone(&walk), deadline: began + MAX_TIME * 2, left: AT_LEAST };
    let thread = std::thread::Builder::new().name("lane-namespaces".into()).spawn(move || {
        walk_proc(&walk, &own, began, &preferred, &sender);
        walk.end();
    });
    match thread {
        Ok(_) => Ok(others),
        Err(error) => {
            others.walk.end();
            Err(error)
        }
    }
}

/// The number of namespaces that are returned however long that takes.
const AT_LEAST: usize = 16;
/// The number of namespaces that are opened in advance.
const AHEAD: usize = 4;

/// The namespaces that a walk finds. Dropping this ends the walk.
pub(crate) struct Others {
    receiver: Receiver<Namespace>,
    walk: Arc<Walk>,
    deadline: Instant,
    /// The number that may still be returned after the deadline: on a busy machine time says little.
    left: usize,
}

impl Iterator for Others {
    type Item = Namespace;

    fn next(&mut self) -> Option<Namespace> {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 && Instant::now() > self.deadline {
            return None;
        }
        match self.receiver.recv_timeout(self.deadline.saturating_duration_since(Instant::now())) {
            Ok(namespace) => Some(namespace),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => {
                self.walk.overdue.store(true, SeqCst);
                None
            }
        }
    }
}

/// Examines one process after the other, and then sends their namespaces.
fn walk_proc(
    walk: &Walk,
    own: &CString,
    began: Instant,
    preferred: &[Option<u32>],
    found: &SyncSender<Namespace>,
) {
    let namespaces_with_processes = namespaces_with_processes(walk, own, began + MAX_TIME, preferred);
    let is_preferred = |owner: Option<u32>| preferred.contains(&owner);
    for pid in round_robin(namespaces_with_processes, is_preferred).take(MAX_NAMESPACES) {
        walk.at.store(pid, SeqCst);
        let path = format!("/proc/{pid}/ns/net");
        if let Ok(file) = rustix::fs::open(path.as_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            && found.send(Namespace { pid, file }).is_err()
        {
            return;
        }
    }
}

/// A process and its user (`None` for one whom this user namespace doesn't map) for each namespace, of a
/// preferred user if there is one, in the order of the processes.
fn namespaces_with_processes(
    walk: &Walk,
    own: &CString,
    deadline: Instant,
    preferred: &[Option<u32>],
) -> Vec<(Option<u32>, u32)> {
    let overflow = sys::peer::overflow_uid();
    let mut by_link = HashMap::<CString, (Option<u32>, u32)>::new();
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    for (number, entry) in entries.flatten().take(MAX_PROCESSES).enumerate() {
        if number >= MIN_PROCESSES && Instant::now() >= deadline {
            break;
        }
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if Walk::is_known_to_hang(pid) {
            continue;
        }
        walk.at.store(pid, SeqCst);
        // A process that has ended meanwhile, or that may not be inspected, shows no namespace.
        let Ok(link) = rustix::fs::readlink(format!("/proc/{pid}/ns/net"), Vec::new()) else { continue };
        let Ok(process) = entry.metadata() else { continue };
        if link == *own {
            continue;
        }
        let owner = Some(process.uid()).filter(|uid| *uid != overflow);
        let known = by_link.entry(link).or_insert((owner, pid));
        if preferred.contains(&owner) && !preferred.contains(&known.0) {
            *known = (owner, pid);
        }
    }
    let mut namespaces_with_processes: Vec<_> = by_link.into_values().collect();
    namespaces_with_processes.sort_unstable_by_key(|(_, pid)| *pid);
    namespaces_with_processes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stuck_walks_are_bounded_and_their_processes_skipped() {
        let stuck = Walk::begin().expect("room");
        stuck.at.store(u32::MAX, SeqCst);
        assert!(!Walk::is_known_to_hang(u32::MAX), "it is still waited for");
        stuck.overdue.store(true, SeqCst);
        assert!(Walk::is_known_to_hang(u32::MAX));
        let more: Vec<_> = std::iter::from_fn(|| Walk::begin().ok()).take(MAX_WALKS + 1).collect();
        assert!(more.len() < MAX_WALKS);
        more.iter().chain([&stuck]).for_each(|walk| walk.end());
        assert!(!Walk::is_known_to_hang(u32::MAX));
        assert!(others(Vec::new()).is_ok());
    }
}
