//! A file's POSIX access control lists, as the server last sent them, and whether processes want to know
//! them. Nearly all files have no lists beyond their modes, and need no memory for that.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{PosixAcl, PosixAcls, ReplyAcls};

/// ls(1) with -l asks for the lists of a directory, lists it, and asks for those of each file.
const WANTED_TIME: Duration = Duration::from_secs(5);

/// The longest list that is kept, in entries: FUSE can't pass a longer one to the kernel.
const MAX_ENTRIES: usize = 511;

/// The lists of a file, as far as they say more than its mode.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FileAcls {
    pub(crate) access: Option<PosixAcl>,
    pub(crate) default: Option<PosixAcl>,
}

/// What is known about a file's lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KnownAcls {
    /// They say no more than its mode.
    Mode,
    /// They say more.
    Lists(Arc<FileAcls>),
    /// It has an NFSv4 list that no POSIX one equals.
    NoPosix,
}

impl KnownAcls {
    /// The lists of a file with this mode, if that is known.
    pub(crate) fn of(lists: PosixAcls, mode: Option<u32>) -> Self {
        let mode = mode.map(|mode| mode & 0o777);
        let is_mode = |list: &PosixAcl| !list.is_extended() && mode.is_none_or(|mode| list.mode() == mode);
        let lists =
            FileAcls { access: Some(lists.access).filter(|list| !is_mode(list)), default: lists.default };
        if lists.access.is_none() && lists.default.is_none() {
            return Self::Mode;
        }
        Self::Lists(Arc::new(lists))
    }

    /// As [`KnownAcls::of`], of a reply. `None` for what isn't kept.
    pub(super) fn of_reply(acls: &ReplyAcls, mode: u32) -> Option<Self> {
        let is_kept = |list: &PosixAcl| list.entries() <= MAX_ENTRIES;
        match acls {
            ReplyAcls::Posix(lists) => {
                let fits = is_kept(&lists.access) && lists.default.as_ref().is_none_or(is_kept);
                fits.then(|| Self::of(lists.clone(), Some(mode)))
            }
            ReplyAcls::NoPosix => Some(Self::NoPosix),
            // The filesystem is remembered instead.
            ReplyAcls::NotSupported => None,
        }
    }
}

/// Whether processes want to know the lists of a directory's files, which makes a listing worth more: it then
/// asks for lists, too.
#[derive(Debug, Default)]
pub(crate) struct AclDemand {
    /// When a process last asked for the lists of the directory or of a file in it.
    last: Option<Instant>,
    /// How many files' lists weren't known, of those that were asked for one soon after the other.
    misses: u32,
}

impl AclDemand {
    /// A process asks for the lists of the directory, or of a file in it.
    pub(crate) fn note(&mut self, now: Instant) {
        if !self.is_there(now) {
            self.misses = 0;
        }
        self.last = Some(now);
    }

    /// The lists of a file that a process asks for aren't known. Returns whether it is the second such file.
    /// Whoever asks for one file's lists may want nothing else. For the others, further files are listed with
    /// theirs.
    pub(crate) const fn note_miss(&mut self) -> bool {
        self.misses = self.misses.saturating_add(1);
        self.misses == 2
    }

    /// Whether a process that lists the directory will probably ask for the lists of its files.
    pub(crate) fn is_there(&self, now: Instant) -> bool {
        self.last.is_some_and(|last| now.saturating_duration_since(last) < WANTED_TIME)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_file_soon_after_the_first_shows_demand() {
        let (now, mut demand) = (Instant::now(), AclDemand::default());
        assert!(!demand.is_there(now));
        demand.note(now);
        assert!(demand.is_there(now) && !demand.is_there(now + WANTED_TIME));
        assert_eq!([(); 4].map(|()| demand.note_miss()), [false, true, false, false]);
        demand.note(now + WANTED_TIME);
        assert_eq!([(); 3].map(|()| demand.note_miss()), [false, true, false], "they were long ago");
    }

    /// A server may send a list for each entry of a listing, asked or not.
    #[test]
    fn a_list_that_the_kernel_cant_take_is_not_kept() {
        let list = |entries: u32| {
            let users = (0..entries - 4).map(|uid| (uid, 4)).collect();
            PosixAcl { users, mask: Some(4), ..PosixAcl::of_mode(0o640) }
        };
        let known = |access: u32, default: Option<u32>| {
            let lists = PosixAcls { access: list(access), default: default.map(list) };
            KnownAcls::of_reply(&ReplyAcls::Posix(lists), 0o640)
        };
        assert!(known(511, Some(511)).is_some());
        assert!(known(512, None).is_none() && known(511, Some(512)).is_none());
    }
}
