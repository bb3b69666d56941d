//! The options of sessions and of opens, with nfs(5)'s names where it has them.
//!
//! [`SESSION`] describes the options that users write in URLs, on the command line and behind `-o`. The
//! descriptors and the table are for Samehost's command and its mounts, and no part of the library's
//! interface.

mod descriptor;
mod nearest;
mod table;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use rpc::client::Policy;

use crate::attribute_sink::AttributeSink;
pub use descriptor::{Descriptor, Kind, OptionError, Setting, Source, Words};
pub use table::SESSION;

/// The largest READ or WRITE over the wire, in bytes, whatever the server offers.
pub(crate) const MAX_TRANSFER: u32 = 1 << 20;

/// Whether to use the lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LaneMode {
    /// If there is one.
    #[default]
    Auto,
    /// Never.
    Off,
    /// Always: connecting or opening without a lane is an error.
    Required,
}

impl LaneMode {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Off, Self::Required];

    /// The mode as users write it: `auto`, `off` or `required`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Off => "off",
            Self::Required => "required",
        }
    }
}

impl fmt::Display for LaneMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The error of a text that is no [`LaneMode`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("lane mode {0:?} is none of auto, off, required")]
pub struct UnknownLaneMode(String);

impl FromStr for LaneMode {
    type Err = UnknownLaneMode;

    fn from_str(word: &str) -> Result<Self, UnknownLaneMode> {
        let mode = Self::ALL.into_iter().find(|mode| mode.as_str() == word);
        mode.ok_or_else(|| UnknownLaneMode(word.to_owned()))
    }
}

/// The version of NFS that a session speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Version {
    /// The highest that the server has: 4.2, 4.1 or 3.
    #[default]
    Highest,
    /// NFSv3 (RFC 1813).
    V3,
    /// The highest minor version of NFSv4 that the server has, from 4.1 on.
    V4,
    /// NFSv4.1 (RFC 8881).
    V4_1,
    /// NFSv4.2 (RFC 7862).
    V4_2,
}

/// As the option `vers` has it.
impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Highest => "highest",
            Self::V3 => "3",
            Self::V4 => "4",
            Self::V4_1 => "4.1",
            Self::V4_2 => "4.2",
        })
    }
}

/// Whether to connect from a port below 1024, which exports with the option `secure` require.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReservedPort {
    /// If the process is permitted to; otherwise from any port.
    #[default]
    Auto,
    /// Always; connecting fails if the process isn't permitted to.
    Yes,
    /// Never.
    No,
}

/// The credential of a session's calls (RFC 5531 section 8).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Credential {
    /// AUTH_NONE: no user. There is no lane with it.
    None,
    /// AUTH_SYS (RFC 5531 appendix A).
    Sys {
        /// The user.
        uid: u32,
        /// The group.
        gid: u32,
        /// Supplementary groups. AUTH_SYS carries the first 16.
        groups: Vec<u32>,
    },
}

