//! Who a caller is: uid and gid come with every request, the supplementary groups are looked up in /proc.
//!
//! Each user acts as themselves: a call is made with the caller's own AUTH_SYS credential, and the server
//! decides.
//!
//! What was found is kept for [`KEPT`], for at most [`MOST`] callers: a process may drop or add groups
//! (setgroups(2)), and its number may come back as another process's.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Attributes, Credential, Session};
use parking_lot::Mutex;

use crate::fuse::request::Header;

/// How long a caller's groups are believed.
const KEPT: Duration = Duration::from_millis(100);

/// Callers that are remembered.
const MOST: usize = 4096;

/// A user with all their groups.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Identity {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

/// A user at work: the same one is the same object.
#[derive(Debug)]
pub(crate) struct User {
    /// The mount's session, acting as them.
    pub(crate) session: Session,
    identity: Identity,
}

impl User {
    /// Whether the permission bits alone say that the user may; `wanted`: those of one class, 0 to 7. Where
    /// they don't, the server may still have its reasons (root, access control lists, an owner, a program
    /// that is run).
    pub(crate) fn may_by_mode(&self, attributes: &Attributes, wanted: u32) -> bool {
        self.identity.may_by_mode(attributes, wanted)
    }
}

impl Identity {
    fn may_by_mode(&self, attributes: &Attributes, wanted: u32) -> bool {
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
struct Remembered {
    callers: HashMap<(u32, u32, u32), (Arc<User>, Instant)>,
    /// The same user is one object, whatever process they come in.
    users: HashMap<Identity, Arc<User>>,
}

/// The users of a mount.
#[derive(Debug)]
pub(crate) struct Users {
    session: Session,
    remembered: Mutex<Remembered>,
}

impl Users {
    pub(crate) fn new(session: Session) -> Self {
        Self { session, remembered: Mutex::default() }
    }

    /// The user who makes this request.
    pub(crate) fn of(&self, header: &Header, now: Instant) -> Arc<User> {
        let key = (header.pid, header.uid, header.gid);
        if let Some((user, since)) = self.remembered.lock().callers.get(&key)
            && now.saturating_duration_since(*since) < KEPT
        {
            return user.clone();
        }
        // A caller in a PID namespace that isn't ours has no number here, and a kernel thread has no groups.
        let groups = if header.pid == 0 { Vec::new() } else { groups_of(header.pid).unwrap_or_default() };
        let identity = Identity { uid: header.uid, gid: header.gid, groups };
        let mut remembered = self.remembered.lock();
        let Remembered { callers, users } = &mut *remembered;
        if callers.len() >= MOST {
            callers.retain(|_, (_, since)| now.saturating_duration_since(*since) < KEPT);
            if callers.len() >= MOST {
                callers.clear();
            }
        }
        if users.len() >= MOST {
            users.retain(|_, user| Arc::strong_count(user) > 1);
            if users.len() >= MOST {
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

/// The supplementary groups of a thread; `None` if there is no such thread (any more).
fn groups_of(pid: u32) -> Option<Vec<u32>> {
    let status = fs::read(format!("/proc/{pid}/status")).ok()?;
    parse_groups(&status)
}

fn parse_groups(status: &[u8]) -> Option<Vec<u32>> {
    let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"Groups:"))?;
    let line = std::str::from_utf8(line).ok()?;
    line.split_ascii_whitespace().map(|group| group.parse().ok()).collect()
}

/// Whether a signal that nobody can catch waits for the thread: SIGKILL, or what the kernel has made one of.
/// True, too, if the thread isn't there.
pub(crate) fn is_dying(pid: u32) -> bool {
    let Ok(status) = fs::read(format!("/proc/{pid}/status")) else { return true };
    kill_is_pending(&status)
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
    fn groups_are_a_line_of_numbers() {
        assert_eq!(parse_groups(b"Name:\tx\nGroups:\t4 24 1000 \nNStgid:\t1\n"), Some(vec![4, 24, 1000]));
        assert_eq!(parse_groups(b"Groups:\t \n"), Some(vec![]));
        assert_eq!(parse_groups(b"Name:\tx\n"), None);
        assert!(groups_of(std::process::id()).is_some());
    }

    #[test]
    fn a_pending_kill_is_seen_in_both_masks() {
        assert!(kill_is_pending(b"SigQ:\t1/2\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n"));
        assert!(kill_is_pending(b"SigPnd:\t0000000000000000\nShdPnd:\t0000000000000100\n"));
        assert!(!kill_is_pending(b"SigPnd:\t0000000000004000\nShdPnd:\t0000000000000000\n"));
        assert!(!is_dying(std::process::id()));
    }
}
