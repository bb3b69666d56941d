//! The mount options of a filesystem, named after nfs(5).

use std::time::Duration;

/// Which names the kernel may cache, nfs(5)'s lookupcache.
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

/// The locks that are kept on this host, nfs(5)'s local_lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LocalLocks {
    /// fcntl(2)'s, and those of open file descriptions.
    pub posix: bool,
    /// flock(2)'s.
    pub flock: bool,
}

/// The meaning of an application's O_DIRECT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Direct {
    /// With a lane, direct I/O on the server's filesystem, which determines the alignment.
    #[default]
    EndToEnd,
    /// It bypasses this mount's page cache only. The server reads and writes through its own, as for NFS
    /// clients.
    Server,
}

/// Whether requests come over io_uring (Linux 6.14) or by reads of /dev/fuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UringMode {
    /// Over io_uring where the kernel offers it and this process may use it.
    #[default]
    Auto,
    /// By /dev/fuse.
    Off,
    /// Over io_uring; without it the mount fails.
    Required,
}

/// How long attributes are valid without asking the server, nfs(5)'s acregmin, acregmax, acdirmin and
/// acdirmax. The time starts at the minimum, and doubles up to the maximum while a file is found unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttributeTimes {
    /// False: attributes aren't cached (`noac`).
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

/// The options of a mounted filesystem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountOptions {
    /// The first column of /proc/mounts, such as `nfs://host/export`.
    pub source: String,
    /// The mount is read-only. The kernel enforces that, and MS_REMOUNT can change it (mount(2)).
    pub read_only: bool,
    /// Every write is durable when it returns.
    pub sync: bool,
    /// Programs' set-id bits are honoured. Off by default: they would give the server's administrator the
    /// rights of this host's users.
    pub suid: bool,
    /// Device files work. The kernel opens them for every user, whatever their modes.
    pub dev: bool,
    /// Programs can be executed.
    pub exec: bool,
    /// Symbolic links are followed. To switch it off takes Linux 5.10.
    pub symfollow: bool,
    /// Reads don't update access times.
    pub noatime: bool,
    /// Users other than the one who mounted may use the mount. The server checks their permissions.
    pub allow_other: bool,
    /// Access control lists are fetched (NFSACL), to learn which directories everybody may search. Without
    /// them a mount that several users share looks up every name of every path.
    pub acl: bool,
    /// How long attributes are cached.
    pub attributes: AttributeTimes,
    /// Which names are cached.
    pub lookup_cache: LookupCache,
    /// Which locks are kept on this host where the server could have them (NFSv4).
    pub local_locks: LocalLocks,
    /// The meaning of O_DIRECT.
    pub direct: Direct,
    /// Opens may be passed through in the kernel. Otherwise the mount's process reads and writes granted
    /// files itself.
    pub passthrough: bool,
    /// Whether requests come over io_uring.
    pub uring: UringMode,
    /// Whether the export's own mount is attached where the server grants it.
    pub mount_grant: bool,
    /// A call that times out in a soft session fails with ETIMEDOUT instead of EIO (`softerr`).
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
            local_locks: LocalLocks::default(),
            direct: Direct::EndToEnd,
            passthrough: true,
            uring: UringMode::Auto,
            mount_grant: true,
            softerr: false,
        }
    }
}
