//! How a mounted filesystem behaves; the words of nfs(5) in the types of Rust.

use std::time::Duration;

/// What names the kernel may keep, nfs(5)'s lookupcache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LookupCache {
    /// Names that exist and names that don't.
    #[default]
    All,
    /// Names that exist.
    Positive,
    /// None: every name is looked up every time.
    None,
}

/// What an application's O_DIRECT means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Direct {
    /// It goes through to the server's filesystem, where there is a lane: alignment as that filesystem asks
    /// for.
    #[default]
    EndToEnd,
    /// It by-passes this host's cache of the mount only: the server reads and writes through its page cache,
    /// as it does for NFS clients.
    Server,
}

/// How long attributes are believed without asking the server, nfs(5)'s acregmin, acregmax, acdirmin,
/// acdirmax. A time starts at the minimum, and doubles up to the maximum while a file is found unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttributeTimes {
    /// Not at all if false (`noac`).
    pub on: bool,
    /// Files, at least; 3 s.
    pub file_min: Duration,
    /// Files, at most; 60 s.
    pub file_max: Duration,
    /// Directories, at least; 30 s.
    pub directory_min: Duration,
    /// Directories, at most; 60 s.
    pub directory_max: Duration,
}

impl Default for AttributeTimes {
    fn default() -> Self {
        Self {
            on: true,
            file_min: Duration::from_secs(3),
            file_max: Duration::from_secs(60),
            directory_min: Duration::from_secs(30),
            directory_max: Duration::from_secs(60),
        }
    }
}

/// How a mounted filesystem behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountOptions {
    /// The first column of /proc/mounts, such as `nfs://host/export`.
    pub source: String,
    /// Nothing can be written. The kernel sees to it, and may be told otherwise later (mount(2), MS_REMOUNT).
    pub read_only: bool,
    /// Every write is durable when it returns.
    pub sync: bool,
    /// Set-id bits of programs count. Off unless asked for, as whoever controls the server could use them.
    pub suid: bool,
    /// Device files work, for every user, whatever their modes say: who opens one is asked nothing.
    pub dev: bool,
    /// Programs can be executed.
    pub exec: bool,
    /// Symbolic links are followed (Linux 5.10 otherwise).
    pub symfollow: bool,
    /// Reading doesn't set times of access.
    pub noatime: bool,
    /// Users other than the one who mounts may use it. The server decides what they may do.
    pub allow_other: bool,
    /// Whether the server is asked for access control lists (NFSACL), to know in which directories everybody
    /// may search. Where it isn't, a mount that several users share looks every name up that is walked over.
    pub acl: bool,
    /// How long attributes are believed.
    pub attributes: AttributeTimes,
    /// What names are kept.
    pub lookup_cache: LookupCache,
    /// What O_DIRECT means.
    pub direct: Direct,
    /// Whether opens may be passed through in the kernel. Off: the mount process reads and writes granted
    /// files itself.
    pub passthrough: bool,
    /// A call that a soft session gives up fails with ETIMEDOUT instead of EIO (`softerr`).
    pub softerr: bool,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            source: "samehost".to_owned(),
            read_only: false,
            sync: false,
            suid: false,
            dev: false,
            exec: true,
            symfollow: true,
            noatime: false,
            allow_other: rustix::process::geteuid().is_root(),
            acl: true,
            attributes: AttributeTimes::default(),
            lookup_cache: LookupCache::All,
            direct: Direct::EndToEnd,
            passthrough: true,
            softerr: false,
        }
    }
}
