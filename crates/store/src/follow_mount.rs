//! Changes of the mount below a store: noticing them, and applying new mount options to the clones.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::io::Errno;
use sys::mount::{MountFlags, set_flags};

use crate::inner::StoreInner;
use crate::mount::{DirectoryId, MountChange, Mounts};
use crate::store::Store;
use user_ids::restore_process_ids;

impl Store {
    /// Which directory this is.
    #[must_use]
    pub fn directory_id(&self) -> DirectoryId {
        self.inner().attached.id
    }

    /// The directory's path when the store opened, without symbolic links.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.inner().attached.path()
    }

    /// The id of the mount; `None` where the kernel doesn't report it.
    #[must_use]
    pub fn mount_id(&self) -> Option<u64> {
        self.inner().attached.mount
    }

    /// Whether anything needs the store to stay open: an open file, a lease, data that isn't on stable
    /// storage, or a cell. Files that are open only for later calls are closed first.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        let inner = self.inner();
        inner.release_descriptors();
        inner.nodes.len() > 0
            || !inner.nodes.pins.is_empty()
            || inner.cells.are_made()
            || Arc::strong_count(inner) > 1
    }

    /// Whether the mount has been made read-only, though the export isn't.
    #[must_use]
    pub fn is_mounted_read_only(&self) -> bool {
        self.inner().attached.is_read_only() && !self.inner().is_read_only()
    }

    /// Refuses all changes through this store from now on, or no longer. What holds files of it stays: data
    /// that isn't on stable storage, and an NFSv4 client's state. While files are open for writing the kernel
    /// doesn't refuse changes besides. To be called on a thread that doesn't act as a user.
    pub fn set_read_only(&self, read_only: bool) {
        let inner = self.inner();
        if inner.read_only.swap(read_only, Ordering::AcqRel) != read_only {
            restore_process_ids();
            inner.apply_mount_options(inner.attached.options());
            inner.attached.clones_changed();
        }
    }

    /// Finds out what has become of the mount, and takes its options on. May wait for a filesystem that
    /// hangs. To be called on a thread that doesn't act as a user, when the mounts have changed, and once at
    /// the beginning.
    #[must_use]
    pub fn follow_mount(&self, mounts: &Mounts) -> MountChange {
        restore_process_ids();
        let (inner, attached) = (self.inner(), &self.inner().attached);
        let Some(mount) = attached.mount else { return MountChange::Unchanged };
        let Some(flags) = mounts.flags.get(&mount) else { return MountChange::Unmounted };
        if attached.is_covered() {
            return MountChange::Covered;
        }
        // The clones first: a file that is opened meanwhile finds either the one or the other.
        inner.apply_mount_options(*flags);
        if attached.set_options(*flags) { MountChange::OptionsChanged } else { MountChange::Unchanged }
    }
}

impl StoreInner {
    /// Gives the clones the options of the mount.
    fn apply_mount_options(&self, flags: MountFlags) {
        if !self.cloned {
            return;
        }
        let read_only = flags.read_only || self.is_read_only();
        for (clone, flags) in [
            (Some(self.tree.root.file()), MountFlags { read_only, ..flags }),
            (self.reader_clone.as_ref().map(AsFd::as_fd), MountFlags { read_only: true, ..flags }),
        ] {
            let Some(clone) = clone else { continue };
            match set_flags(clone, flags) {
                Ok(()) => {}
                // Files are open for writing.
                Err(Errno::BUSY) => {
                    let _ = set_flags(clone, MountFlags { read_only: false, ..flags });
                }
                Err(error) => tracing::warn!(%error, "mount options can't be carried over"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unmounted_directory_is_detected() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = crate::testing::store(dir.path());
        let mounts = Mounts::parse(&std::fs::read("/proc/self/mountinfo").expect("reads"));
        assert_eq!(store.follow_mount(&mounts), MountChange::Unchanged);
        assert_eq!(store.follow_mount(&Mounts::default()), MountChange::Unmounted);
        assert_eq!(DirectoryId::of(dir.path()).expect("there"), store.directory_id());
    }
}
