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
use crate::export_tree::{MAX_DEPTH, PATH_ONLY, STRICT_RESOLVE};
use crate::identity::as_process_user;
use crate::inner::HandleScheme;
use crate::nested_exports::DirectoryPlace;
use crate::node::Node;

impl UserContext<'_> {
    /// Whether a file that a handle of this store names may be served by it.
    ///
    /// # Errors
    /// `Stale` if it lies in another export.
    pub(crate) fn check_export(&self, node: &Node) -> Result<()> {
        let nested = &self.store.tree.nested;
        let round = nested.round();
        if node.looked_at_in() == round {
            return Ok(());
        }
        // What has no name left is in no directory.
        let is_named = || node.live(0).is_ok_and(|status| status.attributes.nlink > 0);
        if !nested.list().is_empty() && is_named() {
            match &self.store.scheme {
                HandleScheme::Kernel => as_process_user(|| self.check_by_climbing(node))?,
                HandleScheme::Located(_) => drop(self.resolve_located(node.id(), node.handle(), None)?),
            }
        }
        node.look_at_in(round);
        Ok(())
    }

    /// What was found under a name that was followed in this store.
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
        node.look_at_in(round);
        Ok(())
    }

    /// Whether a name may be taken from what it is a name of.
    ///
    /// # Errors
    /// `TryLater`, as of a directory that something is mounted on.
    pub(crate) fn check_name_is_free(&self, dir: &Node, name: &CStr) -> Result<()> {
        let nested = &self.store.tree.nested;
        if nested.round() == 0 {
            return Ok(());
        }
        match DirectoryPlace::at(dir.file(), name) {
            Ok(found) if nested.keeps_its_name(found.identity) => Err(Error::TryLater),
            _ => Ok(()),
        }
    }

    fn check_by_climbing(&self, node: &Node) -> Result<()> {
        let directory = match node.kind() {
            FileKind::Directory => Some(node.file().try_clone_to_owned().map_err(Error::from)?),
            // One with several names may have some of them here and others there: then it is served by the
            // rules of both.
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
            // What was moved out of the export is served as before: that is what `no_subtree_check` says.
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

    /// A directory in which a file has a name, if the kernel knows one.
    fn known_directory(&self, node: &Node) -> Option<OwnedFd> {
        let descriptor = DecInt::new(node.file().as_raw_fd());
        let path = rustix::fs::readlinkat(&self.store.proc, descriptor, Vec::with_capacity(256)).ok()?;
        let path = Path::new(OsStr::from_bytes(path.as_bytes())).parent()?;
        let below = path.strip_prefix("/").ok()?;
        if self.store.cloned {
            // A path within the clone.
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
