//! Detached mounts are attached at a mount point, and detached again.
//!
//! A descriptor of any file of a mount, `O_PATH` included, keeps the mount busy for umount(8). So the
//! functions leave none open, and a mount that is attached is recognised by its number.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, StatxFlags, open, openat2, statx};
use rustix::io::Errno;
use rustix::mount::{
    FsPickFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, fsconfig_reconfigure, fspick, move_mount,
    open_tree, unmount,
};

use crate::mount::{
    MOUNT_ATTR_NODEV, MOUNT_ATTR_NOEXEC, MOUNT_ATTR_NOSUID, MOUNT_ATTR_RDONLY, MountAttr, set_attributes,
};

const MOUNT_ATTR_ATIME: u64 = 0x70;
const MOUNT_ATTR_NOATIME: u64 = 0x10;
const MOUNT_ATTR_NOSYMFOLLOW: u64 = 0x20_0000;

const PATH_ONLY: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
const NO_LINKS: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// Options of an attached mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of mount(8)")]
pub struct AttachedOptions {
    /// `ro`. Without it, the mount keeps what it has.
    pub read_only: bool,
    /// `suid`, or else `nosuid`.
    pub set_id: bool,
    /// `dev`, or else `nodev`.
    pub devices: bool,
    /// `noexec`. Without it, the mount keeps what it has.
    pub no_exec: bool,
    /// `nosymfollow` (Linux 5.14). Without it, the mount keeps what it has.
    pub no_symlinks: bool,
    /// `noatime`. Without it, the mount keeps what it has.
    pub no_access_times: bool,
}

impl AttachedOptions {
    fn attributes(self) -> MountAttr {
        let mut change = MountAttr::NONE;
        for (wanted, bit) in [
            (self.read_only, MOUNT_ATTR_RDONLY),
            (!self.set_id, MOUNT_ATTR_NOSUID),
            (!self.devices, MOUNT_ATTR_NODEV),
            (self.no_exec, MOUNT_ATTR_NOEXEC),
            (self.no_symlinks, MOUNT_ATTR_NOSYMFOLLOW),
            (self.no_access_times, MOUNT_ATTR_NOATIME),
        ] {
            if wanted {
                change.attr_set |= bit;
            }
        }
        for (wanted, bits) in [
            (self.set_id, MOUNT_ATTR_NOSUID),
            (self.devices, MOUNT_ATTR_NODEV),
            // The kinds of access times exclude each other, and are cleared together.
            (self.no_access_times, MOUNT_ATTR_ATIME),
        ] {
            if wanted {
                change.attr_clr |= bits;
            }
        }
        change
    }
}

/// Gives a detached mount its options, and attaches it on top of what is at the directory `at`. Returns its
/// number ([`mount_id`]). Needs `CAP_SYS_ADMIN`.
///
/// mount_setattr(2), Linux 5.12; move_mount(2), Linux 5.2.
///
/// # Errors
/// `EPERM` without the capability; `EINVAL` for a mount that isn't detached, and for an option that the
/// kernel doesn't have; `ENOSYS` on an older kernel.
pub fn attach(mount: OwnedFd, options: AttachedOptions, at: impl AsFd) -> rustix::io::Result<u64> {
    set_attributes(&mount, options.attributes())?;
    // The numbers of mounts were new in Linux 5.8.
    let id = mount_id(&mount)?.ok_or(Errno::NOSYS)?;
    move_to(&mount, at)?;
    Ok(id)
}

/// Attaches a copy of the mount with this number ([`mount_id`]), with everything mounted below it, on top of
/// what is at the file or directory `at`. The mount must be on top at the path `path` below `root`, and be
/// mounted on the mount of `root`. Returns whether it was there. Needs `CAP_SYS_ADMIN`.
///
/// Other users may rename the directories on the path meanwhile. So no symbolic link is followed, and only
/// the last step leads to another mount.
///
/// # Errors
/// openat2(2)'s: `ELOOP` for a symbolic link, `EXDEV` for another mount on the way and for a path that leads
/// out of `root`. Those of open_tree(2) and move_mount(2).
pub fn attach_copy(id: u64, root: impl AsFd, path: &Path, at: impl AsFd) -> rustix::io::Result<bool> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(Errno::INVAL) };
    let parent = below(root, if parent.as_os_str().is_empty() { Path::new(".") } else { parent })?;
    let mounted = openat2(parent, name, PATH_ONLY, Mode::empty(), NO_LINKS)?;
    if mount_id(&mounted)? != Some(id) {
        return Ok(false);
    }
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    move_to(&open_tree(mounted, c"", flags)?, at)?;
    Ok(true)
}

/// The file or directory at the path `path` below `directory`, as a descriptor that can't be read from. It is
/// on the same mount, and no symbolic link leads there.
///
/// # Errors
/// openat2(2)'s (Linux 5.6): `ELOOP` for a symbolic link, `EXDEV` for another mount and for a path that leads
/// out of `directory`.
pub fn below(directory: impl AsFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    openat2(directory, path, PATH_ONLY, Mode::empty(), NO_LINKS | ResolveFlags::NO_XDEV)
}

fn move_to(mount: &OwnedFd, at: impl AsFd) -> rustix::io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(mount, c"", at, c"", flags)
}

/// The number that /proc/self/mountinfo has for the mount of an open file; `None` before Linux 5.8. It isn't
/// given to another mount while the file is open or the mount is attached. The filesystem isn't accessed.
///
/// # Errors
/// statx(2)'s.
pub fn mount_id(file: impl AsFd) -> rustix::io::Result<Option<u64>> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    // The kernel gives the number unasked. Any request is refused on a FUSE filesystem of another user.
    let found = statx(file, c"", flags, StatxFlags::empty())?;
    Ok((found.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(found.stx_mnt_id))
}

/// The directory at `path` on the mount on top there, as a descriptor that can't be read from. If it is a
/// mount's root, the mounted filesystem isn't accessed.
///
/// # Errors
/// open(2)'s.
pub fn top(path: &Path) -> rustix::io::Result<OwnedFd> {
    open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// Reconfigures the filesystem whose root `root` is, with the options that it has. The kernel writes its
/// pages back and forgets the names of files that aren't in use. Needs `CAP_SYS_ADMIN`.
///
/// # Errors
/// fspick(2)'s and fsconfig(2)'s, Linux 5.2.
pub fn reconfigure(root: impl AsFd) -> rustix::io::Result<()> {
    let context = fspick(root, c"", FsPickFlags::FSPICK_EMPTY_PATH | FsPickFlags::FSPICK_CLOEXEC)?;
    fsconfig_reconfigure(context)
}

/// Detaches the mount with this number if it is on top at `path`: at once, and lazily also if it is in use
/// (`MNT_DETACH`). Returns whether it was there.
///
/// # Errors
/// umount2(2)'s: `EBUSY` for a mount in use, `EPERM` without `CAP_SYS_ADMIN`.
pub fn detach(path: &Path, id: u64, lazy: bool) -> rustix::io::Result<bool> {
    let root = match top(path) {
        Ok(root) => root,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(false),
        Err(error) => return Err(error),
    };
    if mount_id(&root)? != Some(id) {
        return Ok(false);
    }
    if lazy {
        // Through the descriptor: whatever the path leads to by now, it is this mount that is detached.
        unmount(format!("/proc/self/fd/{}", root.as_raw_fd()), UnmountFlags::DETACH)?;
    } else {
        // The descriptor would keep it busy.
        drop(root);
        unmount(path, UnmountFlags::NOFOLLOW)?;
    }
    Ok(true)
}
