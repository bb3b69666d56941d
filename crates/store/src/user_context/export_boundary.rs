//! Checks that a file belongs to this export and not to one nested in it (see `nested_exports`).

use std::ffi::{CStr, OsStr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat, openat2};
use rustix::path::DecInt;

use super::context::UserContext;
use crate::attributes::FileKind;
use crate::error::{Error, Result};
use crate::export_tree::{PATH_ONLY, STRICT_RESOLVE};
use crate::inner::HandleScheme;
use crate::nested_exports::{DirectoryPlace, MAX_DEPTH};
use crate::node::Node;
use user_ids::as_process_user;

impl UserContext<'_> {
    /// Checks that a file found by a handle belongs to this export.
    ///
    /// # Errors
    /// `Stale` if it is in a nested export.
    pub(crate) fn check_export(&self, node: &Node) -> Result<()> {
        let nested = &self.store.tree.nested;
        let round = nested.round();
        if node.checked_in_round() == round {
            return Ok(());
        }
        // A file without names is in no directory.
        let is_named = || node.live(0).is_ok_and(|status| status.attributes.nlink > 0);
        if !nested.list().is_empty() && is_named() {
            match &self.store.scheme {
                HandleScheme::Kernel => as_process_user(|| self.check_by_climbing(node))?,
                HandleScheme::Located(_) => drop(self.resolve_located(node.id(), node.handle(), None)?),
            }
        }
        node.set_checked_in_round(round);
        Ok(())
    }

    /// Checks that a file found by name belongs to this export.
    ///
    /// # Errors
    /// `NestedExport`, or `Access` where that isn't served now.
    pub(crate) fn check_found(&self, node: &Node) -> Result<()> {
        let nested = &self.store.tree.nested;
        let round = nested.round();
        if round == 0 {
            return Ok(());
        }
        if node.kind() == FileKind::Directory
            && let Some(id) = nested.at_node(node)
        {
            return Err(id.map_or(Error::Access, Error::NestedExport));
        }
        node.set_checked_in_round(round);
        Ok(())
    }

    /// Checks that an entry may be renamed or removed.
    ///
    /// # Errors
    /// `InUse` for the directories of nested exports and those on the way there, as for a mount point;
    /// `Permission` for the reserved name, as in a directory with the sticky bit.
    pub(crate) fn check_name_is_free(&self, dir: &Node, name: &CStr) -> Result<()> {
        if self.store.reserved_name == Some(name) && dir.id() == self.store.tree.root.id() {
            return Err(Error::Permission);
        }
        let nested = &self.store.tree.nested;
        if nested.round() == 0 {
            return Ok(());
        }
        match DirectoryPlace::at(dir.file(), name) {
            Ok(found) if nested.keeps_its_name(found.identity) => Err(Error::InUse),
            _ => Ok(()),
        }
    }

    fn check_by_climbing(&self, node: &Node) -> Result<()> {
        let directory = match node.kind() {
            FileKind::Directory => Some(node.file().try_clone_to_owned().map_err(Error::from)?),
            // A file with several names may have some here and others there, and is served by the rules of
            // both.
            _ if rustix::fs::fstat(node.file())?.st_nlink > 1 => None,
            _ => self.known_directory(node),
        };
        let Some(mut at) = directory else { return Ok(()) };
        let root = DirectoryPlace::of(self.store.tree.root.file())?.identity;
        let nested = self.store.tree.nested.list();
        let mut here = DirectoryPlace::of(&at)?.identity;
        for _ in 0..MAX_DEPTH {
            if nested.iter().any(|export| export.directory == here) {
                return Err(Error::Stale);
            }
            if here == root {
                break;
            }
            // A directory that was moved out of the export is still served: that is the meaning of
            // `no_subtree_check`.
            let Ok(up) = openat(&at, c"..", PATH_ONLY | OFlags::DIRECTORY, Mode::empty()) else { break };
            at = up;
            let above = DirectoryPlace::of(&at)?.identity;
            if above == here {
                break;
            }
            here = above;
        }
        Ok(())
    }

    /// A directory in which the file has a name, if the kernel knows one.
    fn known_directory(&self, node: &Node) -> Option<OwnedFd> {
        let descriptor = DecInt::new(node.file().as_raw_fd());
        let path = rustix::fs::readlinkat(&self.store.proc, descriptor, Vec::with_capacity(256)).ok()?;
        let path = Path::new(OsStr::from_bytes(path.as_bytes())).parent()?;
        let below = path.strip_prefix("/").ok()?;
        if self.store.cloned {
            // The path is relative to the clone's root.
            let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
            openat2(
                self.store.tree.root.file(),
                below,
                PATH_ONLY | OFlags::DIRECTORY,
                Mode::empty(),
                STRICT_RESOLVE,
            )
            .ok()
        } else {
            openat(CWD, path, PATH_ONLY | OFlags::DIRECTORY, Mode::empty()).ok()
        }
    }
}
