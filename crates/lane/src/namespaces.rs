//! The other network namespaces of this host, as far as /proc shows them.
//!
//! A namespace is found through a process that lives in it. Everything is bounded: processes looked at, namespaces
//! found, time. What is found is a descriptor of the namespace, so it can't be exchanged afterwards.

use rustix::fs::{Mode, OFlags};
use std::collections::HashSet;
use std::os::fd::OwnedFd;
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

/// The other network namespaces.
pub(crate) fn others() -> std::io::Result<Vec<Namespace>> {
    let deadline = Instant::now() + MAX_TIME;
    let own = rustix::fs::readlink("/proc/thread-self/ns/net", Vec::new())?;
    let mut seen = HashSet::from([own]);
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")?.take(MAX_PROCESSES) {
        if found.len() == MAX_NAMESPACES || Instant::now() >= deadline {
            break;
        }
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let path = format!("/proc/{pid}/ns/net");
        // A process that has ended meanwhile, or that we may not look at, shows no namespace.
        let Ok(link) = rustix::fs::readlink(path.as_str(), Vec::new()) else { continue };
        if !seen.insert(link) {
            continue;
        }
        if let Ok(file) = rustix::fs::open(path.as_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
            found.push(Namespace { pid, file });
        }
    }
    Ok(found)
}