impl Credential {
    /// AUTH_SYS with the effective user and the groups of this process.
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

/// The options of a session. A method of each field's name sets it:
///
/// ```
/// use std::time::Duration;
///
/// use samehost_client::{LaneMode, Options};
///
/// let options = Options::new().lane(LaneMode::Off).hard(false).timeo(Duration::from_secs(5)).nconnect(4);
/// assert_eq!((options.nconnect, options.retrans), (4, 2));
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// The version of NFS. Default: [`Version::Highest`].
    pub version: Version,
    /// Distinguishes this client from others of the same host to an NFSv4 server, and is the same after a
    /// restart, so that the server drops the state from before at once. Two clients that exist at the same
    /// time must not have the same. With `None` it is random. Default: `None`. A mount's is followed by its
    /// mount point.
    ///
    /// Sessions of one process, in one tokio runtime, to one address of a server are one client if they have
    /// the same id, or none, and the same version, credential and options of the connections ([`hard`],
    /// [`timeo`], [`retrans`], [`nconnect`], [`reserved_port`]), all or none of them may use a lane, and none
    /// asks for [`delegations`]. They share connections and lease; locks of one exclude those of the others.
    /// The client ends with the last of them.
    ///
    /// [`hard`]: field@Self::hard
    /// [`timeo`]: field@Self::timeo
    /// [`retrans`]: field@Self::retrans
    /// [`nconnect`]: field@Self::nconnect
    /// [`reserved_port`]: field@Self::reserved_port
    /// [`delegations`]: field@Self::delegations
    pub unique_id: Option<String>,
    /// Whether files that are opened over the wire for reading, or for writing again and again, are to be
    /// delegated (RFC 8881 section 10.4), so that further opens by handle need no request, and with a write
    /// delegation no locks. NFSv3 has no delegations. `None`: in mounts, which open the same files again. A
    /// program that opens a delegated file locally, for reading one with a write delegation and for writing
    /// any, in the thread that runs its session, would wait for itself. Default: `None`.
    pub delegations: Option<bool>,
    /// Whether to use the lane. Default: [`LaneMode::Auto`].
    pub lane: LaneMode,
    /// The directory with the servers' rendezvous sockets. Default: `/run/samehost`.
    pub run_dir: PathBuf,
    /// The users whose endpoints are trusted besides uid 0's and this process's own, with the files that they
    /// grant, and not with directories. Default: none.
    pub trusted_uids: Vec<u32>,
    /// Whether to look for rendezvous sockets in the host's other network namespaces, too, where the process
    /// is permitted to. Default: true.
    pub search_namespaces: bool,
    /// The number of READs and WRITEs over the wire after which the session probes for a lane again: a power
    /// of two, or 0. With 0 it still probes after it has lost a lane and after a reconnect. Default: 0.
    pub probe_throttle: u32,
    /// Whether calls are repeated without a limit (`hard`), or fail after [`retrans`](field@Self::retrans)
    /// repetitions (`soft`). Default: true.
    pub hard: bool,
    /// The time to wait for a reply before a call is repeated. Default: 60 s.
    pub timeo: Duration,
    /// Whether a timeout of a soft session is ETIMEDOUT to the applications of a mount, instead of EIO. The
    /// session's own errors are the same either way. Default: false.
    pub softerr: bool,
    /// How long [`Session::connect`](crate::Session::connect) goes on trying to reach the server, whether the
    /// session is hard or soft: nfs(5)'s `retry`. With `None` or zero the first failure is final. Default:
    /// `None`; mounts without the option use nfs(5)'s defaults.
    pub retry: Option<Duration>,
    /// The time limit of one attempt to connect: the address, MOUNT, the transfer sizes and, if required, the
    /// lane. It also holds for hard sessions, which wait without a limit only for a server that has answered
    /// once. Default: 2 minutes.
    pub attempt_timeout: Duration,
    /// The repetitions of a call before a soft session gives up, or a hard one logs that the server doesn't
    /// answer. Default: 2.
    pub retrans: u32,
    /// The number of TCP connections to the server, 1 to 16. Default: 1.
    pub nconnect: u32,
    /// The size of a READ over the wire in bytes, at most 1 MiB and the server's limit; `None` for the
    /// server's preference. Default: `None`.
    pub rsize: Option<u32>,
    /// The size of a WRITE over the wire, likewise.
    pub wsize: Option<u32>,
    /// Whether to connect from a port below 1024. Default: [`ReservedPort::Auto`].
    pub reserved_port: ReservedPort,
    /// The credential of the calls. Default: [`Credential::own`].
    pub credential: Credential,
    /// The port that serves NFS, unless the URL names one. Without either, 2049 is tried, then rpcbind is
    /// asked. Default: `None`.
    pub port: Option<u16>,
    /// The port that serves MOUNT. With `None` NFS's port is tried, then rpcbind is asked. Default: `None`.
    pub mount_port: Option<u16>,
    /// The largest amount of data, in bytes, that all files of the session together have written over the
    /// wire and not committed. When it is reached they commit. The data is kept in memory to be sent again if
    /// the server forgets it. Default: 64 MiB.
    pub unstable_max: usize,
    /// The number of calls in flight for one large read or write, 1 to 64. Default: 8.
    pub window: usize,
    /// The number of operations in a directory tree that may wait for a disk at once on the threads that ask
    /// for them. Others that may wait run on threads of their own. A runtime with several threads, on which
    /// nothing else runs that mustn't wait, is faster with its number of threads less one. Default: 0.
    pub max_blocking: usize,
    /// Receives the attributes that replies carry, and changes of the lane. Default: `None`.
    pub attribute_sink: Option<Arc<dyn AttributeSink>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            version: Version::Highest,
            unique_id: None,
            delegations: None,
            lane: LaneMode::Auto,
            run_dir: PathBuf::from("/run/samehost"),
            trusted_uids: Vec::new(),
            search_namespaces: true,
            probe_throttle: 0,
            hard: true,
            timeo: Duration::from_secs(60),
            softerr: false,
            retry: None,
            attempt_timeout: Duration::from_secs(120),
            retrans: 2,
            nconnect: 1,
            rsize: None,
            wsize: None,
            reserved_port: ReservedPort::Auto,
            credential: Credential::own(),
            port: None,
            mount_port: None,
            unstable_max: 64 << 20,
            window: 8,
            max_blocking: 0,
            attribute_sink: None,
        }
    }
}

