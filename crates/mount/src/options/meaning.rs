//! What options mean to the filesystem.

use std::time::Duration;

/// How the filesystem behaves. The default is what an empty `-o` gives an ordinary user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountOptions {
    /// How long attributes are believed.
    pub attributes: AttributeTimes,
    /// Which answers to lookups are believed.
    pub lookup_cache: LookupCache,
    /// `cto`: a file that is opened shows what was closed before, on whichever host (close-to-open).
    pub close_to_open: bool,
    /// `ro`: nothing can be changed through this mount.
    pub read_only: bool,
    /// `sync`: a write is on the server's stable storage before it returns.
    pub sync: bool,
    /// What becomes of an application's O_DIRECT.
    pub o_direct: ODirect,
    /// `softerr`: a call that is given up fails with ETIMEDOUT; with `soft` it is EIO. Only where the session isn't hard.
    pub soft_is_timed_out: bool,
    /// What the kernel does by itself.
    pub flags: MountFlags,
    /// Whether users other than the one who mounts may enter.
    pub allow_other: bool,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            attributes: AttributeTimes::default(),
            lookup_cache: LookupCache::All,
            close_to_open: true,
            read_only: false,
            sync: false,
            o_direct: ODirect::EndToEnd,
            soft_is_timed_out: false,
            flags: MountFlags::default(),
            allow_other: false,
        }
    }
}

/// How long attributes are believed: at first for the least time, and for longer, up to the most, the longer a file has
/// stayed the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttributeTimes {
    /// `ac`: whether they are believed at all. With `noac` every look asks the server.
    pub caching: bool,
    /// `acregmin`, for what isn't a directory.
    pub file_min: Duration,
    /// `acregmax`.
    pub file_max: Duration,
    /// `acdirmin`, for directories.
    pub directory_min: Duration,
    /// `acdirmax`.
    pub directory_max: Duration,
}

impl Default for AttributeTimes {
    /// nfs(5)'s: 3 s to 60 s for files, 30 s to 60 s for directories.
    fn default() -> Self {
        Self {
            caching: true,
            file_min: Duration::from_secs(3),
            file_max: Duration::from_secs(60),
            directory_min: Duration::from_secs(30),
            directory_max: Duration::from_secs(60),
        }
    }
}

/// Which answers to lookups are believed as long as their directory's attributes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LookupCache {
    /// All: that a name is there, and that it isn't.
    #[default]
    All,
    /// That it is there.
    Positive,
    /// None.
    None,
}

/// What becomes of an application's O_DIRECT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ODirect {
    /// It reaches the server's filesystem where the file is local: its page cache is by-passed, its rules of alignment hold.
    #[default]
    EndToEnd,
    /// It by-passes this mount's cache only; the server caches as it likes, as over the wire.
    Server,
}

/// What the kernel enforces by itself on a mount (mount(8)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MountFlags {
    /// Set-id bits don't count.
    pub nosuid: bool,
    /// Device files can't be opened.
    pub nodev: bool,
    /// Nothing can be executed.
    pub noexec: bool,
    /// Times of access aren't written by the kernel. Over NFS they are the server's business either way.
    pub noatime: bool,
}
