//! What becomes of the mount that an exported directory is on.
//!
//! A store works through clones of the mount, which nobody sees and which would keep an unmounted filesystem
//! alive, and writable, unnoticed. Two things prevent that:
//!
//! 1. *The store holds the mount.* It keeps the directory open where it is attached, so that umount(8) says
//!    that the target is busy, and `fuser -vm` who it is. Nobody checks or unplugs a disk that is being
//!    written to.
//! 2. *What umount can't be kept from is noticed*: a lazy unmount, a mount over the directory, and another
//!    set of mount options (`mount -o remount,bind,ro`). The kernel says when the mounts of a namespace
//!    change (poll(2) on /proc/self/mountinfo); whoever waits for that calls [`Store::follow_mount`].
//!
//! Options: the clones keep those with which they were made, so a change is carried over. A clone through
//! which files are open for writing can't become read-only; there the store itself refuses changes, as it
//! does for clients that may only read.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{CWD, Mode, OFlags, fstatvfs, openat};
use sys::mount::MountFlags;

use crate::attributes::{Timestamp, status};
use crate::error::Result;

/// The mounts of this process's mount namespace, by their numbers.
#[derive(Clone, Debug, Default)]
pub struct Mounts(pub(crate) HashMap<u64, MountFlags>);

impl Mounts {
    /// Reads `text` as proc_pid_mountinfo(5) describes it. Lines that can't be understood are left out.
    #[must_use]
    pub fn parse(text: &str) -> Mounts {
        let mount = |line: &str| {
            let mut fields = line.split(' ');
            let id = fields.next()?.parse().ok()?;
            let options = fields.nth(4)?;
            // Behind the separator: type, source, and the options of the filesystem itself.
            let of_filesystem = fields.skip_while(|field| *field != "-").nth(3)?;
            let has = |options: &str, option| options.split(',').any(|other| other == option);
            let read_only = has(options, "ro") || has(of_filesystem, "ro");
            Some((id, MountFlags { read_only, no_exec: has(options, "noexec") }))
        };
        Mounts(text.lines().filter_map(mount).collect())
    }
}

/// What has become of a store's mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountChange {
    /// Nothing.
    Unchanged,
    /// It has other options, and they hold from now on: what was granted before had better be taken back.
    OptionsChanged,
    /// It was unmounted, lazily.
    Unmounted,
    /// At the directory's path something else is mounted.
    Covered,
}

/// Which directory of which filesystem: the same for one that was unmounted and mounted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryId {
    filesystem: u64,
    fileid: u64,
    birth: Option<Timestamp>,
}

impl DirectoryId {
    /// The directory that stands at `path` now.
    ///
    /// # Errors
    /// When it can't be looked at.
    pub fn of(path: &Path) -> io::Result<DirectoryId> {
        let file = openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        DirectoryId::of_open(&file).map_err(io::Error::other)
    }

    fn of_open(file: &OwnedFd) -> Result<DirectoryId> {
        let filesystem = fstatvfs(file)?.f_fsid;
        let status = status(file, filesystem)?;
        Ok(DirectoryId { filesystem, fileid: status.attributes.fileid, birth: status.birth })
    }
}

/// The directory where it is attached, and how its mount is.
#[derive(Debug)]
pub(crate) struct AttachedMount {
    /// `O_PATH`. While it is open the mount is busy.
    _directory: OwnedFd,
    pub id: DirectoryId,
    /// Its mount's number; `None` where the kernel doesn't say.
    pub mount: Option<u64>,
    /// Its path, without symbolic links.
    path: PathBuf,
    read_only: AtomicBool,
    no_exec: AtomicBool,
    /// Goes up when anything changes that a kept answer about permissions may depend on.
    changes: AtomicU64,
}

impl AttachedMount {
    pub fn new(directory: OwnedFd) -> Result<AttachedMount> {
        let path = std::fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd())).unwrap_or_default();
        Ok(AttachedMount {
            id: DirectoryId::of_open(&directory)?,
            mount: mount_of(&directory),
            path,
            _directory: directory,
            read_only: AtomicBool::new(false),
            no_exec: AtomicBool::new(false),
            changes: AtomicU64::new(0),
        })
    }

    /// Whether the mount, or the whole filesystem, is read-only.
    pub fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Acquire)
    }

    /// How often the mount's options have changed.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Whether the path leads to another mount, as far as it leads anywhere: a directory of the mount may
    /// have been renamed.
    pub fn is_covered(&self) -> bool {
        let open = |path| openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok();
        let there = self.path.ancestors().find_map(open).and_then(|there| mount_of(&there));
        there.is_some() && there != self.mount
    }

    /// Takes on other options. Whether they are others.
    pub fn set_options(&self, flags: MountFlags) -> bool {
        let read_only = self.read_only.swap(flags.read_only, Ordering::AcqRel) != flags.read_only;
        let no_exec = self.no_exec.swap(flags.no_exec, Ordering::AcqRel) != flags.no_exec;
        if read_only || no_exec {
            self.changes.fetch_add(1, Ordering::AcqRel);
        }
        read_only || no_exec
    }
}

/// The number of the mount that a file is open on (proc_pid_fdinfo(5)).
fn mount_of(file: impl AsFd) -> Option<u64> {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_fd().as_raw_fd())).ok()?;
    info.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_is_read_as_the_manual_has_it() {
        let mounts = Mounts::parse(
            "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n\
             37 35 98:0 / /mnt\\0403 ro,noexec - ext3 /dev/root rw\n\
             38 35 98:1 / /a rw shared:7 master:2 propagate_from:3 - xfs /dev/b ro,attr2\n\
             nonsense\n39 35\n",
        );
        let flags = |read_only, no_exec| MountFlags { read_only, no_exec };
        assert_eq!(mounts.0.len(), 3);
        assert_eq!(mounts.0[&36], flags(false, false));
        assert_eq!(mounts.0[&37], flags(true, true));
        assert_eq!(mounts.0[&38], flags(true, false), "the filesystem itself");
    }
}