macro_rules! setters {
    ($($field:ident: $type:ty => $value:expr,)+) => {
        impl Options {
            $(
                #[doc = concat!("Sets [`", stringify!($field), "`](field@Self::", stringify!($field), ").")]
                #[must_use]
                pub fn $field(mut self, $field: $type) -> Self {
                    self.$field = $value;
                    self
                }
            )+
        }
    };
}

setters! {
    version: Version => version,
    unique_id: impl Into<Option<String>> => unique_id.into(),
    delegations: impl Into<Option<bool>> => delegations.into(),
    lane: LaneMode => lane,
    run_dir: impl Into<PathBuf> => run_dir.into(),
    trusted_uids: impl Into<Vec<u32>> => trusted_uids.into(),
    search_namespaces: bool => search_namespaces,
    probe_throttle: u32 => probe_throttle,
    hard: bool => hard,
    timeo: Duration => timeo,
    softerr: bool => softerr,
    retry: impl Into<Option<Duration>> => retry.into(),
    attempt_timeout: Duration => attempt_timeout,
    retrans: u32 => retrans,
    nconnect: u32 => nconnect,
    rsize: impl Into<Option<u32>> => rsize.into(),
    wsize: impl Into<Option<u32>> => wsize.into(),
    reserved_port: ReservedPort => reserved_port,
    credential: Credential => credential,
    port: impl Into<Option<u16>> => port.into(),
    mount_port: impl Into<Option<u16>> => mount_port.into(),
    unstable_max: usize => unstable_max,
    window: usize => window,
    max_blocking: usize => max_blocking,
    attribute_sink: Arc<dyn AttributeSink> => Some(attribute_sink),
}

impl Options {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The retransmission policy of the session's connections; the lane's waits keep to it, too.
    pub(crate) const fn policy(&self) -> Policy {
        Policy { timeo: self.timeo, retrans: self.retrans, hard: self.hard }
    }
}

/// The options of an open, in the manner of [`std::fs::OpenOptions`].
///
/// ```
/// use samehost_client::OpenOptions;
///
/// let log = OpenOptions::new().read(true).write(true).create(true).mode(0o600);
/// # let _ = log;
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenOptions {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) create: bool,
    pub(crate) create_new: bool,
    pub(crate) truncate: bool,
    pub(crate) no_follow: bool,
    pub(crate) times_later: bool,
    pub(crate) content: u32,
    pub(crate) mode: Option<u32>,
}

impl OpenOptions {
    /// Neither reading nor writing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// For reading only.
    #[must_use]
    pub fn reading() -> Self {
        Self::new().read(true)
    }

    /// Whether the open only reads an existing file.
    pub(crate) const fn only_reads(&self) -> bool {
        self.read && !(self.write || self.create || self.create_new || self.truncate)
    }

    /// For writing: the file is created, or truncated if it exists.
    #[must_use]
    pub fn replacing() -> Self {
        Self::new().write(true).create(true).truncate(true)
    }

    /// Whether the file can be read.
    #[must_use]
    pub const fn read(mut self, yes: bool) -> Self {
        self.read = yes;
        self
    }

    /// Whether the file can be written.
    #[must_use]
    pub const fn write(mut self, yes: bool) -> Self {
        self.write = yes;
        self
    }

    /// Whether the file is created if it doesn't exist.
    #[must_use]
    pub const fn create(mut self, yes: bool) -> Self {
        self.create = yes;
        self
    }

    /// Whether the file is created, and the open fails if the name exists (an EXCLUSIVE create, which can be
    /// repeated safely).
    #[must_use]
    pub const fn create_new(mut self, yes: bool) -> Self {
        self.create_new = yes;
        self
    }

    /// Whether the file is truncated.
    #[must_use]
    pub const fn truncate(mut self, yes: bool) -> Self {
        self.truncate = yes;
        self
    }

    /// Whether the open fails if the name is a symbolic link, instead of following it.
    #[must_use]
    pub const fn no_follow(mut self, yes: bool) -> Self {
        self.no_follow = yes;
        self
    }

