//! The mount of an exported directory.
//!
//! A store works through clones of the mount. They are invisible to administrators and would keep an
//! unmounted filesystem alive and writable. Two measures prevent that:
//!
//! 1. *The store keeps the mount busy* by keeping the directory open where it is attached. umount(8) then
//!    reports a busy target, and `fuser -vm` the process, before a disk in use is checked or unplugged.
//! 2. *Changes that umount can't refuse are detected*: a lazy unmount, a mount over the directory, and new
//!    mount options (`mount -o remount,bind,ro`). The kernel reports changes of a namespace's mounts (poll(2)
//!    on /proc/self/mountinfo); the thread that waits for them calls
//!    [`Store::follow_mount`](crate::Store::follow_mount).
//!
//! A clone keeps the options that it was made with, so changes are applied to the clones, too. A clone with
//! files open for writing can't become read-only. In that case the store refuses changes itself, as it does
//! for clients with read-only access.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{CWD, Mode, OFlags, fstatvfs, openat};
use sys::mount::MountFlags;

use crate::attributes::{Timestamp, status};
use crate::error::Result;

/// The mounts of this process's mount namespace.
#[derive(Clone, Debug, Default)]
pub struct Mounts {
    /// By mount id.
    pub(crate) flags: HashMap<u64, MountFlags>,
    /// In the order of mountinfo.
    mounts: Vec<Mount>,
}

#[derive(Clone, Debug)]
struct Mount {
    id: u64,
    /// The mount point, with bytes escaped as in mountinfo.
    point: Vec<u8>,
    is_crossable: bool,
}

/// A filesystem that is mounted below a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountBelow {
    /// The mount id.
    pub id: u64,
    /// The mount point.
    pub path: PathBuf,
    /// Whether it has files of its own that outlive it or its mount: it is on a block device, or of a type
    /// that is known to ([`LOCAL_TYPES`]). Not so are filesystems of the kernel (proc, sysfs), of other
    /// processes (FUSE, autofs) and of other hosts.
    pub is_crossable: bool,
}

/// Local filesystems that have no block device of their own (major number 0).
const LOCAL_TYPES: [&str; 6] = ["btrfs", "bcachefs", "zfs", "ubifs", "overlay", "tmpfs"];

impl Mounts {
    /// Parses `text` as described in proc_pid_mountinfo(5), skipping malformed lines. Users who can mount
    /// choose names in it, which are any bytes.
    #[must_use]
    pub fn parse(text: &[u8]) -> Mounts {
        let mut mounts = Mounts::default();
        let mount = |line: &[u8]| {
            let mut fields = line.split(|byte| *byte == b' ');
            let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
            let device = fields.nth(1)?;
            let point = fields.nth(1)?.to_vec();
            let options = fields.next()?;
            // After the separator: the type, the source, and the filesystem's own options.
            let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
            let kind = fields.next()?;
            let of_filesystem = fields.nth(1)?;
            let is_local = LOCAL_TYPES.iter().any(|local| local.as_bytes() == kind);
            let is_crossable = !device.starts_with(b"0:") || is_local;
            let has =
                |options: &[u8], option: &[u8]| options.split(|byte| *byte == b',').any(|one| one == option);
            let read_only = has(options, b"ro") || has(of_filesystem, b"ro");
            let flags = MountFlags { read_only, no_exec: has(options, b"noexec") };
            Some((flags, Mount { id, point, is_crossable }))
        };
        for (flags, mount) in text.split(|byte| *byte == b'\n').filter_map(mount) {
            mounts.flags.insert(mount.id, flags);
            mounts.mounts.push(mount);
        }
        mounts
    }

    /// Whether a filesystem is mounted at `path`. Symbolic links are followed.
    #[must_use]
    pub fn is_mount_point(&self, path: &Path) -> bool {
        std::fs::canonicalize(path).is_ok_and(|path| {
            let path = escaped(&path);
            self.mounts.iter().any(|mount| mount.point == path)
        })
    }

    /// The mounts below the directory at `path`, which is absolute and without symbolic links. Of several at
    /// one mount point only the uppermost is listed.
    #[must_use]
    pub fn below(&self, path: &Path) -> Vec<MountBelow> {
        let prefix = prefix_of(path);
        let mut below: Vec<MountBelow> = Vec::new();
        for mount in self.mounts.iter().filter(|mount| is_below(&mount.point, &prefix)) {
            let path = PathBuf::from(OsString::from_vec(unescaped(&mount.point)));
            below.retain(|other| other.path != path);
            below.push(MountBelow { id: mount.id, path, is_crossable: mount.is_crossable });
        }
        below
    }

