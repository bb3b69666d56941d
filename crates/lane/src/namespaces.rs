//! The other network namespaces of this host, as far as /proc shows them.
//!
//! A namespace is found through a process that lives in it. Everything is bounded: processes looked at,
//! namespaces found, time. Users share the namespaces ([`crate::turns`]), since every user can make some.
//! What is found is a descriptor of the namespace, so it can't be exchanged afterwards.

use crate::turns::in_turns;
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

/// How many processes are looked at.
const MAX_PROCESSES: usize = 32_768;
/// How many processes are looked at whatever the time.
const MIN_PROCESSES: usize = 1024;
/// How many namespaces are entered.
const MAX_NAMESPACES: usize = 256;
/// How long looking through the processes may take.
const MAX_TIME: Duration = Duration::from_millis(300);

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

/// Whether this process sees, and may enter, everything: it has CAP_SYS_ADMIN in the initial user namespace,
/// and its /proc shows the initial pid namespace. Whoever has it in a container of its own (a user namespace,
/// a pid namespace) sees a part only.
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

/// The other network namespaces, as far as they are found in [`MAX_TIME`], and looked at in as much again. A
/// process that hangs in the kernel can hold up who looks at it in /proc, so a thread looks that isn't waited
/// for any longer than that, and the next search passes such a process over. Namespaces with processes of
/// users who are `preferred` come first, and the users take turns; `None` among the preferred is everybody
/// whom our user namespace doesn't map.
///
/// They come one after the other: a search has few of their descriptors open at a time.
///
/// # Errors
/// When /proc can't be read, when there is no thread to be had, and when too many of them are stuck.
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

/// How many namespaces are looked at however long that takes.
const AT_LEAST: usize = 16;
/// How many namespaces are opened before they are asked for.
const AHEAD: usize = 4;

/// The namespaces that a walk finds. Dropped, the walk ends.
pub(crate) struct Others {
    receiver: Receiver<Namespace>,
    walk: Arc<Walk>,
    deadline: Instant,
    /// How many may come however late it is: on a machine that is busy time says little.
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

/// Looks at one process after the other, and then sends the namespaces that they are in.
fn walk_proc(
    walk: &Walk,
    own: &CString,
    began: Instant,
    preferred: &[Option<u32>],
    found: &SyncSender<Namespace>,
) {
    let inhabited = inhabited(walk, own, began + MAX_TIME, preferred);
    let is_preferred = |owner: Option<u32>| preferred.contains(&owner);
    for pid in in_turns(inhabited, is_preferred).take(MAX_NAMESPACES) {
        walk.at.store(pid, SeqCst);
        let path = format!("/proc/{pid}/ns/net");
        if let Ok(file) = rustix::fs::open(path.as_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            && found.send(Namespace { pid, file }).is_err()
        {
            return;
        }
    }
}

/// A process and its user (`None` for one whom our user namespace doesn't map) for each namespace, a
/// preferred user's if there is one; in the order of the processes.
fn inhabited(
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
        // A process that has ended meanwhile, or that we may not look at, shows no namespace.
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
    let mut inhabited: Vec<_> = by_link.into_values().collect();
    inhabited.sort_unstable_by_key(|(_, pid)| *pid);
    inhabited
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
        assert!(others(Vec::new()).is_ok());
    }
}
