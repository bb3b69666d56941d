//! `samehost doctor`: what this host lacks for serving and mounting, and which data paths it can have.
//!
//! [`Facts`] are gathered in one place, which changes nothing. [`findings`](findings::findings) are pure
//! decisions on them. A data path is available unless a finding rules it out, so that the summary can't
//! contradict the findings.

mod facts;
mod findings;
mod firewall;

pub use facts::Facts;
pub use findings::findings;

use clap::ValueEnum;
use serde::Serialize;

/// A side of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// What a server offers
    Server,
    /// What a mount uses
    Mount,
}

/// A way by which clients reach files, from the slowest of its side to the fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DataPath {
    /// The server answers NFS calls on its default port.
    ServeWire,
    /// The server gives open files to clients of its host.
    ServeFiles,
    /// The server gives directories to clients of its host.
    ServeTrees,
    /// The server gives root of its host an export's own mount.
    ServeMounts,
    /// A mount whose process carries all I/O, over the wire or the lane.
    Mount,
    /// The kernel's requests reach the mount's process over io_uring.
    MountUring,
    /// The kernel reads and writes the server's files itself.
    MountPassthrough,
    /// The export's own mount is attached at the mountpoint.
    MountAttached,
}

impl DataPath {
    /// All of them, by side.
    pub const ALL: [Self; 8] = [
        Self::ServeWire,
        Self::ServeFiles,
        Self::ServeTrees,
        Self::ServeMounts,
        Self::Mount,
        Self::MountUring,
        Self::MountPassthrough,
        Self::MountAttached,
    ];

    /// Its side.
    pub const fn side(self) -> Side {
        match self {
            Self::ServeWire | Self::ServeFiles | Self::ServeTrees | Self::ServeMounts => Side::Server,
            Self::Mount | Self::MountUring | Self::MountPassthrough | Self::MountAttached => Side::Mount,
        }
    }

    /// What it is, in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::ServeWire => "wire: NFSv3 and NFSv4 on port 2049",
            Self::ServeFiles => "lane: open files for clients of this host",
            Self::ServeTrees => "lane: directories for clients of this host (names and attributes)",
            Self::ServeMounts => "lane: the export's own mount for root of this host (mount_grant)",
            Self::Mount => "wire, and lane served by the mount's process",
            Self::MountUring => "the kernel's requests over io_uring",
            Self::MountPassthrough => "lane, passed through in the kernel",
            Self::MountAttached => "lane, mounted (where the export has mount_grant)",
        }
    }
}

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Serving or mounting fails.
    Problem,
    /// It works, and a change would make it faster, safer or larger.
    Advice,
    /// It works, and a limitation of this host or user is worth knowing.
    Note,
}

/// Something that this host lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How much it matters.
    pub level: Level,
    /// The side that it concerns.
    pub side: Side,
    /// The device, file, limit or capability.
    pub subject: String,
    /// What is wrong.
    pub what: String,
    /// Why it matters.
    pub why: String,
    /// The next step.
    pub next: String,
    /// The data paths that it rules out.
    pub rules_out: Vec<DataPath>,
}

/// The subjects of the findings that rule a data path out.
pub fn obstacles(path: DataPath, findings: &[Finding]) -> Vec<&str> {
    let rules_out = |finding: &&Finding| finding.rules_out.contains(&path);
    findings.iter().filter(rules_out).map(|finding| finding.subject.as_str()).collect()
}
