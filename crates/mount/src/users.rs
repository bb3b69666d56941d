//! The users of a mount. Every request has the caller's uid and gid; the supplementary groups come from
//! /proc.
//!
//! Calls carry the caller's own AUTH_SYS credential, and the server decides about permissions.
//!
//! A caller's groups are cached for [`MAX_AGE`], for at most [`MAX_CALLERS`] callers: a process may change
//! its groups (setgroups(2)), and its PID may be reused.

use std::fs::File;
use std::io::Read as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ahash::HashMap;
use client::{Attributes, Credential, Session};
use parking_lot::Mutex;

use crate::fuse::request::Header;

/// How long a caller's groups are cached.
const MAX_AGE: Duration = Duration::from_millis(100);

/// Callers, and users, in the cache.
const MAX_CALLERS: usize = 4096;

/// A user's IDs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Identity {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

/// A user. The same IDs are the same object.
#[derive(Debug)]
pub(crate) struct User {
    /// The mount's session with this user's credential.
    pub(crate) session: Session,
    identity: Identity,
}

impl User {
    /// Whether the mode alone permits an access; `wanted` are the bits of one class, 0 to 7. The server may
    /// permit more (for root, by access control lists, for owners, to execute a program).
    pub(crate) fn is_permitted_by_mode(&self, attributes: &Attributes, wanted: u32) -> bool {
        self.identity.is_permitted_by_mode(attributes, wanted)
    }

    /// Whether the server says that the user owns a file.
    pub(crate) const fn owns(&self, attributes: &Attributes) -> bool {
        self.identity.uid == attributes.uid
    }
}

impl Identity {
    fn is_permitted_by_mode(&self, attributes: &Attributes, wanted: u32) -> bool {
        let class = if self.uid == attributes.uid {
            6
        } else if self.gid == attributes.gid || self.groups.contains(&attributes.gid) {
            3
        } else {
            0
        };
        attributes.mode >> class & wanted == wanted
    }
}

#[derive(Debug, Default)]
struct UserCache {
    /// By PID, uid and gid, with the time of the look into /proc.
    callers: HashMap<(u32, u32, u32), (Arc<User>, Instant)>,
    users: HashMap<Identity, Arc<User>>,
}

/// The users of a mount.
#[derive(Debug)]
pub(crate) struct Users {
    session: Session,
    cache: Mutex<UserCache>,
}

impl Users {
    pub(crate) fn new(session: Session) -> Self {
        Self { session, cache: Mutex::default() }
    }

    /// The caller of a request.
    pub(crate) fn of(&self, header: &Header, now: Instant) -> Arc<User> {
        let key = (header.pid, header.uid, header.gid);
        if let Some((user, since)) = self.cache.lock().callers.get(&key)
            && now.saturating_duration_since(*since) < MAX_AGE
        {
            return user.clone();
        }
        // A caller outside of this PID namespace has PID 0, and a kernel thread has no groups.
        let groups = if header.pid == 0 { Vec::new() } else { groups_of(header.pid).unwrap_or_default() };
        let identity = Identity { uid: header.uid, gid: header.gid, groups };
        let mut cache = self.cache.lock();
        let UserCache { callers, users } = &mut *cache;
        if callers.len() >= MAX_CALLERS {
            callers.retain(|_, (_, since)| now.saturating_duration_since(*since) < MAX_AGE);
            if callers.len() >= MAX_CALLERS {
                callers.clear();
            }
        }
        if users.len() >= MAX_CALLERS {
            users.retain(|_, user| Arc::strong_count(user) > 1);
            if users.len() >= MAX_CALLERS {
                users.clear();
            }
        }
        let user = users.entry(identity.clone()).or_insert_with(|| {
            let Identity { uid, gid, groups } = identity.clone();
            let session = self.session.as_user(Credential::Sys { uid, gid, groups });
            Arc::new(User { session, identity })
        });
        let user = user.clone();
        callers.insert(key, (user.clone(), now));
        user
    }
}

/// The supplementary groups of a thread; `None` if the thread doesn't exist (any more).
fn groups_of(pid: u32) -> Option<Vec<u32>> {
    parse_groups(&status_of(pid)?)
}

/// The status of a thread; `None` if the thread doesn't exist (any more).
fn status_of(pid: u32) -> Option<Vec<u8>> {
    // The kernel makes the whole text at each read(2), and tells no size beforehand.
    let mut status = Vec::with_capacity(4096);
    File::open(format!("/proc/{pid}/status")).ok()?.read_to_end(&mut status).ok()?;
    Some(status)
}

fn parse_groups(status: &[u8]) -> Option<Vec<u32>> {
    let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"Groups:"))?;
    let line = std::str::from_utf8(line).ok()?;
    line.split_ascii_whitespace().map(|group| group.parse().ok()).collect()
}

/// Whether a SIGKILL is pending for the thread; the kernel turns other fatal signals into one. Also true if
/// the thread doesn't exist.
pub(crate) fn is_dying(pid: u32) -> bool {
    status_of(pid).is_none_or(|status| kill_is_pending(&status))
}

/// As [`is_dying`] for a thread that needn't exist: asynchronous I/O outlives the thread that has begun it,
/// as io_uring's workers and libaio's callers do.
pub(crate) fn is_being_killed(pid: u32) -> bool {
    status_of(pid).is_some_and(|status| kill_is_pending(&status))
}

fn kill_is_pending(status: &[u8]) -> bool {
    const KILL: u64 = 1 << 8;
    status.split(|byte| *byte == b'\n').any(|line| {
        let mask = line.strip_prefix(b"SigPnd:").or_else(|| line.strip_prefix(b"ShdPnd:"));
        let mask = mask.and_then(|mask| std::str::from_utf8(mask).ok());
        mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & KILL != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_parsed() {
        assert_eq!(parse_groups(b"Name:\tx\nGroups:\t4 24 1000 \nNStgid:\t1\n"), Some(vec![4, 24, 1000]));
        assert_eq!(parse_groups(b"Groups:\t \n"), Some(vec![]));
        assert_eq!(parse_groups(b"Name:\tx\n"), None);
        assert!(groups_of(std::process::id()).is_some());
    }

    #[test]
    fn a_pending_kill_is_found_in_both_masks() {
        assert!(kill_is_pending(b"SigQ:\t1/2\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n"));
        assert!(kill_is_pending(b"SigPnd:\t0000000000000000\nShdPnd:\t0000000000000100\n"));
        assert!(!kill_is_pending(b"SigPnd:\t0000000000004000\nShdPnd:\t0000000000000000\n"));
        assert!(!is_dying(std::process::id()) && !is_being_killed(std::process::id()));
        // What asynchronous I/O has begun may have ended.
        assert!(is_dying(u32::MAX) && !is_being_killed(u32::MAX));
    }
}
