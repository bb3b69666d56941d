//! Whether everybody may search a directory: the evaluated access control list, and whether the kernel relies
//! on it.
//!
//! The kernel resolves cached names without asking the filesystem. On a mount that several users share it may
//! therefore cache names only in directories that everybody may search. The mode alone doesn't say that: an
//! access control list may deny a user what the mode permits, and NFSv3's attributes don't show that there is
//! a list. So the server is asked for the list (NFSACL).

use std::time::{Duration, Instant};

use client::PosixAcl;

/// How long an answer holds at most. A change of the list shows in the change attribute, which invalidates
/// the answer, but where that is made of the ctime not within one tick of a coarse clock.
pub(super) const MAX_AGE: Duration = Duration::from_secs(60);

/// How long the list isn't fetched again while a fetch is under way, or after an error.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// LOOKUPs in a directory before its list is fetched: most directories that are passed through once aren't
/// worth a call. The third one lists a directory over the wire, which by NFSv4 brings the list.
const LOOKUP_THRESHOLD: u32 = 3;

/// The permission bit for searching.
const SEARCH: u8 = 1;

/// What is known about the permission to search a directory.
#[derive(Debug, Default)]
pub(crate) struct SearchPermission {
    answer: Option<AclAnswer>,
    /// LOOKUPs that a cached name would have spared.
    lookups: u32,
    /// The kernel may have cached names in the directory.
    names_cached: bool,
}

#[derive(Debug, Clone, Copy)]
struct AclAnswer {
    /// Everybody may search the directory.
    granted: bool,
    /// The directory's version at that time; the answer doesn't hold for another one.
    version: u64,
    until: Instant,
}

/// The result of asking for a directory's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AclResult {
    /// The list, evaluated: whether everybody may search.
    Evaluated(bool),
    /// The server or the filesystem has no such lists.
    NotSupported,
    /// The call failed.
    Failed,
}

impl AclResult {
    /// Evaluates a list: every entry must permit searching, the mask included.
    pub(crate) fn of(acl: &PosixAcl) -> Self {
        Self::Evaluated(acl.permits_all(SEARCH))
    }
}

impl SearchPermission {
    /// Whether everybody may search a directory of this version; `None` if that isn't known.
    pub(crate) fn is_granted(&self, version: u64, now: Instant) -> Option<bool> {
        let answer = self.answer.filter(|answer| answer.version == version && now < answer.until);
        answer.map(|answer| answer.granted)
    }

    /// Counts a LOOKUP in the directory. Returns whether there were enough to fetch the list.
    pub(crate) fn count_lookup(&mut self) -> bool {
        self.lookups = self.lookups.saturating_add(1);
        self.lookups >= LOOKUP_THRESHOLD
    }

    /// A fetch of the list begins, for this version of the directory. No other one begins meanwhile.
    pub(crate) fn begin_fetch(&mut self, version: u64, now: Instant) {
        self.answer = Some(AclAnswer { granted: false, version, until: now + RETRY_DELAY });
    }

    /// Enters the result of a fetch that began at `asked`. Returns whether names that the kernel has cached
    /// must be revoked.
    pub(crate) fn end_fetch(&mut self, version: u64, result: AclResult, asked: Instant) -> bool {
        let (granted, age) = match result {
            AclResult::Evaluated(granted) => (granted, MAX_AGE),
            AclResult::NotSupported => (false, MAX_AGE),
            AclResult::Failed => (false, RETRY_DELAY),
        };
        self.answer = Some(AclAnswer { granted, version, until: asked + age });
        !granted && self.revoke()
    }

    /// The list was changed here. Returns as [`SearchPermission::revoke`].
    pub(crate) fn forget(&mut self) -> bool {
        self.answer = None;
        self.revoke()
    }

    /// The kernel may cache a name in the directory from now on.
    pub(crate) fn note_names_cached(&mut self) {
        self.names_cached = true;
    }

    /// Not everybody may search the directory any more. Returns whether the kernel may have names cached, and
    /// resets that.
    pub(crate) fn revoke(&mut self) -> bool {
        std::mem::take(&mut self.names_cached)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_must_permit_searching() {
        let granted = |acl: &PosixAcl| AclResult::of(acl) == AclResult::Evaluated(true);
        let acl = PosixAcl { users: vec![(1, 5)], mask: Some(5), ..PosixAcl::of_mode(0o755) };
        assert!(granted(&acl));
        assert!(!granted(&PosixAcl { users: vec![(1, 4)], ..acl.clone() }));
        assert!(!granted(&PosixAcl { mask: Some(4), ..acl.clone() }));
        assert!(!granted(&PosixAcl { other: 4, ..acl }));
    }

    #[test]
    fn an_answer_holds_for_one_version_and_a_time() {
        let now = Instant::now();
        let mut search = SearchPermission::default();
        assert_eq!(search.is_granted(0, now), None);
        assert!(!search.end_fetch(3, AclResult::Evaluated(true), now));
        assert_eq!(search.is_granted(3, now), Some(true));
        assert_eq!((search.is_granted(4, now), search.is_granted(3, now + MAX_AGE)), (None, None));
    }

    #[test]
    fn names_are_revoked_once() {
        let now = Instant::now();
        let mut search = SearchPermission::default();
        assert!(!search.end_fetch(0, AclResult::NotSupported, now), "nothing is cached");
        search.note_names_cached();
        assert!(!search.end_fetch(0, AclResult::Evaluated(true), now));
        assert!(search.end_fetch(1, AclResult::Evaluated(false), now));
        assert!(!search.revoke());
    }
}
