//! REMOVE, RMDIR and RENAME.

use std::ffi::CStr;
use std::sync::Arc;

use rustix::fs::{AtFlags, renameat, unlinkat};

use super::context::UserContext;
use crate::attributes::{Wcc, status};
use crate::error::{Error, Result};
use crate::handle::FileId;
use crate::inner::HandleScheme;
use crate::node::Node;

impl UserContext<'_> {
    /// Removes a name of something other than a directory.
    ///
    /// # Errors
    /// `NotFound`, `IsDirectory` (also for "." and ".."), `Access`, `Permission`, `ReadOnly`, `Stale`.
    pub fn remove(&self, dir: &Node, name: &[u8], wcc: &mut Wcc) -> Result<()> {
        self.unlink(dir, name, Error::IsDirectory, AtFlags::empty(), wcc)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `InUse` for directories of nested exports and those on the way there, as for mount points;
    /// `NotEmpty`, `NotDirectory`, `NotFound`, `Invalid` for "." and `Exists` for ".." (RFC 1813 section
    /// 3.3.13), `Access`, `Permission`, `ReadOnly`, `Stale`.
    pub fn rmdir(&self, dir: &Node, name: &[u8], wcc: &mut Wcc) -> Result<()> {
        let dots = if name == b"." { Error::Invalid } else { Error::Exists };
        self.unlink(dir, name, dots, AtFlags::REMOVEDIR, wcc)
    }

    fn unlink(&self, dir: &Node, name: &[u8], dots: Error, flags: AtFlags, wcc: &mut Wcc) -> Result<()> {
        let name = self.entry_name(dir, name, dots, wcc)?;
        self.changing(dir, wcc, |_| {
            let victim = self.cached(dir, &name);
            self.check_name_is_free(dir, &name)?;
            self.gone_or(dir, unlinkat(dir.file(), &name, flags).map_err(Error::from))?;
            self.forget(victim);
            Ok(())
        })
    }

    /// Renames an entry, replacing the one with the new name.
    ///
    /// # Errors
    /// `NotFound`, `Exists` or `NotEmpty`, `IsDirectory`, `NotDirectory`, `Invalid` for "." and ".." and for
    /// moving a directory below itself, `CrossDevice`, `InUse` as for [`UserContext::rmdir`], `Access`,
    /// `Permission`, `ReadOnly`, `Stale`.
    pub fn rename(
        &self,
        from_dir: &Node,
        from: &[u8],
        to_dir: &Node,
        to: &[u8],
        from_wcc: &mut Wcc,
        to_wcc: &mut Wcc,
    ) -> Result<()> {
        let names = self
            .entry_name(from_dir, from, Error::Invalid, from_wcc)
            .and_then(|from| Ok((from, self.entry_name(to_dir, to, Error::Invalid, to_wcc)?)));
        let _alone = self.store.locks.two(from_dir.fileid(), to_dir.fileid());
        let (from_before, to_before) = (self.live(from_dir)?, self.live(to_dir)?);
        from_wcc.before = Some(from_before.attributes);
        to_wcc.before = Some(to_before.attributes);
        let result = names.and_then(|(from, to)| {
            if self.read_only {
                return Err(Error::ReadOnly);
            }
            self.assume_ids()?;
            self.move_name(from_dir, &from, to_dir, &to)
        });
        from_wcc.after = status(from_dir.file(), self.fsid()).ok().map(|after| after.attributes);
        to_wcc.after = status(to_dir.file(), self.fsid()).ok().map(|after| after.attributes);
        result
    }

    fn move_name(&self, from_dir: &Node, from: &CStr, to_dir: &Node, to: &CStr) -> Result<()> {
        let victim = self.cached(to_dir, to);
        self.check_name_is_free(from_dir, from)?;
        self.check_name_is_free(to_dir, to)?;
        renameat(from_dir.file(), from, to_dir.file(), to)?;
        self.forget(victim);
        if let HandleScheme::Located(paths) = &self.store.scheme {
            // The renamed file keeps its handle, and files below it are found through it.
            if let Ok(file) = self.peek(to_dir, to) {
                let id = FileId::of(&file, &status(&file, self.fsid())?);
                paths.note(&self.store.tree, to_dir.id(), to, id);
            }
        }
        Ok(())
    }

    /// After removing a name: if it was the last one, drops the node and so frees the file's space.
    fn forget(&self, victim: Option<Arc<Node>>) {
        if let Some(node) = victim {
            // `live` removes a node whose file is gone from the cache.
            let _ = self.live(&node);
        }
    }
}
