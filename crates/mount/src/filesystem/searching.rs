//! Who may search a directory: whether the kernel may walk over names in it by itself.
//!
//! The kernel walks over names that it knows without asking who walks. On a mount that several users share it
//! may therefore keep names only where everybody may search the directory; elsewhere each walk is a LOOKUP,
//! and this process decides as the kernel's NFS client does: by the server's answer to ACCESS for that user,
//! which is kept as long as the directory's attributes are believed ([`crate::inodes::State::rights`]).
//!
//! The mode alone doesn't say that everybody may search: an access control list may shut out somebody whom
//! the mode lets in, and NFSv3's attributes don't show that there is one. So the server is asked for the list
//! (NFSACL). Where it has no answer (no such program, a filesystem without such lists), nothing is taken for
//! granted and every walk is a LOOKUP.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{AclEntry, FileKind, Status};

use super::Filesystem;
use crate::inodes::{Node, State};
use crate::users::User;

/// For how long an answer holds at most: what changes a list changes the ctime, by which it is noticed, but
/// not in the same tick of a coarse clock.
const LONGEST: Duration = Duration::from_secs(60);

/// How long nobody else asks while one answer is waited for, or after an error.
const PAUSE: Duration = Duration::from_secs(1);

/// LOOKUPs in a directory before its list is asked for: most directories that are walked through once aren't
/// worth a call.
const WORTH: u32 = 2;

/// The bit of an entry that allows searching.
const SEARCH: u32 = 1;

/// NFSACL's tag of the entry for everybody else.
const OTHER: u32 = 0x20;

/// What is known of a directory's access control list.
#[derive(Debug, Default)]
pub(crate) struct Searching {
    answer: Option<Answer>,
    /// LOOKUPs that an answer would have spared.
    lookups: u32,
}

#[derive(Debug, Clone, Copy)]
struct Answer {
    /// Everybody may search the directory.
    everybody: bool,
    /// Of the directory: with another one it may not be so any more.
    version: u64,
    until: Instant,
}

impl Searching {
    fn answer(&self, version: u64, now: Instant) -> Option<bool> {
        self.answer
            .filter(|answer| answer.version == version && now < answer.until)
            .map(|known| known.everybody)
    }
}

/// Whether the mode lets everybody search a directory, in whichever class they are.
pub(super) fn is_open_by_mode(state: &State) -> bool {
    state.cache.attributes().is_some_and(|attributes| attributes.mode & 0o111 == 0o111)
}

/// Whether every entry of a list lets search, the mask included.
fn lets_everybody(acl: &[AclEntry]) -> bool {
    acl.iter().any(|entry| entry.tag == OTHER) && acl.iter().all(|entry| entry.permissions & SEARCH != 0)
}

impl Filesystem {
    /// Whether everybody who can use this mount may search a directory, as far as is known.
    pub(super) fn is_open_to_all(&self, state: &State, now: Instant) -> bool {
        is_open_by_mode(state)
            && (!self.options.allow_other || state.searching.answer(state.cache.version(), now) == Some(true))
    }

    /// A name is looked up in a directory: whether its list should be asked for beside that.
    pub(super) fn is_worth_asking(&self, directory: &Node, now: Instant) -> bool {
        let mut state = directory.state.lock();
        state.searching.lookups = state.searching.lookups.saturating_add(1);
        state.searching.lookups >= WORTH && self.may_ask(&state, now)
    }

    /// Whether a list of the directory could tell anything that isn't known.
    fn may_ask(&self, state: &State, now: Instant) -> bool {
        self.options.allow_other
            && self.options.acl
            && self.options.lookup_cache != crate::LookupCache::None
            && self.options.attributes.on
            && is_open_by_mode(state)
            && state.searching.answer(state.cache.version(), now).is_none()
    }

    /// Asks for a directory's list, unless it is known or wouldn't help.
    pub(super) async fn ask_who_searches(&self, user: &Arc<User>, directory: &Arc<Node>) {
        let asked = Instant::now();
        let version = {
            let mut state = directory.state.lock();
            let is_directory =
                state.cache.attributes().is_some_and(|attributes| attributes.kind == FileKind::Directory);
            if !is_directory || !self.may_ask(&state, asked) {
                return;
            }
            let version = state.cache.version();
            state.searching.answer = Some(Answer { everybody: false, version, until: asked + PAUSE });
            version
        };
        let answered = user.session.acl(&directory.handle).await;
        let (everybody, until) = match &answered {
            Ok(acl) => (lets_everybody(acl), asked + LONGEST),
            Err(error) if error.status() == Some(Status::NotSupported) => (false, asked + LONGEST),
            Err(_) => (false, asked + PAUSE),
        };
        let shut = {
            let mut state = directory.state.lock();
            // Of another version than now it says nothing about now, and isn't used.
            state.searching.answer = Some(Answer { everybody, version, until });
            !everybody && std::mem::take(&mut state.names_told)
        };
        if shut {
            self.shut(directory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(tag: u32, permissions: u32) -> AclEntry {
        AclEntry { tag, id: 0, permissions }
    }

    #[test]
    fn every_entry_must_let_search() {
        assert!(lets_everybody(&[entry(1, 7), entry(4, 5), entry(16, 5), entry(OTHER, 5)]));
        assert!(!lets_everybody(&[entry(1, 7), entry(2, 4), entry(4, 5), entry(16, 5), entry(OTHER, 5)]));
        assert!(!lets_everybody(&[entry(1, 7), entry(4, 5), entry(16, 4), entry(OTHER, 5)]));
        assert!(!lets_everybody(&[]), "a server that says nothing");
        assert!(!lets_everybody(&[entry(1, 7), entry(4, 5)]), "not a whole list");
    }

    #[test]
    fn an_answer_is_of_one_version_and_of_its_time() {
        let now = Instant::now();
        let mut searching = Searching::default();
        assert_eq!(searching.answer(0, now), None);
        searching.answer = Some(Answer { everybody: true, version: 3, until: now + PAUSE });
        assert_eq!(searching.answer(3, now), Some(true));
        assert_eq!((searching.answer(4, now), searching.answer(3, now + PAUSE)), (None, None));
    }
}
