//! The "silly rename" of NFS clients: a file that loses its name while it is open gets a hidden one.
//!
//! An NFSv3 server doesn't know which files are open. A file without a name is gone for it, even if a process
//! here has the file open. So the file is renamed instead of removed or replaced, and the hidden name is
//! removed after the last close. Servers of NFSv4.1 may promise to keep a file while it is open
//! (`OPEN4_RESULT_PRESERVE_UNLINKED`); most don't.
//!
//! close(2) doesn't wait for the removal, because RELEASE comes after it returned. RMDIR and READDIR of the
//! directory do wait: after the last close(2) has returned, no process sees the hidden name.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Instant;

use client::Handle;
use parking_lot::Mutex;
use rustix::io::Errno;

use super::Filesystem;
use super::in_flight::{InFlight, InFlightGuard};
use crate::inode::{HiddenName, Inode};
use crate::users::User;

/// How many hidden names are tried.
const MAX_TRIES: u32 = 16;

/// The beginning of hidden names.
const PREFIX: &str = ".nfs";

/// Whether a name may be a hidden one.
pub(super) fn is_hidden(name: &[u8]) -> bool {
    name.starts_with(PREFIX.as_bytes())
}

/// Serial numbers for hidden names, and the removals under way.
#[derive(Debug, Default)]
pub(crate) struct HiddenNames {
    serial: AtomicU32,
    /// The number of hidden names of open files, by directory.
    present: Mutex<HashMap<Handle, u32>>,
    /// By directory.
    removals: Arc<InFlight<Handle>>,
}

impl HiddenNames {
    /// A name that is unlikely to exist.
    fn generate(&self, inode: &Inode) -> Vec<u8> {
        let serial = self.serial.fetch_add(1, Relaxed);
        let file = inode.attributes().map_or(0, |attributes| attributes.fileid);
        format!("{PREFIX}{file:016x}{serial:08x}").into_bytes()
    }

    fn note_present(&self, directory: Handle) {
        *self.present.lock().entry(directory).or_default() += 1;
    }

    /// A hidden name is about to be removed, or has become another name.
    fn note_gone(&self, directory: &Handle) {
        let mut present = self.present.lock();
        if let Some(count) = present.get_mut(directory) {
            *count -= 1;
            if *count == 0 {
                present.remove(directory);
            }
        }
    }

    /// Begins the removal of a hidden name after the last close.
    pub(super) fn begin_removal(&self, hidden: HiddenName) -> HiddenRemoval {
        let guard = self.removals.begin(hidden.directory.clone());
        self.note_gone(&hidden.directory);
        HiddenRemoval { _guard: guard, hidden }
    }
}

/// The removal of a hidden name. It is under way until this is dropped.
#[derive(Debug)]
pub(crate) struct HiddenRemoval {
    hidden: HiddenName,
    _guard: InFlightGuard<Handle>,
}

impl Filesystem {
    /// The file of this name, if it is open and must keep a name.
    async fn open_file_named(&self, directory: u64, name: &[u8]) -> Option<Arc<Inode>> {
        let inode = self.paths.get(directory, name)?;
        let needs_name = || inode.lock().opens.needs_name();
        if needs_name() {
            // The process may have closed it.
            self.receive_releases().await;
        }
        needs_name().then_some(inode)
    }

