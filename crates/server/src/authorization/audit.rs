//! Audit lines: what an administrator asks later. Which client mounted what from where, and which was refused
//! and why.
//!
//! The lines have level info and the target [`TARGET`]. Their fields become fields of the journal. A line is
//! repeated for the same client and export after [`REPEAT`], or is one of [`LINES_A_MINUTE`] of its client,
//! so that no client can fill the log or displace the lines about others.
//!
//! Paths may be the words of a client. They are recorded as strings, which every form of log quotes or
//! delimits: a path makes no other field and no other line.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use fairness::{LogLimit, Peer};
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

/// The lines that one client may cause in a minute, so that it can't displace those about others.
const LINES_A_MINUTE: u32 = 30;

/// The lines that were written.
#[derive(Debug, Default)]
pub(crate) struct AuditLog {
    written: Mutex<HashMap<Subject, Instant>>,
    limits: Mutex<HashMap<Peer, LogLimit>>,
}

impl AuditLog {
    /// A client has mounted `path` by NFSv3's MOUNT.
    pub(crate) fn mounted(&self, client: SocketAddr, uid: Option<u32>, path: &Path) {
        let Some(skipped) = self.admit(Peer::remote(client.ip()), Instant::now()) else { return };
        tracing::info!(
            target: TARGET, client = %client, uid, export = &*path.to_string_lossy(), road = "wire",
            protocol = "NFSv3", skipped, message_id = message_id::MOUNTED, "mounted"
        );
    }

    /// NFSv3's MOUNT was refused.
    pub(crate) fn mount_refused(&self, client: SocketAddr, uid: Option<u32>, path: &Path, reason: &str) {
        let Some(skipped) = self.admit(Peer::remote(client.ip()), Instant::now()) else { return };
        tracing::info!(
            target: TARGET, client = %client, uid, export = &*path.to_string_lossy(), road = "wire",
            protocol = "NFSv3", reason, skipped, message_id = message_id::MOUNT_REFUSED, "mount refused"
        );
    }

    /// A process of this host got a lane.
    pub(crate) fn lane(&self, client: SocketAddr, pid: Option<u32>, uid: Option<u32>) {
        let user = uid.map_or(Peer::LocalUnknown, Peer::Local);
        let Some(skipped) = self.admit(user, Instant::now()) else { return };
        tracing::info!(
            target: TARGET, client = %client, pid, uid, road = "lane", skipped, message_id = message_id::LANE,
            "lane established"
        );
    }

    /// A client of NFSv4 has entered an export, as it does when it mounts it.
    pub(crate) fn entered(&self, client: SocketAddr, uid: Option<u32>, export: &Path) {
        if self.is_due(message_id::MOUNTED, client.ip(), export, Instant::now()) {
            tracing::info!(
                target: TARGET, client = %client, uid, export = &*export.to_string_lossy(), road = "wire",
                protocol = "NFSv4", message_id = message_id::MOUNTED, "mounted"
            );
        }
    }

    /// A client was refused altogether.
    pub(crate) fn client_refused(&self, client: SocketAddr, reason: &str) {
        let now = Instant::now();
        // An IPv6 client may have many addresses.
        if self.is_due(message_id::CLIENT_REFUSED, client.ip(), Path::new(""), now)
            && let Some(skipped) = self.admit(Peer::remote(client.ip()), now)
        {
            tracing::info!(
                target: TARGET, client = %client, road = "wire", reason, skipped,
                message_id = message_id::CLIENT_REFUSED, "client refused"
            );
        }
    }

    /// Whether a line may be written that a client causes as often as it likes. If so, returns the number of
    /// lines that were left out before, if there were any.
    fn admit(&self, source: Peer, now: Instant) -> Option<Option<u64>> {
        let mut limits = self.limits.lock();
        if limits.len() >= MAX_REMEMBERED && !limits.contains_key(&source) {
            limits.clear();
        }
        let limit = limits.entry(source).or_insert_with(|| LogLimit::new(LINES_A_MINUTE));
        limit.admit(now).map(|skipped| Some(skipped).filter(|skipped| *skipped > 0))
    }

    /// Whether a line is to be written at `now`, which is then remembered.
    fn is_due(&self, kind: &'static str, client: IpAddr, export: &Path, now: Instant) -> bool {
        let mut written = self.written.lock();
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
        self.written.lock().clear();
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
        assert!(log.written.lock().len() <= MAX_REMEMBERED);
    }

    #[test]
    fn a_client_displaces_no_lines_about_others() {
        let log = AuditLog::default();
        let now = Instant::now();
        let source = |last| Peer::remote([192, 0, 2, last].into());
        for _ in 0..LINES_A_MINUTE {
            assert_eq!(log.admit(source(1), now), Some(None));
        }
        assert_eq!(log.admit(source(1), now), None);
        assert_eq!(log.admit(source(2), now), Some(None));
        assert_eq!(log.admit(Peer::Local(7), now), Some(None));
        assert_eq!(log.admit(source(1), now + Duration::from_secs(60)), Some(Some(1)));
        for number in 0..3 * MAX_REMEMBERED as u32 {
            log.admit(Peer::Local(number), now);
        }
        assert!(log.limits.lock().len() <= MAX_REMEMBERED);
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
