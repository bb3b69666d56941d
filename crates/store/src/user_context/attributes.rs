//! GETATTR, SETATTR and READLINK.

use std::os::fd::AsRawFd;

use rustix::fs::{
    AtFlags, Gid, Mode, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid, chmodat, chownat, ftruncate,
    utimensat,
};
use rustix::io::Errno;
use rustix::path::DecInt;

use super::context::UserContext;
use super::types::AccessMode;
use crate::attributes::{Attributes, FileKind, FileStatus, SetAttributes, SetTime, Timestamp, Wcc};
use crate::error::{Error, Result};
use crate::node::Node;

/// Mode bits: a program runs with the rights of its owner (set-user-ID) or group (set-group-ID).
const S_ISUID: u32 = 0o4000;
const S_ISGID: u32 = 0o2000;

impl UserContext<'_> {
    /// The file's attributes.
    ///
    /// # Errors
    /// `Stale`.
    pub fn attributes(&self, node: &Node) -> Result<Attributes> {
        Ok(self.live(node)?.attributes)
    }

    /// Sets attributes in this order: size, owner and group, mode (because a change of owner clears set-id
    /// bits), times. With a `guard`, only if it equals the file's ctime.
    ///
    /// A failure leaves the changes made before it. What can be checked in advance (ownership, the guard, the
    /// values) is checked before the first change.
    ///
    /// # Errors
    /// `NotSync` when the guard doesn't match, `Permission` (also as for [`UserContext::check_set_id`]),
    /// `Access`, `ReadOnly`, `Invalid`, `IsDirectory` for the size of a directory, `FileTooLarge`, `NoSpace`,
    /// `NotSupported` for the mode of a symbolic link.
    pub fn set_attributes(
        &self,
        node: &Node,
        set: &SetAttributes,
        guard: Option<Timestamp>,
        wcc: &mut Wcc,
    ) -> Result<()> {
        self.changing(node, wcc, |before| {
            if guard.is_some_and(|guard| guard != before.attributes.ctime) {
                return Err(Error::NotSync);
            }
            self.apply(node, before, set)
        })
    }

    /// Whether a file of this kind may have `mode` in this store. An unprivileged store creates all files as
    /// the server's own user, without a `nosuid` mount of its own: a set-user-ID program from a client would
    /// give that user's rights to everyone who executes it. So such a store sets no set-user-ID bit, and a
    /// set-group-ID bit only on directories, where it means that new files inherit the group.
    ///
    /// # Errors
    /// `Permission`.
    pub fn check_set_id(&self, kind: FileKind, mode: u32) -> Result<()> {
        let refused = if kind == FileKind::Directory { S_ISUID } else { S_ISUID | S_ISGID };
        if self.is_privileged() || mode & refused == 0 { Ok(()) } else { Err(Error::Permission) }
    }

    /// Sets the modification time to now, because a client has written data that isn't here yet. Checks no
    /// permission.
    ///
    /// # Errors
    /// `ReadOnly`, `Io`.
    pub fn touch(&self, node: &Node) -> Result<()> {
        let now = timespec(Some(SetTime::Now));
        let times = Timestamps { last_access: timespec(None), last_modification: now };
        let touch = || Ok(utimensat(node.file(), c"", &times, AtFlags::EMPTY_PATH)?);
        self.as_process(touch)
    }

    /// The part of SETATTR that CREATE, MKDIR and the like use, too. The caller has assumed the user's ids
    /// and holds the lock.
    pub(super) fn apply(&self, node: &Node, before: &FileStatus, set: &SetAttributes) -> Result<()> {
        self.check_beforehand(before, set)?;
        if let Some(size) = set.size {
            self.check(node, before, AccessMode::Write)?;
            ftruncate(&*self.data_file(node, true)?, size)?;
            self.assume_ids()?;
        }
        let file = node.file();
        if set.uid.is_some() || set.gid.is_some() {
            let (uid, gid) = (set.uid.map(Uid::from_raw), set.gid.map(Gid::from_raw));
            chownat(file, c"", uid, gid, AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW)?;
        }
        if let Some(mode) = set.mode {
            let mode = Mode::from_raw_mode(mode & 0o7777);
            match sys::empty_path::chmod(file, mode) {
                Err(Errno::NOSYS) if node.kind() == FileKind::Symlink => return Err(Error::NotSupported),
                Err(Errno::NOSYS) => {
                    chmodat(&self.store.proc, DecInt::new(file.as_raw_fd()), mode, AtFlags::empty())?;
                }
                result => result?,
            }
        }
        if set.atime.is_some() || set.mtime.is_some() {
            let times =
                Timestamps { last_access: timespec(set.atime), last_modification: timespec(set.mtime) };
            let touch = || Ok(utimensat(file, c"", &times, AtFlags::EMPTY_PATH)?);
            // Linux clients send a time with a truncation. Permission for the truncation suffices for setting
            // it to now, but utimensat(2) lets only the owner set one time without the other.
            // `check_beforehand` has refused times that only the owner may choose.
            if set.size.is_some() { self.as_process(touch)? } else { touch()? }
        }
        self.close_if_program(node, set.mode.unwrap_or(before.attributes.mode));
        Ok(())
    }

    /// Checks what can be checked before the first change.
    fn check_beforehand(&self, before: &FileStatus, set: &SetAttributes) -> Result<()> {
        let attributes = &before.attributes;
        if let Some(size) = set.size {
            match attributes.kind {
                FileKind::Regular => {}
                FileKind::Directory => return Err(Error::IsDirectory),
                _ => return Err(Error::Invalid),
            }
            if size > ::io::MAX_OFFSET {
                return Err(Error::FileTooLarge);
            }
        }
        for time in [set.atime, set.mtime] {
            if let Some(SetTime::To(Timestamp { nanoseconds: 1_000_000_000.., .. })) = time {
                return Err(Error::Invalid);
            }
        }
        if let Some(mode) = set.mode {
            self.check_set_id(attributes.kind, mode)?;
        }
        // To the kernel this means "no change".
        if set.uid == Some(u32::MAX) || set.gid == Some(u32::MAX) {
            return Err(Error::Invalid);
        }
        let given_time = [set.atime, set.mtime].iter().any(|time| matches!(time, Some(SetTime::To(_))));
        let owners = set.mode.is_some() || set.uid.is_some() || set.gid.is_some() || given_time;
        if owners && self.is_privileged() && !self.is_root() && self.who.identity.uid != attributes.uid {
            return Err(Error::Permission);
        }
        Ok(())
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `Invalid` for other files, `Stale`.
    pub fn readlink(&self, node: &Node) -> Result<Vec<u8>> {
        if node.kind() != FileKind::Symlink {
            return Err(Error::Invalid);
        }
        self.live(node)?;
        self.assume_ids()?;
        Ok(rustix::fs::readlinkat(node.file(), c"", Vec::with_capacity(256))?.into_bytes())
    }
}

fn timespec(time: Option<SetTime>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(SetTime::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(SetTime::To(Timestamp { seconds, nanoseconds })) => {
            Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() }
        }
    }
}
