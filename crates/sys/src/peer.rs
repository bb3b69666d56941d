//! Credentials of the peer of a Unix socket.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// The id that stands for ids without a mapping in this user namespace, unless the system defines another.
const DEFAULT_OVERFLOW: u32 = 65534;

/// Maximum number of supplementary groups of a process (`NGROUPS_MAX`).
const MAX_GROUPS: usize = 65536;

/// The process that connected, or that called listen(2), at that moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Process id in this process's pid namespace; `None` when it isn't visible there.
    pub pid: Option<u32>,
    /// Effective user id; `None` without a mapping in this user namespace (or for the overflow id, which is
    /// indistinguishable).
    pub uid: Option<u32>,
    /// Effective group id; `None` as for `uid`.
    pub gid: Option<u32>,
    /// Supplementary groups, without those that have no mapping.
    pub groups: Vec<u32>,
}

impl PeerCredentials {
    /// Reads `SO_PEERCRED` and `SO_PEERGROUPS` (Linux 4.13) of a connected Unix socket.
    ///
    /// The overflow id identifies no user: the kernel reports it for every user without a mapping.
    ///
    /// # Errors
    /// Those of getsockopt(2), e.g. `ENODATA` when the socket isn't connected.
    pub fn of(socket: impl AsFd) -> rustix::io::Result<PeerCredentials> {
        let socket = socket.as_fd().as_raw_fd();
        let mut raw = [0_u32; 3]; // struct ucred: pid, uid, gid
        let length = get_option(socket, libc::SO_PEERCRED, &mut raw)?;
        if length != size_of_val(&raw) {
            return Err(Errno::INVAL);
        }
        let [pid, uid, gid] = raw;
        // For an unconnected socket the kernel reports pid 0 and ids of -1.
        if uid == u32::MAX || gid == u32::MAX {
            return Err(Errno::NOTCONN);
        }
        let (no_uid, no_gid) = (overflow_uid(), overflow_gid());
        let mut groups = groups_of(socket)?;
        groups.retain(|group| *group != no_gid);
        Ok(PeerCredentials {
            pid: (pid != 0).then_some(pid),
            uid: (uid != no_uid).then_some(uid),
            gid: (gid != no_gid).then_some(gid),
            groups,
        })
    }
}

/// Which namespaces the peer's process shares with this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedNamespaces {
    /// Its mount namespace is this process's.
    pub mount: bool,
    /// Its user namespace is this process's, and that is the host's initial one.
    pub user: bool,
}

/// The inode number of the initial user namespace (`PROC_USER_INIT_INO` in linux/proc_ns.h).
const INITIAL_USER_NAMESPACE: u64 = 0xEFFF_FFFD;

impl SharedNamespaces {
    /// Examines the process that `credentials` of this socket name. It shares none if it has ended, if it
    /// can't be examined (without `CAP_SYS_PTRACE`), and before Linux 6.5.
    ///
    /// A process id may be used again after the end of its process. The peer's pidfd (`SO_PEERPIDFD`, Linux
    /// 6.5) shows afterwards that the process has not ended meanwhile.
    #[must_use]
    pub fn of(socket: impl AsFd, credentials: &PeerCredentials) -> SharedNamespaces {
        let none = SharedNamespaces::default();
        let (Some(pid), Ok(process)) = (credentials.pid, pidfd_of(socket.as_fd().as_raw_fd())) else {
            return none;
        };
        let namespace = |process: &str, kind: &str| {
            let found = std::fs::metadata(format!("/proc/{process}/ns/{kind}")).ok()?;
            Some((found.dev(), found.ino()))
        };
        let shared = |kind| {
            let own = namespace("self", kind)?;
            (namespace(&pid.to_string(), kind)? == own).then_some(own.1)
        };
        let (mount, user) = (shared("mnt"), shared("user"));
        // A pidfd is readable when its process has ended.
        let mut ended = [PollFd::new(&process, PollFlags::IN)];
        match poll(&mut ended, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
            Ok(0) => SharedNamespaces { mount: mount.is_some(), user: user == Some(INITIAL_USER_NAMESPACE) },
            _ => none,
        }
    }
}

