//! A cell: a mount namespace whose root is a clone of one directory.
//!
//! A process that has a descriptor of a directory in a cell reaches the files below the cell's root and
//! nothing else: `..` ends at the root, and nothing is mounted below. The mount belongs to the cell's
//! namespace, which no process is in, so no holder of a descriptor can clone, bind, move or remount it, or
//! clear its flags: for that the kernel requires that the mount is in the caller's own namespace. (A detached
//! clone has no such protection: a user with a user namespace of its own may attach it and clear its flags.)
//!
//! The clone must be the root of its namespace. If it were attached below another root, `..` would lead out.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, open};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, MoveMountFlags, UnmountFlags, mount_change, move_mount, unmount};
use rustix::process::{fchdir, pivot_root};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use crate::mount::{CloneAttributes, MountFlags, add_flags, clone_detached};

/// A cell. Its namespace exists until this is dropped; descriptors of its files are usable beyond that.
#[derive(Debug)]
pub struct Cell {
    namespace: OwnedFd,
    root: OwnedFd,
}

impl Cell {
    /// Makes a cell of `directory`, which must be on a mount of this process's mount namespace. What is
    /// mounted below the directory, now or later, isn't visible in the cell. Needs `CAP_SYS_ADMIN`.
    ///
    /// # Errors
    /// Those of [`clone_detached`]; `EINVAL` where this process's root directory isn't a mount that can be
    /// replaced: in an initial ramdisk, or after chroot(2) to a directory that isn't a mount point; `EAGAIN`
    /// without a thread; `ENOENT` without /proc.
    pub fn new(directory: impl AsFd, attributes: CloneAttributes) -> rustix::io::Result<Cell> {
        let directory = directory.as_fd();
        on_own_thread(move || make(directory, attributes))
    }

    /// The root directory, open for reading.
    #[must_use]
    pub fn root(&self) -> &OwnedFd {
        &self.root
    }

    /// Sets those of `flags` that are `true`, for all descriptors of the cell's files. Needs `CAP_SYS_ADMIN`.
    ///
    /// # Errors
    /// `EBUSY` when the cell is to be read-only and a file is open for writing through it: nothing has
    /// changed, and the caller may try again. `EAGAIN` without a thread.
    pub fn restrict(&self, flags: MountFlags) -> rustix::io::Result<()> {
        on_own_thread(|| {
            own_directories(UnshareFlags::empty())?;
            move_into_link_name_space(self.namespace.as_fd(), Some(LinkNameSpaceType::Mount))?;
            add_flags(&self.root, flags)
        })
    }
}

/// Makes the calling thread the cell's only member. When the thread ends, no thread is in the namespace.
fn make(directory: BorrowedFd<'_>, attributes: CloneAttributes) -> rustix::io::Result<Cell> {
    // A mount can be cloned only in the namespace that it belongs to.
    let clone = clone_detached(directory, attributes)?;
    own_directories(UnshareFlags::NEWNS)?;
    // The copies of all other mounts are detached below, which must not unmount the originals.
    mount_change(c"/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    move_mount(&clone, c"", CWD, c"/", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let namespace = open(c"/proc/thread-self/ns/mnt", flags, Mode::empty())?;
    // pivot_root(2), NOTES: the old root is now mounted on top of the new one, where "." finds it.
    fchdir(&clone)?;
    pivot_root(c".", c".")?;
    unmount(c".", UnmountFlags::DETACH)?;
    let root = open(c"/", flags | OFlags::DIRECTORY, Mode::empty())?;
    Ok(Cell { namespace, root })
}

/// Gives this thread a root and a working directory of its own, which entering a mount namespace requires.
fn own_directories(and: UnshareFlags) -> rustix::io::Result<()> {
    // SAFETY: the table of descriptors isn't unshared.
    unsafe { unshare_unsafe(UnshareFlags::FS | and) }
}

/// Runs `work` on a thread that ends afterwards: there is no dependable way back from a namespace.
fn on_own_thread<T: Send>(work: impl FnOnce() -> rustix::io::Result<T> + Send) -> rustix::io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("cell".into()).spawn_scoped(scope, work);
        let thread = thread.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
        thread.join().unwrap_or(Err(Errno::IO))
    })
}
