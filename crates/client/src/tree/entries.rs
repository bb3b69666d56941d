//! REMOVE, RMDIR, RENAME, LINK, and COMMIT of a directory.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::fs::{AtFlags, OFlags, fsync, linkat, renameat, unlinkat};
use rustix::io::Errno;

use super::descriptors::Descriptor;
use super::failure::{Failure, Result};
use super::local::{Call, LocalTree, entry_name};
use crate::error::Status;
use crate::handle::{Handle, WeakHandle};
use crate::types::{FileKind, NameHint};

impl LocalTree {
    pub(crate) fn remove(&self, call: Call<'_>, directory: &Handle, name: &[u8]) -> Result<()> {
        self.remove_hinted(call, directory, name, NameHint::Unknown)
    }

    pub(crate) fn remove_hinted(
        &self,
        call: Call<'_>,
        directory: &Handle,
        name: &[u8],
        hint: NameHint<'_>,
    ) -> Result<()> {
        self.unlink(call, directory, (name, hint), AtFlags::empty())
    }

    pub(crate) fn remove_dir(&self, call: Call<'_>, directory: &Handle, name: &[u8]) -> Result<()> {
        self.unlink(call, directory, (name, NameHint::Unknown), AtFlags::REMOVEDIR)
    }

    fn unlink(
        &self,
        call: Call<'_>,
        directory: &Handle,
        (name, hint): (&[u8], NameHint<'_>),
        flags: AtFlags,
    ) -> Result<()> {
        call.check_waits()?;
        let name = entry_name(name)?;
        self.changing_names(call, directory, |at| {
            // A directory needs REMOVEDIR, so there may be nothing to look for.
            let victim = match flags {
                AtFlags::REMOVEDIR => self.hinted_entry(at, &name, hint),
                _ if self.descriptors.has_files() => self.hinted_entry(at, &name, hint),
                _ => None,
            };
            self.gone_or(at, unlinkat(&**at, &name, flags).map_err(Failure::from))?;
            self.forget_removed(victim.as_deref());
            Ok(())
        })
    }

    pub(crate) fn rename(
        &self,
        call: Call<'_>,
        from_directory: &Handle,
        from: &[u8],
        to_directory: &Handle,
        to: &[u8],
    ) -> Result<()> {
        let hint = NameHint::Unknown;
        self.rename_hinted(call, (from_directory, from, hint), (to_directory, to, hint))
    }

    pub(crate) fn rename_hinted(
        &self,
        call: Call<'_>,
        (from_directory, from, moved): (&Handle, &[u8], NameHint<'_>),
        (to_directory, to, replaced): (&Handle, &[u8], NameHint<'_>),
    ) -> Result<()> {
        call.check_waits()?;
        let (from, to) = (entry_name(from)?, entry_name(to)?);
        let asked = Instant::now();
        let (from_at, to_at) = (self.find(call, from_directory)?, self.find(call, to_directory)?);
        let is_same = Arc::ptr_eq(&from_at, &to_at);
        let from_before = self.live(&from_at)?;
        let to_before = if is_same { from_before } else { self.live(&to_at)? };
        let moved = self.hinted_entry(&from_at, &from, moved);
        let victim = self.hinted_entry(&to_at, &to, replaced);
        let renamed = renameat(&*from_at, &from, &*to_at, &to);
        if renamed.is_ok() {
            self.forget_removed(victim.as_deref());
            if let Some(moved) = moved {
                moved.was_moved(to_directory, &to);
            }
        }
        let from_after = self.attributes_of(&*from_at).ok();
        let to_after = if is_same { from_after } else { self.attributes_of(&*to_at).ok() };
        self.report(from_directory, Some(&from_before), from_after, asked);
        self.report(to_directory, Some(&to_before), to_after, asked);
        Ok(renamed?)
    }

    /// After the removal of a name: if it was the last one, closes the descriptor and so frees the file's
    /// space, here and in the server.
    fn forget_removed(&self, victim: Option<&Descriptor>) {
        let Some(victim) = victim else { return };
        if let Ok(attributes) = self.attributes_of(victim)
            && attributes.nlink == 0
        {
            self.descriptors.remove(&victim.identity);
            let handle = victim.handle.lock().as_ref().and_then(WeakHandle::upgrade);
            if let (Some(seals), Some(handle)) = (&self.seals, handle) {
                seals.removed(&handle, attributes.used);
            }
        }
    }

    pub(crate) fn link(&self, call: Call<'_>, file: &Handle, directory: &Handle, name: &[u8]) -> Result<()> {
        call.check_waits()?;
        let (asked, name) = (Instant::now(), entry_name(name)?);
        let descriptor = self.find(call, file)?;
        let (proc, number) = self.proc_entry(descriptor.as_fd())?;
        let linked = self.changing_names(call, directory, |at| {
            if self.live(&descriptor)?.kind == FileKind::Directory {
                return Err(Status::IsDirectory.into());
            }
            let made = linkat(proc, number, &**at, &name, AtFlags::SYMLINK_FOLLOW);
            self.gone_or(at, made.map_err(Failure::from))
        });
        if linked != Err(Failure::NotLocal) {
            self.report(file, None, self.live(&descriptor).ok(), asked);
        }
        linked
    }

    /// Makes the changes of a directory's names durable. Data of files isn't written through the tree.
    pub(crate) fn commit(&self, call: Call<'_>, file: &Handle) -> Result<()> {
        call.check_waits()?;
        let asked = Instant::now();
        let descriptor = self.find(call, file)?;
        let attributes = self.live(&descriptor)?;
        if attributes.kind != FileKind::Directory {
            return Err(Failure::NotLocal);
        }
        let synced = match self.open_again(&*descriptor, OFlags::RDONLY | OFlags::DIRECTORY) {
            Ok(opened) => fsync(opened),
            // The server syncs directories that the user may not read.
            Err(_) => return Err(Failure::NotLocal),
        };
        self.report(file, None, Some(attributes), asked);
        match synced {
            // A filesystem without fsync of directories.
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(errno) => Err(Failure::from(errno).after_change()),
        }
    }
}