/// `SO_PEERPIDFD`: a descriptor of the peer's process.
fn pidfd_of(socket: libc::c_int) -> rustix::io::Result<OwnedFd> {
    const SO_PEERPIDFD: libc::c_int = 77;
    let mut number = [0_u32];
    get_option(socket, SO_PEERPIDFD, &mut number)?;
    // SAFETY: the kernel has just created this descriptor, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number[0] as RawFd) })
}

/// The user id that stands for users without a mapping in this namespace (`/proc/sys/kernel/overflowuid`).
#[must_use]
pub fn overflow_uid() -> u32 {
    number_in("/proc/sys/kernel/overflowuid")
}

/// The group id that stands for groups without a mapping in this namespace (`/proc/sys/kernel/overflowgid`).
#[must_use]
pub fn overflow_gid() -> u32 {
    number_in("/proc/sys/kernel/overflowgid")
}

fn number_in(path: &str) -> u32 {
    std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(DEFAULT_OVERFLOW)
}

/// `SO_PEERGROUPS`, with a buffer as large as necessary.
fn groups_of(socket: libc::c_int) -> rustix::io::Result<Vec<u32>> {
    const SO_PEERGROUPS: libc::c_int = 59;
    let mut groups = vec![0_u32; 32];
    loop {
        match get_option(socket, SO_PEERGROUPS, &mut groups) {
            Ok(length) => {
                groups.truncate(length / size_of::<u32>());
                return Ok(groups);
            }
            Err(Errno::RANGE) if groups.len() < MAX_GROUPS => groups.resize(MAX_GROUPS, 0),
            // A peer without credentials, or a kernel without the option.
            Err(Errno::NODATA | Errno::NOPROTOOPT) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        }
    }
}

/// getsockopt(2) at level `SOL_SOCKET` into an array of 32-bit numbers; returns the length in bytes.
fn get_option(socket: libc::c_int, option: libc::c_int, into: &mut [u32]) -> rustix::io::Result<usize> {
    let mut length = libc::socklen_t::try_from(size_of_val(into)).map_err(|_| Errno::INVAL)?;
    // SAFETY: the kernel writes at most `length` bytes, the size of `into`, and any bytes are valid for u32.
    let returned = unsafe {
        libc::getsockopt(socket, libc::SOL_SOCKET, option, into.as_mut_ptr().cast(), &raw mut length)
    };
    crate::check(libc::c_long::from(returned))?;
    Ok(length as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn our_own_process_is_recognised() {
        let (here, _there) = UnixStream::pair().expect("a pair");
        let peer = PeerCredentials::of(&here).expect("credentials");
        assert_eq!(peer.pid, Some(std::process::id()));
        let uid = rustix::process::geteuid().as_raw();
        assert_eq!(peer.uid, (uid != overflow_uid()).then_some(uid));
        let mut own: Vec<u32> =
            rustix::process::getgroups().expect("groups").iter().map(|group| group.as_raw()).collect();
        own.retain(|group| *group != overflow_gid());
        own.sort_unstable();
        let mut theirs = peer.groups;
        theirs.sort_unstable();
        assert_eq!(theirs, own);
    }

    #[test]
    fn our_own_process_shares_our_namespaces() {
        let (here, _there) = UnixStream::pair().expect("a pair");
        let peer = PeerCredentials::of(&here).expect("credentials");
        // Kernels before 6.5 don't say.
        let says = pidfd_of(here.as_raw_fd()).is_ok();
        assert_eq!(SharedNamespaces::of(&here, &peer).mount, says);
        let other = PeerCredentials { pid: None, ..peer };
        assert_eq!(SharedNamespaces::of(&here, &other), SharedNamespaces::default());
    }

    #[test]
    fn a_socket_without_a_peer_is_an_error() {
        let dir = tempfile::tempdir().expect("a directory");
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
        PeerCredentials::of(&tcp).expect_err("not a Unix socket");
        let listener = UnixListener::bind(dir.path().join("s")).expect("binds");
        let client = UnixStream::connect(dir.path().join("s")).expect("connects");
        let (server, _) = listener.accept().expect("accepts");
        assert_eq!(PeerCredentials::of(&client), PeerCredentials::of(&server));
    }
}