    /// Whether the mount is there and its mount point leads to it: no other mount covers it or a directory
    /// above it.
    #[must_use]
    pub fn is_visible(&self, mount: &MountBelow) -> bool {
        let there =
            openat(CWD, &mount.path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
        self.flags.contains_key(&mount.id) && there.is_ok_and(|there| mount_of(&there) == Some(mount.id))
    }

    /// Whether a mount point lies below the directory at `path`.
    fn has_below(&self, path: &Path) -> bool {
        let prefix = prefix_of(path);
        self.mounts.iter().any(|mount| is_below(&mount.point, &prefix))
    }
}

/// The escaped beginning of all paths below `path`.
fn prefix_of(path: &Path) -> Vec<u8> {
    let mut prefix = escaped(path);
    if prefix.last() != Some(&b'/') {
        prefix.push(b'/');
    }
    prefix
}

fn is_below(point: &[u8], prefix: &[u8]) -> bool {
    point.len() > prefix.len() && point.starts_with(prefix)
}

/// The bytes of a path in mountinfo.
fn unescaped(point: &[u8]) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), point);
    while let Some((first, tail)) = rest.split_first() {
        let octal = tail.get(..3).filter(|digits| digits.iter().all(|digit| matches!(digit, b'0'..=b'7')));
        match octal {
            Some(digits) if *first == b'\\' => {
                bytes.push(digits.iter().fold(0, |byte: u8, digit| byte << 3 | (digit - b'0')));
                rest = &tail[3..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    bytes
}

/// A path as in mountinfo.
fn escaped(path: &Path) -> Vec<u8> {
    let mut escaped = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => escaped.extend(format!("\\{byte:03o}").bytes()),
            _ => escaped.push(*byte),
        }
    }
    escaped
}

/// What has happened to a store's mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountChange {
    /// Nothing.
    Unchanged,
    /// The mount options changed and now apply. Earlier grants should be recalled.
    OptionsChanged,
    /// It was lazily unmounted.
    Unmounted,
    /// Something else is mounted at the directory's path.
    Covered,
}

/// Identifies a directory of a filesystem across unmounting and mounting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryId {
    filesystem: u64,
    fileid: u64,
    birth: Option<Timestamp>,
}

impl DirectoryId {
    /// The directory that is at `path` now.
    ///
    /// # Errors
    /// When it can't be examined.
    pub fn of(path: &Path) -> io::Result<DirectoryId> {
        let file = openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        DirectoryId::of_open(&file).map_err(io::Error::other)
    }

    /// The identity as bytes, for hashes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 32] {
        let birth = self.birth.unwrap_or_default();
        let mut bytes = [0; 32];
        let numbers = [self.filesystem, self.fileid, birth.seconds as u64, birth.nanoseconds.into()];
        for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_be_bytes());
        }
        bytes
    }

    fn of_open(file: &OwnedFd) -> Result<DirectoryId> {
        let filesystem = fstatvfs(file)?.f_fsid;
        let status = status(file, filesystem)?;
        Ok(DirectoryId { filesystem, fileid: status.attributes.fileid, birth: status.birth })
    }
}

/// The directory where it is attached, and the state of its mount.
#[derive(Debug)]
pub(crate) struct AttachedMount {
    /// `O_PATH`. While it is open the mount is busy.
    directory: OwnedFd,
    pub id: DirectoryId,
    /// The mount id; `None` where the kernel doesn't report it.
    pub mount: Option<u64>,
    /// The path, without symbolic links.
    path: PathBuf,
    read_only: AtomicBool,
    no_exec: AtomicBool,
    /// Incremented by every change that cached permission decisions may depend on.
    changes: AtomicU64,
}

