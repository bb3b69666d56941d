//! How a session behaves and how a file is opened. The names are those of nfs(5) where it has them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::attribute_sink::AttributeSink;

/// Whether to use the lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LaneMode {
    /// When it is there.
    #[default]
    Auto,
    /// Never.
    Off,
    /// Nothing else: connecting or opening without one is an error.
    Required,
}

impl std::str::FromStr for LaneMode {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            "required" => Ok(Self::Required),
            other => Err(format!("lane mode {other:?} is none of auto, off, required")),
        }
    }
}

/// Whether to connect from a port below 1024, which exports with the option `secure` ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReservedPort {
    /// If the process may; an ordinary port otherwise.
    #[default]
    Auto,
    /// Always; connecting fails where it may not.
    Yes,
    /// Never.
    No,
}

/// Who the session acts as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// AUTH_NONE: nobody. There is no lane with it.
    None,
    /// AUTH_SYS (RFC 5531 appendix A).
    Sys {
        /// User.
        uid: u32,
        /// Group.
        gid: u32,
        /// Further groups; the wire has room for the first 16.
        groups: Vec<u32>,
    },
}

impl Credential {
    /// The calling process's own user and groups.
    #[must_use]
    pub fn own() -> Self {
        Self::Sys {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            groups: rustix::process::getgroups()
                .unwrap_or_default()
                .into_iter()
                .map(rustix::process::Gid::as_raw)
                .collect(),
        }
    }
}

/// How a session behaves.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whether to use the lane.
    pub lane: LaneMode,
    /// Where a server's rendezvous sockets are looked for; /run/samehost.
    pub run_dir: PathBuf,
    /// Whose endpoints are trusted besides uid 0's and this process's own.
    pub trusted_uids: Vec<u32>,
    /// Look for rendezvous sockets in the host's other network namespaces, too, where the process may.
    pub search_namespaces: bool,
    /// Probe again after this many wire reads and writes: a power of two, or 0 for never (which is not "never
    /// again": a lost lane and a reconnect are reasons of their own).
    pub probe_throttle: u32,
    /// `hard`: retry for ever. `soft` (false): an error after `retrans` retries.
    pub hard: bool,
    /// How long an answer may take before it counts as a retry; 60 s.
    pub timeo: Duration,
    /// How long a session may take to come up: the address, MOUNT, the sizes and, if required, the lane. Also
    /// for a hard session, which only waits for ever for a server that it has known: 2 minutes.
    pub retry: Duration,
    /// Retries before a soft session gives up, or a hard one says that the server does not answer; 2.
    pub retrans: u32,
    /// TCP connections to the server, 1..=16.
    pub nconnect: u32,
    /// Bytes a READ; the server's preference if `None`, never more than it can.
    pub rsize: Option<u32>,
    /// Bytes a WRITE, likewise.
    pub wsize: Option<u32>,
    /// Whether to connect from a port below 1024.
    pub reserved_port: ReservedPort,
    /// Who the session acts as.
    pub credential: Credential,
    /// The port that serves MOUNT, if it is not NFS's own and rpcbind is not to be asked.
    pub mount_port: Option<u16>,
    /// How many bytes a session's files may have written over the wire and not committed; they commit by
    /// themselves when that many are reached. They are kept in memory to be sent again should the server
    /// forget them; 64 MiB.
    pub unstable_max: usize,
    /// Requests in flight for one large read or write; 8.
    pub window: usize,
    /// Receives the attributes that replies carry, and changes of the lane. Default: none.
    pub attribute_sink: Option<Arc<dyn AttributeSink>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lane: LaneMode::Auto,
            run_dir: PathBuf::from("/run/samehost"),
            trusted_uids: Vec::new(),
            search_namespaces: true,
            probe_throttle: 0,
            hard: true,
            timeo: Duration::from_secs(60),
            retry: Duration::from_secs(120),
            retrans: 2,
            nconnect: 1,
            rsize: None,
            wsize: None,
            reserved_port: ReservedPort::Auto,
            credential: Credential::own(),
            mount_port: None,
            unstable_max: 64 << 20,
            window: 8,
            attribute_sink: None,
        }
    }
}

/// How to open a file, in the manner of [`std::fs::OpenOptions`].
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenOptions {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) create: bool,
    pub(crate) create_new: bool,
    pub(crate) truncate: bool,
    pub(crate) no_follow: bool,
    pub(crate) mode: Option<u32>,
}

impl OpenOptions {
    /// Nothing yet: neither reading nor writing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// For reading only.
    #[must_use]
    pub fn reading() -> Self {
        Self::new().read(true)
    }

    /// Whether nothing but reading what is there is wanted.
    pub(crate) const fn only_reads(&self) -> bool {
        self.read && !(self.write || self.create || self.create_new || self.truncate)
    }

    /// For writing, made if it is missing, emptied if it is not.
    #[must_use]
    pub fn replacing() -> Self {
        Self::new().write(true).create(true).truncate(true)
    }

    /// Allow reading.
    #[must_use]
    pub const fn read(mut self, yes: bool) -> Self {
        self.read = yes;
        self
    }

    /// Allow writing.
    #[must_use]
    pub const fn write(mut self, yes: bool) -> Self {
        self.write = yes;
        self
    }

    /// Make the file if it is missing.
    #[must_use]
    pub const fn create(mut self, yes: bool) -> Self {
        self.create = yes;
        self
    }

    /// Make the file, and fail if its name exists (an EXCLUSIVE create, safe to retry).
    #[must_use]
    pub const fn create_new(mut self, yes: bool) -> Self {
        self.create_new = yes;
        self
    }

    /// Empty the file.
    #[must_use]
    pub const fn truncate(mut self, yes: bool) -> Self {
        self.truncate = yes;
        self
    }

    /// Fail on a symbolic link instead of following it.
    #[must_use]
    pub const fn no_follow(mut self, yes: bool) -> Self {
        self.no_follow = yes;
        self
    }

    /// The permission bits of a file that is made; 0o644 if not given.
    #[must_use]
    pub const fn mode(mut self, mode: u32) -> Self {
        self.mode = Some(mode & 0o7777);
        self
    }
}
