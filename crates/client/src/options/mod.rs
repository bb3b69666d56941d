//! How a session behaves and how a file is opened. The names are those of nfs(5) where it has them.
//!
//! [`SESSION`] describes the options that users write in URLs, on the command line and behind `-o`.

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
    /// When it is there.
    #[default]
    Auto,
    /// Never.
    Off,
    /// Nothing else: connecting or opening without one is an error.
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

/// A text that is no [`LaneMode`].
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
    /// A soft session's timeouts are ETIMEDOUT to the applications of a mount, instead of EIO. The session
    /// itself reports the same errors either way.
    pub softerr: bool,
    /// How long to go on trying to reach the server at first, with a session that is hard or soft: nfs(5)'s
    /// `retry`. With `None` or zero the first failure is final. Default: `None`; mounts without the option use
    /// nfs(5)'s defaults.
    pub retry: Option<Duration>,
    /// How long one attempt may take to bring a session up: the address, MOUNT, the transfer sizes and, if
    /// required, the lane. It also holds for hard sessions, which wait without a limit only for a server that
    /// has answered once. Default: 2 minutes.
    pub attempt_timeout: Duration,
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
    /// The port that serves NFS, unless the URL names one. Without either 2049 is tried, then rpcbind is
    /// asked.
    pub port: Option<u16>,
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
            attribute_sink: None,
        }
    }
}

impl Options {
    /// The retransmission policy of the session's connections; the lane's waits keep to it, too.
    pub(crate) const fn policy(&self) -> Policy {
        Policy { timeo: self.timeo, retrans: self.retrans, hard: self.hard }
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
        assert!(matches!(read("vers", "4.2"), Err(OptionError::Refused { .. })));
    }
}
