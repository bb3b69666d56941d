//! Detached clones of mounts, and mount options.
//!
//! Files opened through a clone are on the same filesystem, but mounts below the original aren't visible. The
//! clone's own options (read-only, no devices) apply to every descriptor opened through it, even when it is
//! passed on.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::mount::{MountPropagationFlags, OpenTreeFlags, open_tree};

use crate::check;

/// Restrictions of a clone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CloneAttributes {
    /// No writing, and no re-opening for writing through /proc.
    pub read_only: bool,
    /// Device files can't be opened.
    pub no_devices: bool,
    /// Set-user-ID and set-group-ID programs run as the caller.
    pub no_set_id: bool,
}

/// `struct mount_attr`, version 0.
#[repr(C)]
pub(crate) struct MountAttr {
    pub(crate) attr_set: u64,
    pub(crate) attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

impl MountAttr {
    /// No change.
    pub(crate) const NONE: MountAttr = MountAttr { attr_set: 0, attr_clr: 0, propagation: 0, userns_fd: 0 };
}

pub(crate) const MOUNT_ATTR_RDONLY: u64 = 0x01;
pub(crate) const MOUNT_ATTR_NOSUID: u64 = 0x02;
pub(crate) const MOUNT_ATTR_NODEV: u64 = 0x04;
pub(crate) const MOUNT_ATTR_NOEXEC: u64 = 0x08;

/// Mount options that can be set and cleared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MountFlags {
    /// No changes through this mount.
    pub read_only: bool,
    /// No execution of programs from this mount.
    pub no_exec: bool,
}

/// Sets the options of the mount whose root `root` is. mount_setattr(2), Linux 5.12; needs `CAP_SYS_ADMIN`.
///
/// # Errors
/// `EBUSY` when it is to be read-only and files are open for writing through it; `EINVAL` when `root` isn't a
/// mount's root.
pub fn set_flags(root: impl AsFd, flags: MountFlags) -> rustix::io::Result<()> {
    let attr_clr = MountFlags { read_only: true, no_exec: true }.bits() & !flags.bits();
    set_attributes(root, MountAttr { attr_set: flags.bits(), attr_clr, ..MountAttr::NONE })
}

/// As [`set_flags`], without clearing any.
pub(crate) fn add_flags(root: impl AsFd, flags: MountFlags) -> rustix::io::Result<()> {
    set_attributes(root, MountAttr { attr_set: flags.bits(), ..MountAttr::NONE })
}

impl MountFlags {
    fn bits(self) -> u64 {
        let bit = |wanted, bit| if wanted { bit } else { 0 };
        bit(self.read_only, MOUNT_ATTR_RDONLY) | bit(self.no_exec, MOUNT_ATTR_NOEXEC)
    }
}

pub(crate) fn set_attributes(root: impl AsFd, attr: MountAttr) -> rustix::io::Result<()> {
    // SAFETY: the path is a NUL-terminated literal; `attr` has the size that is passed and outlives the call.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            root.as_fd().as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attr,
            size_of::<MountAttr>(),
        )
    };
    check(returned).map(|_| ())
}

/// Clones the mount that `directory` is on, with `directory` as its root and without the mounts below. The
/// clone lives until the descriptor and all files opened through it are closed. Needs `CAP_SYS_ADMIN`.
///
/// The clone is private: what is mounted later below a shared original doesn't appear in it, neither while it
/// is detached (Linux 6.15 propagates to detached mounts) nor when it is attached.
///
/// open_tree(2), Linux 5.2; mount_setattr(2), Linux 5.12.
///
/// # Errors
/// `EPERM` without the capability, `ENOSYS` on an older kernel, `EINVAL` when the mount is unbindable.
pub fn clone_detached(directory: impl AsFd, attributes: CloneAttributes) -> rustix::io::Result<OwnedFd> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let clone = open_tree(directory, c"", flags)?;
    let mut attr_set = 0;
    for (wanted, bit) in [
        (attributes.read_only, MOUNT_ATTR_RDONLY),
        (attributes.no_set_id, MOUNT_ATTR_NOSUID),
        (attributes.no_devices, MOUNT_ATTR_NODEV),
    ] {
        if wanted {
            attr_set |= bit;
        }
    }
    let propagation = u64::from(MountPropagationFlags::PRIVATE.bits());
    set_attributes(&clone, MountAttr { attr_set, propagation, ..MountAttr::NONE })?;
    Ok(clone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags, open, openat};
    use rustix::io::Errno;

    #[test]
    fn a_read_only_clone_refuses_to_write() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("f"), b"x").expect("writes");
        let original = open(dir.path(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).expect("opens");
        let attributes = CloneAttributes { read_only: true, ..CloneAttributes::default() };
        let clone = match clone_detached(&original, attributes) {
            Ok(clone) => clone,
            Err(error) => {
                assert!(matches!(error, Errno::PERM | Errno::NOSYS), "{error}");
                return;
            }
        };
        openat(&clone, c"f", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).expect("reads");
        let refused = openat(&clone, c"f", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        assert_eq!(refused.err(), Some(Errno::ROFS));
    }
}