impl AttachedMount {
    pub fn new(directory: OwnedFd) -> Result<AttachedMount> {
        let path = std::fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd())).unwrap_or_default();
        Ok(AttachedMount {
            id: DirectoryId::of_open(&directory)?,
            mount: mount_of(&directory),
            path,
            directory,
            read_only: AtomicBool::new(false),
            no_exec: AtomicBool::new(false),
            changes: AtomicU64::new(0),
        })
    }

    /// Whether the mount, or the whole filesystem, is read-only.
    pub fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Acquire)
    }

    /// The mount's options.
    pub fn options(&self) -> MountFlags {
        MountFlags { read_only: self.is_read_only(), no_exec: self.no_exec.load(Ordering::Acquire) }
    }

    /// How often options of the mount or its clones have changed.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// The path, without symbolic links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory on its original mount, before cloning.
    pub fn directory(&self) -> &OwnedFd {
        &self.directory
    }

    /// Whether anything is mounted below the directory, wherever that is now. Yes if that isn't known.
    pub fn has_mounts_below(&self, mounts: &Mounts) -> bool {
        let path = std::fs::read_link(format!("/proc/self/fd/{}", self.directory.as_raw_fd()));
        path.map_or(true, |path| mounts.has_below(&path))
    }

    /// Whether the path leads to another mount. If the path doesn't exist any more (a directory of the mount
    /// may have been renamed), its nearest existing ancestor decides.
    pub fn is_covered(&self) -> bool {
        let open = |path| openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok();
        let there = self.path.ancestors().find_map(open).and_then(|there| mount_of(&there));
        there.is_some() && there != self.mount
    }

    /// The options of the clones have changed.
    pub fn clones_changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Records new options, and returns whether they differ.
    pub fn set_options(&self, flags: MountFlags) -> bool {
        let read_only = self.read_only.swap(flags.read_only, Ordering::AcqRel) != flags.read_only;
        let no_exec = self.no_exec.swap(flags.no_exec, Ordering::AcqRel) != flags.no_exec;
        if read_only || no_exec {
            self.changes.fetch_add(1, Ordering::AcqRel);
        }
        read_only || no_exec
    }
}

/// The id of the mount that a file was opened on (proc_pid_fdinfo(5)).
fn mount_of(file: impl AsFd) -> Option<u64> {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_fd().as_raw_fd())).ok()?;
    info.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_the_table_may_be_any_bytes() {
        let mounts =
            Mounts::parse(b"1 2 0:7 / /home/u/\xff rw - fuse \xfe rw\n3 1 8:1 / /srv ro - xfs /dev/b rw\n");
        let below = mounts.below(Path::new("/"));
        assert_eq!(below.len(), 2);
        assert_eq!(below[1].path, Path::new("/srv"));
    }

    #[test]
    fn mountinfo_is_parsed() {
        let mounts = Mounts::parse(
            b"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n\
             37 35 98:0 / /mnt\\0403 ro,noexec - ext3 /dev/root rw\n\
             38 35 98:1 / /a rw shared:7 master:2 propagate_from:3 - xfs /dev/b ro,attr2\n\
             nonsense\n39 35\n",
        );
        let flags = |read_only, no_exec| MountFlags { read_only, no_exec };
        assert_eq!(mounts.flags.len(), 3);
        assert_eq!(mounts.flags[&36], flags(false, false));
        assert_eq!(mounts.flags[&37], flags(true, true));
        assert_eq!(mounts.flags[&38], flags(true, false), "the filesystem itself");
        for (path, below) in [("/", true), ("/mnt", false), ("/mnt2", false), ("/a", false), ("/mn", false)] {
            assert_eq!(mounts.has_below(Path::new(path)), below, "{path}");
        }
        let proc = Mounts::parse(b"1 2 8:1 / / rw - xfs /dev/b rw\n3 1 0:5 / /proc rw - proc proc rw\n");
        assert!(proc.is_mount_point(Path::new("/proc")) && proc.is_mount_point(Path::new("/")));
        assert!(!proc.is_mount_point(Path::new("/proc/self")) && !proc.is_mount_point(Path::new("/none")));
        let mounts = Mounts::parse(b"1 2 8:1 / /a\\040b/c\\134d rw - xfs /dev/b rw\n");
        assert!(mounts.has_below(Path::new("/a b")) && !mounts.has_below(Path::new("/a b/c\\d")));
        assert_eq!(mounts.below(Path::new("/a b"))[0].path, Path::new("/a b/c\\d"));
        let mounts = Mounts::parse(
            b"1 0 8:1 / /s rw - ext4 /dev/a rw\n2 1 0:40 / /s/t rw - tmpfs none rw\n\
             3 1 0:41 / /s/f rw - fuse.x none rw\n4 2 8:2 / /s/t rw - xfs /dev/b rw\n\
             5 1 0:42 / /s/p rw - proc none rw\n6 1 8:3 / /sother rw - xfs /dev/c rw\n",
        );
        let below = |path: &str| {
            let mounts = mounts.below(Path::new(path)).into_iter();
            mounts.map(|mount| (mount.id, mount.is_crossable)).collect::<Vec<_>>()
        };
        assert_eq!(below("/s"), [(3, false), (4, true), (5, false)]);
        assert_eq!((below("/s/t"), below("/").len()), (Vec::new(), 5));
    }
}
