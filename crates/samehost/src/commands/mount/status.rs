//! What a mount's process says of itself, and what it can be told: the two kinds of exchange at its socket
//! (`INSTANCE.mount` in the run directory, crate `control`).

use std::path::{Path, PathBuf};
use std::time::Instant;

use client::{LaneMode, RoadCounters};
use control::Reply;
use mount::{Mount, MountReport};
use serde::{Deserialize, Serialize};

use crate::cli::LaneWord;

/// A snapshot of a running mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountStatus {
    /// The version of the mount's process.
    pub version: String,
    /// What is mounted, as the user wrote it.
    pub source: String,
    /// Where.
    pub mountpoint: PathBuf,
    /// The server's address.
    pub server: String,
    /// The mount's process, in its own pid namespace.
    pub pid: u32,
    /// Seconds since it was mounted.
    pub uptime_seconds: u64,
    /// The road of files that are opened now, as the last open has shown it: `lane, passed through`,
    /// `lane, served by the mount's process` or `wire`.
    pub road: String,
    /// Whether that is the lane.
    pub local: bool,
    /// Seconds since it became so.
    pub since_seconds: u64,
    /// Why it isn't the best road; empty if it is.
    pub reasons: Vec<String>,
    /// The server's instance, while there is a lane.
    pub instance: Option<String>,
    /// Files that are open now.
    pub open_files: u64,
    /// Opens that were passed through, since it was mounted.
    pub opens_passed_through: u64,
    /// Requests of the kernel, since it was mounted.
    pub requests: u64,
    /// Those of them that aren't answered yet.
    pub requests_under_way: u64,
    /// What this process moved over the lane. What the kernel passes through isn't in it: nobody counts that.
    pub lane: RoadStatus,
    /// What it moved over the wire.
    pub wire: RoadStatus,
    /// Connections made anew.
    pub reconnects: u64,
    /// Open files that changed from one road to the other.
    pub road_changes: u64,
    /// The last changes of road, the oldest first.
    pub changes: Vec<ChangeStatus>,
}

/// What went over one road.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoadStatus {
    /// Files opened.
    pub opens: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Questions to the server.
    pub round_trips: u64,
}

impl From<RoadCounters> for RoadStatus {
    fn from(counters: RoadCounters) -> Self {
        Self {
            opens: counters.opens,
            reads: counters.reads,
            writes: counters.writes,
            bytes_read: counters.bytes_read,
            bytes_written: counters.bytes_written,
            round_trips: counters.round_trips,
        }
    }
}

/// One change of road.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeStatus {
    /// How many seconds ago.
    pub age_seconds: u64,
    /// Whether there was a lane from then on.
    pub local: bool,
    /// Why there was none.
    pub reasons: Vec<String>,
}

/// What a mount can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Request {
    /// Whether to use the lane.
    Lane(LaneWord),
}

/// What a mount's process knows of itself besides the filesystem.
pub struct Identity {
    /// As the user wrote it.
    pub source: String,
    /// Where.
    pub at: PathBuf,
    /// Since when.
    pub since: Instant,
}

/// A snapshot.
pub fn snapshot(identity: &Identity, mount: &Mount) -> MountStatus {
    let report = mount.report();
    let road = Road::of(&report);
    MountStatus {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        source: identity.source.clone(),
        mountpoint: identity.at.clone(),
        server: mount.session().server().to_string(),
        pid: std::process::id(),
        uptime_seconds: age(identity.since),
        road: road.words().to_owned(),
        local: report.lane.local,
        since_seconds: age(report.changes.last().map_or(identity.since, |change| change.at)),
        reasons: road.reasons(&report),
        instance: report.lane.instance,
        open_files: report.open_files as u64,
        opens_passed_through: report.opens_passed,
        requests: report.requests,
        requests_under_way: report.under_way as u64,
        lane: report.counters.lane.into(),
        wire: report.counters.wire.into(),
        reconnects: report.counters.reconnects,
        road_changes: report.counters.road_changes,
        changes: report
            .changes
            .iter()
            .map(|change| ChangeStatus {
                age_seconds: age(change.at),
                local: change.local,
                reasons: change.reasons.clone(),
            })
            .collect(),
    }
}

/// The road of files that are opened now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Road {
    /// The kernel reads and writes the server's file.
    Passed,
    /// The mount's process does.
    Served,
    /// The server does.
    Wire,
}

impl Road {
    /// What a report amounts to.
    pub fn of(report: &MountReport) -> Self {
        match (report.lane.local, &report.not_passed) {
            (true, None) => Self::Passed,
            (true, Some(_)) => Self::Served,
            (false, _) => Self::Wire,
        }
    }

    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Passed => "lane, passed through",
            Self::Served => "lane, served by the mount's process",
            Self::Wire => "wire",
        }
    }

    /// Why it isn't a better one.
    pub fn reasons(self, report: &MountReport) -> Vec<String> {
        match self {
            Self::Passed => Vec::new(),
            Self::Served => report.not_passed.iter().cloned().collect(),
            Self::Wire => report.lane.reasons.clone(),
        }
    }
}

/// The answer to whatever was asked at the socket.
pub fn answer(identity: &Identity, mount: &Mount, request: &[u8]) -> Option<Vec<u8>> {
    if request.is_empty() {
        return serde_json::to_vec(&snapshot(identity, mount)).ok();
    }
    let reply = match serde_json::from_slice(request) {
        Ok(Request::Lane(word)) => {
            let mode = match word {
                LaneWord::Auto => LaneMode::Auto,
                LaneWord::Off => LaneMode::Off,
                LaneWord::Required => LaneMode::Required,
            };
            mount.set_lane_mode(mode);
            Reply::Done(format!("{}: lane {}", identity.at.display(), word.word()))
        }
        Err(error) => Reply::Error {
            reason: format!("the mount's process doesn't understand this: {error}"),
            next: Some("is it of another version? mount anew".to_owned()),
        },
    };
    serde_json::to_vec(&reply).ok()
}

fn age(since: Instant) -> u64 {
    since.elapsed().as_secs()
}

/// Where mounts of this user have their sockets: the run directory, or, for who may not write there, a
/// directory of the user's own. Root sees those of all users.
pub fn run_dirs(run_dir: &Path) -> Vec<PathBuf> {
    let mut all = vec![run_dir.to_owned()];
    if rustix::process::geteuid().is_root() {
        let users = std::fs::read_dir("/run/user").into_iter().flatten().flatten();
        all.extend(users.map(|user| user.path().join("samehost")));
    } else {
        all.extend(own_run_dir());
    }
    all.retain(|dir| dir.is_dir());
    all.sort();
    all.dedup();
    all
}

/// The user's own directory for sockets.
pub fn own_run_dir() -> Option<PathBuf> {
    std::env::var_os("XDG_RUNTIME_DIR")
        .filter(|dir| !dir.is_empty())
        .map(|dir| Path::new(&dir).join("samehost"))
}
