//! Audit lines: what an administrator asks later. Which client mounted what from where, and which was refused
//! and why.
//!
//! The lines have level info and the target [`TARGET`]. Their fields become fields of the journal. A line is
//! repeated for the same client and export after [`REPEAT`], so that requests can't fill the log.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The target of audit lines, by which a filter selects them.
pub const TARGET: &str = "audit";

/// The time after which a line about the same client and export is written again.
const REPEAT: Duration = Duration::from_secs(3600);
/// How many lines are remembered. Beyond that the memory is emptied, and lines are repeated early.
const MAX_REMEMBERED: usize = 4096;

/// The kinds of lines, as 128-bit identifiers for searches (systemd's `MESSAGE_ID`).
pub mod message_id {
    /// A client mounts an export, or enters it for the first time.
    pub const MOUNTED: &str = "7c2f0e6b4d1a4a0f9b6e53d8a1c94e21";
    /// A client's mount was refused.
    pub const MOUNT_REFUSED: &str = "7c2f0e6b4d1a4a0f9b6e53d8a1c94e22";
    /// A client was refused altogether: no export is for it.
    pub const CLIENT_REFUSED: &str = "7c2f0e6b4d1a4a0f9b6e53d8a1c94e23";
    /// A process of this host got a lane.
    pub const LANE: &str = "7c2f0e6b4d1a4a0f9b6e53d8a1c94e24";
    /// A local user's request was refused or made anonymous.
    pub const USER_REFUSED: &str = "7c2f0e6b4d1a4a0f9b6e53d8a1c94e25";
}

/// What a remembered line was about: the kind, the client and the export (empty if it concerns all).
type Subject = (&'static str, IpAddr, Vec<u8>);

/// The lines that were written.
#[derive(Debug, Default)]
pub(crate) struct AuditLog(Mutex<HashMap<Subject, Instant>>);

/// A client has mounted `path` by NFSv3's MOUNT. Every call is logged.
pub(crate) fn mounted(client: SocketAddr, uid: Option<u32>, path: &Path) {
    tracing::info!(
        target: TARGET, client = %client, uid, export = %path.display(), road = "wire", protocol = "NFSv3",
        message_id = message_id::MOUNTED, "mounted"
    );
}

/// NFSv3's MOUNT was refused. Every call is logged.
pub(crate) fn mount_refused(client: SocketAddr, uid: Option<u32>, path: &Path, reason: &str) {
    tracing::info!(
        target: TARGET, client = %client, uid, export = %path.display(), road = "wire", protocol = "NFSv3",
        reason, message_id = message_id::MOUNT_REFUSED, "mount refused"
    );
}

/// A process of this host got a lane. Every one is logged.
pub(crate) fn lane(client: SocketAddr, pid: Option<u32>, uid: Option<u32>) {
    tracing::info!(
        target: TARGET, client = %client, pid, uid, road = "lane", message_id = message_id::LANE,
        "lane established"
    );
}

impl AuditLog {
    /// A client of NFSv4 has entered an export, as it does when it mounts it.
    pub(crate) fn entered(&self, client: SocketAddr, uid: Option<u32>, export: &Path) {
        if self.is_due(message_id::MOUNTED, client.ip(), export, Instant::now()) {
            tracing::info!(
                target: TARGET, client = %client, uid, export = %export.display(), road = "wire",
                protocol = "NFSv4", message_id = message_id::MOUNTED, "mounted"
            );
        }
    }

    /// A client was refused altogether.
    pub(crate) fn client_refused(&self, client: SocketAddr, reason: &str) {
        if self.is_due(message_id::CLIENT_REFUSED, client.ip(), Path::new(""), Instant::now()) {
            tracing::info!(
                target: TARGET, client = %client, road = "wire", reason,
                message_id = message_id::CLIENT_REFUSED, "client refused"
            );
        }
    }

    /// Whether a line is to be written at `now`, which is then remembered.
    fn is_due(&self, kind: &'static str, client: IpAddr, export: &Path, now: Instant) -> bool {
        let mut written = self.0.lock();
        let subject = (kind, client, export.as_os_str().as_bytes().to_vec());
        if written.get(&subject).is_some_and(|at| now.saturating_duration_since(*at) < REPEAT) {
            return false;
        }
        if written.len() >= MAX_REMEMBERED {
            written.clear();
        }
        written.insert(subject, now);
        true
    }

    /// Forgets what was written, since the rules may have changed.
    pub(crate) fn forget(&self) {
        self.0.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_repeated_after_an_hour() {
        let log = AuditLog::default();
        let begin = Instant::now();
        let client = |last| IpAddr::from([192, 0, 2, last]);
        let is_due =
            |last, export, now| log.is_due(message_id::MOUNTED, client(last), Path::new(export), now);
        assert!(is_due(1, "/a", begin));
        assert!(!is_due(1, "/a", begin + REPEAT / 2));
        assert!(is_due(1, "/b", begin) && is_due(2, "/a", begin));
        assert!(is_due(1, "/a", begin + REPEAT));
        log.forget();
        assert!(is_due(1, "/a", begin + REPEAT));
    }

    #[test]
    fn the_memory_is_bounded() {
        let log = AuditLog::default();
        let now = Instant::now();
        for number in 0..3 * MAX_REMEMBERED as u32 {
            log.is_due(message_id::MOUNTED, IpAddr::from(number.to_be_bytes()), Path::new("/a"), now);
        }
        assert!(log.0.lock().len() <= MAX_REMEMBERED);
    }

    #[test]
    fn identifiers_differ_and_have_128_bits() {
        use message_id::{CLIENT_REFUSED, LANE, MOUNT_REFUSED, MOUNTED, USER_REFUSED};
        let all =
            std::collections::HashSet::from([MOUNTED, MOUNT_REFUSED, CLIENT_REFUSED, LANE, USER_REFUSED]);
        assert_eq!(all.len(), 5);
        assert!(all.iter().all(|id| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())));
    }
}