    /// Whether the times of a file that [`OpenOptions::create_new`] makes may be set at the server a moment
    /// later, together with the file's first data or with attributes that are set: over NFSv4 one call less.
    /// Until then all operations of this session show the times that the file will have, and other clients
    /// may see others. The file must be closed by [`File::close`](crate::File::close) or
    /// [`File::flush`](crate::File::flush), which report an error.
    #[must_use]
    pub const fn times_later(mut self, yes: bool) -> Self {
        self.times_later = yes;
        self
    }

    /// The number of bytes that the file probably has, to be read by the request that opens it: over NFSv4
    /// one call less for a file that is only read. [`File::take_content`](crate::File::take_content) returns
    /// them. It returns nothing with a lane, if the file has more bytes, or if the server doesn't keep
    /// replies of that size. Default: 0, which reads nothing.
    #[must_use]
    pub const fn content(mut self, len: u32) -> Self {
        self.content = len;
        self
    }

    /// The permission bits of a file that the open creates. Default: 0o644.
    #[must_use]
    pub const fn mode(mut self, mode: u32) -> Self {
        self.mode = Some(mode & 0o7777);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_of_the_table_are_those_of_a_session() {
        for descriptor in SESSION {
            let Some(default) = descriptor.default else { continue };
            let value = if descriptor.placeholder().is_some() { Some(default) } else { None };
            let mut options = Options::default();
            descriptor.read(descriptor.name, value).unwrap().apply(&mut options);
            assert_eq!(format!("{options:?}"), format!("{:?}", Options::default()), "{}", descriptor.name);
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = SESSION.iter().flat_map(Descriptor::names).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn lane_modes_are_the_words_of_the_option() {
        let lane = Descriptor::find(SESSION, Source::Url, "lane").unwrap();
        for mode in LaneMode::ALL {
            let mut options = Options::default();
            lane.read("lane", Some(mode.as_str())).unwrap().apply(&mut options);
            assert_eq!(options.lane, mode);
            assert_eq!(mode.as_str().parse(), Ok(mode));
        }
    }

    #[test]
    fn ranges_and_rounding_are_those_of_nfs5_and_the_kernel() {
        let read = |name: &str, value: &str| {
            let mut options = Options::default();
            let descriptor = Descriptor::find(SESSION, Source::Url, name).unwrap();
            descriptor.read(name, Some(value)).map(|setting| {
                setting.apply(&mut options);
                options
            })
        };
        let sizes = [
            ("0", None),
            ("1", Some(4096)),
            ("1025", Some(1024)),
            ("3072", Some(2048)),
            ("100000", Some(98_304)),
            ("4294967295", Some(1 << 20)),
        ];
        for (value, bytes) in sizes {
            assert_eq!(read("rsize", value).unwrap().rsize, bytes);
            assert_eq!(read("wsize", value).unwrap().wsize, bytes);
        }
        for (value, port) in [("0", None), ("1", Some(1)), ("65535", Some(65_535))] {
            assert_eq!(read("port", value).unwrap().port, port);
            assert_eq!(read("mountport", value).unwrap().mount_port, port);
        }
        assert_eq!(read("timeo", "36000").unwrap().timeo, Duration::from_secs(600));
        assert_eq!(read("timeo", "2147483647").unwrap().timeo, Duration::from_secs(600));
        assert_eq!(read("retrans", "0").unwrap().retrans, 0);
        assert_eq!(read("retry", "0").unwrap().retry, Some(Duration::ZERO));
        assert_eq!(read("sec", "null").unwrap().credential, Credential::None);
        for (name, value) in [
            ("timeo", "0"),
            ("timeo", "2147483648"),
            ("retrans", "2147483648"),
            ("retry", "-1"),
            ("rsize", "4294967296"),
            ("nconnect", "0"),
            ("nconnect", "17"),
            ("port", "65536"),
            ("mountport", "65536"),
            ("port", "+1"),
            ("localio_probe_throttle", "12"),
            ("lane", "sideways"),
        ] {
            assert!(matches!(read(name, value), Err(OptionError::Value { .. })), "{name}={value}");
        }
        assert!(matches!(read("rsize", ""), Err(OptionError::NoValue { .. })));
        assert!(matches!(read("soft", "1"), Err(OptionError::NeedlessValue { .. })));
        assert_eq!(read("vers", "4.2").unwrap().version, Version::V4_2);
        assert!(matches!(read("vers", "4.0"), Err(OptionError::Refused { .. })));
    }
}