    /// Gives a hidden name to an open file that is about to lose its name. Returns false if the file needs
    /// none, or has a hidden name already.
    pub(super) async fn hide(
        &self,
        directory: &Arc<Inode>,
        name: &[u8],
        user: &Arc<User>,
    ) -> Result<bool, Errno> {
        let Some(inode) = self.open_file_named(directory.number, name).await else { return Ok(false) };
        if inode.lock().opens.is_hidden() {
            // The name is another file's by now.
            return Ok(false);
        }
        for _ in 0..MAX_TRIES {
            let other = self.hidden.generate(&inode);
            match user.session.lookup(&directory.handle, &other).await {
                Err(error) if error.status() == Some(client::Status::NoEntry) => {}
                Ok(_) => continue,
                Err(error) => return Err(self.errno(&error)),
            }
            self.negative_names.add(None, directory.number, &other);
            let renamed = user.session.rename(&directory.handle, name, &directory.handle, &other).await;
            renamed.map_err(|error| self.errno(&error))?;
            self.paths.rename((directory.number, name), (directory.number, &other), None);
            inode.handle.moved(&directory.handle, &other);
            let hidden = HiddenName { directory: directory.handle.clone(), name: other, user: user.clone() };
            self.hidden.note_present(directory.handle.clone());
            let hide = inode.lock().opens.hide(hidden);
            if let Err(hidden) = hide {
                // The last close came meanwhile.
                self.remove_hidden(&inode, self.hidden.begin_removal(hidden)).await;
            }
            return Ok(true);
        }
        Err(Errno::BUSY)
    }

    /// As [`Filesystem::hide`], for a file that is about to be replaced by a rename. Returns the file.
    pub(super) async fn hide_target(
        &self,
        from: &Arc<Inode>,
        name: &[u8],
        directory: &Arc<Inode>,
        target: &[u8],
        user: &Arc<User>,
    ) -> Result<Option<Arc<Inode>>, Errno> {
        let Some(inode) = self.open_file_named(directory.number, target).await else { return Ok(None) };
        if inode.is_directory() {
            return Ok(None);
        }
        // If both are names of one file, rename(2) does nothing.
        let moving = user.session.lookup(&from.handle, name).await.map_err(|error| self.errno(&error))?;
        if moving.handle == inode.handle {
            return Ok(None);
        }
        // A directory can't replace a file: the rename will fail.
        if moving.attributes.is_some_and(|attributes| attributes.kind == client::FileKind::Directory) {
            return Ok(None);
        }
        Ok(self.hide(directory, target, user).await?.then_some(inode))
    }

    /// Gives a hidden file its name back, because the rename that would have replaced it failed.
    pub(super) async fn unhide(&self, inode: &Arc<Inode>, directory: &Arc<Inode>, name: &[u8]) {
        let Some(hidden) = inode.lock().opens.take_hidden() else { return };
        self.hidden.note_gone(&hidden.directory);
        let session = &hidden.user.session;
        self.negative_names.add(None, directory.number, name);
        match session.rename(&hidden.directory, &hidden.name, &directory.handle, name).await {
            Ok(()) => {
                inode.handle.moved(&directory.handle, name);
                self.paths.rename((directory.number, &hidden.name), (directory.number, name), None);
            }
            Err(error) => {
                let name = String::from_utf8_lossy(&hidden.name);
                tracing::warn!(%name, %error, "a file keeps its hidden name");
            }
        }
    }

    /// Removes a hidden name.
    pub(super) async fn remove_hidden(&self, inode: &Inode, removal: HiddenRemoval) {
        let HiddenName { directory, name, user } = &removal.hidden;
        let removed = user.session.remove(directory, name).await;
        inode.lock().attributes.expire(Instant::now());
        // The file may have other names, and now has one link less.
        self.kernel.invalidate_attributes(inode);
        if let Err(error) = removed
            && error.status() != Some(client::Status::NoEntry)
        {
            tracing::warn!(name = %String::from_utf8_lossy(name), %error, "a hidden file is left behind");
        }
    }

    /// Waits until the hidden names of files that are closed are removed from a directory.
    pub(super) async fn wait_for_removals(&self, directory: &Handle) {
        let is_present = self.hidden.present.lock().contains_key(directory);
        if is_present {
            self.receive_releases().await;
        }
        self.hidden.removals.wait_until_idle(directory).await;
    }

    /// As [`Filesystem::wait_for_removals`], for a directory that is about to be removed.
    pub(super) async fn wait_for_removals_in(&self, directory: u64, name: &[u8]) {
        if let Some(inode) = self.paths.get(directory, name) {
            self.wait_for_removals(&inode.handle).await;
        }
    }
}
