//! Attributes of new files that the server gets a moment later, with the file's times and data
//! ([`Session::set_attributes_later`]).
//!
//! An application must be told at once what the server refuses, and another host must not have rights that it
//! has lost. So a change goes later only if it is the owner's and takes no rights away: then the server has
//! no reason to refuse it but those for which it could refuse data, too.
//!
//! Until then nothing that this mount shows depends on the attributes that the server last told.
//!
//! [`Session::set_attributes_later`]: client::Session::set_attributes_later

use std::time::Instant;

use client::{Attributes, FileKind, SetAttributes, SetTime};

use super::Filesystem;
use crate::inode::Inode;
use crate::users::User;

/// Set-user-ID, set-group-ID and sticky bits.
const SPECIAL_BITS: u32 = 0o7000;

/// Whether a change by the owner takes no rights away, and can't be refused by reason of what it changes.
fn is_harmless(known: &Attributes, set: &SetAttributes) -> bool {
    let keeps_owner =
        set.uid.is_none_or(|uid| uid == known.uid) && set.gid.is_none_or(|gid| gid == known.gid);
    let only_adds = set.mode.is_none_or(|mode| {
        let (before, after) = (known.mode & 0o7777, mode & 0o7777);
        (before | after) & SPECIAL_BITS == 0 && before & !after == 0
    });
    // The server's present is another one later.
    let has_times = [set.atime, set.mtime].iter().all(|time| *time != Some(SetTime::Now));
    known.kind == FileKind::Regular && set.size.is_none() && keeps_owner && only_adds && has_times
}

/// What a file's attributes will be, except for its ctime.
fn expected(known: Attributes, set: &SetAttributes) -> Attributes {
    let time = |set: Option<SetTime>, known| match set {
        Some(SetTime::To(time)) => time,
        Some(SetTime::Now) | None => known,
    };
    Attributes {
        mode: set.mode.map_or(known.mode, |mode| mode & 0o7777),
        atime: time(set.atime, known.atime),
        mtime: time(set.mtime, known.mtime),
        ..known
    }
}

impl Filesystem {
    /// Accepts a change to be made later. Returns the attributes that the file will have; they mustn't be
    /// cached. `None`: the server has to be asked now.
    pub(super) fn set_attributes_later(
        &self,
        user: &User,
        inode: &Inode,
        set: &SetAttributes,
    ) -> Option<Attributes> {
        // Asked first: the replies to the WRITEs that end now are in the cache then.
        let unwritten_end = self.session.unwritten_end(&inode.handle).unwrap_or(0);
        let known = inode.attributes().filter(|known| user.owns(known) && is_harmless(known, set))?;
        let all = user.session.set_attributes_later(&inode.handle, set)?;
        let size = known.size.max(unwritten_end);
        let mut state = inode.lock();
        // Attributes and rights that were asked for before this may be from before the change.
        state.attributes.expire(Instant::now());
        state.access.clear();
        Some(expected(Attributes { size, ..known }, &all))
    }
}

#[cfg(test)]
mod tests {
    use client::Timestamp;

    use super::*;

    const FIRST: Timestamp = Timestamp { seconds: 1, nanoseconds: 0 };

    fn file(mode: u32) -> Attributes {
        Attributes {
            kind: FileKind::Regular,
            mode,
            nlink: 1,
            uid: 7,
            gid: 8,
            size: 9,
            used: 9,
            rdev: (0, 0),
            fsid: 1,
            fileid: 1,
            atime: FIRST,
            mtime: FIRST,
            ctime: FIRST,
            change: FIRST.settled_change(),
        }
    }

    #[test]
    fn what_takes_rights_away_or_may_be_refused_is_not_harmless() {
        let none = SetAttributes::default();
        let mode = |mode| SetAttributes { mode: Some(mode), ..none };
        let time = SetTime::To(Timestamp { seconds: 5, nanoseconds: 0 });
        for harmless in [
            mode(0o600),
            mode(0o755),
            SetAttributes { uid: Some(7), gid: Some(8), ..none },
            SetAttributes { atime: Some(time), mtime: Some(time), ..mode(0o644) },
        ] {
            assert!(is_harmless(&file(0o600), &harmless), "{harmless:?}");
        }
        for other in [
            mode(0o400),
            mode(0o4755),
            mode(0o1600),
            SetAttributes { uid: Some(0), ..none },
            SetAttributes { gid: Some(7), ..none },
            SetAttributes { size: Some(0), ..none },
            SetAttributes { atime: Some(SetTime::Now), ..none },
            SetAttributes { mtime: Some(SetTime::Now), ..mode(0o644) },
        ] {
            assert!(!is_harmless(&file(0o600), &other), "{other:?}");
        }
        assert!(!is_harmless(&file(0o2600), &mode(0o600)), "the server clears the bit");
        let directory = Attributes { kind: FileKind::Directory, ..file(0o700) };
        assert!(!is_harmless(&directory, &mode(0o755)));
    }

    #[test]
    fn the_kernel_is_told_what_will_be() {
        let time = Timestamp { seconds: 5, nanoseconds: 6 };
        let set = SetAttributes {
            mode: Some(0o644),
            uid: Some(7),
            mtime: Some(SetTime::To(time)),
            ..SetAttributes::default()
        };
        let told = expected(file(0o600), &set);
        assert_eq!(told, Attributes { mode: 0o644, mtime: time, ..file(0o600) });
    }
}
