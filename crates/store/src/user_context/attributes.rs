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

/// Mode bits: a program runs with the rights of its owner, of its group.
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

    /// Sets attributes: first the size, then owner and group, the mode (a change of owner clears set-id bits,
    /// so the mode asked for comes after it), the times. With a `guard`, only if the file's ctime is still
    /// that.
    ///
    /// A failure half-way leaves what was done before it; what can be known beforehand (ownership, the guard,
    /// the values) is checked before anything is changed.
    ///
    /// # Errors
    /// `NotSync` when the guard doesn't match, `Permission` (also as for [`UserContext::check_set_id`]), `Access`,
    /// `ReadOnly`, `Invalid`, `IsDirectory` for the size of a directory, `FileTooLarge`, `NoSpace`,
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

    /// Whether a file of this kind may be given `mode` here. A store without privileges makes all its files
    /// as the user that the server runs as, and no mount of its own says `nosuid`: a set-user-ID program that
    /// a client put there would run with the rights of that user, whoever starts it. So such a store sets no
    /// set-user-ID bit, and a set-group-ID bit only on directories, where it means that new files inherit the
    /// group.
    ///
    /// # Errors
    /// `Permission`.
    pub fn check_set_id(&self, kind: FileKind, mode: u32) -> Result<()> {
        let refused = if kind == FileKind::Directory { S_ISUID } else { S_ISUID | S_ISGID };
        if self.is_privileged() || mode & refused == 0 { Ok(()) } else { Err(Error::Permission) }
    }

    /// Says that the file has changed, now: somebody has data for it that isn't here yet. Nobody's permission
    /// is asked.
    ///
    /// # Errors
    /// `ReadOnly`, `Io`.
    pub fn touch(&self, node: &Node) -> Result<()> {
        let now = timespec(Some(SetTime::Now));
        let times = Timestamps { last_access: timespec(None), last_modification: now };
        let touch = || Ok(utimensat(node.file(), c"", &times, AtFlags::EMPTY_PATH)?);
        self.as_process(touch)
    }

    /// The part of SETATTR that CREATE and its like need, too. The ids are worn, the lock is held.
    pub(super) fn apply(&self, node: &Node, before: &FileStatus, set: &SetAttributes) -> Result<()> {
        self.foresee(before, set)?;
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
            utimensat(file, c"", &times, AtFlags::EMPTY_PATH)?;
        }
        self.let_run(node, set.mode.unwrap_or(before.attributes.mode));
        Ok(())
    }

    /// Finds what is wrong before anything is changed.
    fn foresee(&self, before: &FileStatus, set: &SetAttributes) -> Result<()> {
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
        // The kernel's "leave it".
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

    /// The text of a symbolic link.
    ///
    /// # Errors
    /// `Invalid` for anything else, `Stale`.
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
