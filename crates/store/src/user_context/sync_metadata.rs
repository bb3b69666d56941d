//! Durable metadata: the guarantee of a `sync` export for changes of names and attributes (exports(5)).

use rustix::io::Errno;

use super::context::UserContext;
use crate::attributes::FileKind;
use crate::error::{Error, Result};
use crate::node::Node;
use ::io::Stability;

impl UserContext<'_> {
    /// Makes changes of a directory's entries or of a regular file's attributes durable. Checks no
    /// permission: the caller was allowed to make the change. A new file is durable with its directory. For
    /// links, devices, sockets and pipes nothing more can be done, because they can't be opened for an fsync.
    /// The same applies to directories on filesystems without fsync of directories, and to files that neither
    /// the user nor the process may read.
    ///
    /// # Errors
    /// `Io`, `NoSpace`, `Quota`; the write verifier has changed when a regular file's sync failed.
    pub fn sync_metadata(&self, node: &Node) -> Result<()> {
        if !matches!(node.kind(), FileKind::Directory | FileKind::Regular) {
            return Ok(());
        }
        let file = match self.open_for_inspection(node) {
            // An unprivileged process can't sync what it may not read.
            Err(Error::Access) => return Ok(()),
            other => other?,
        };
        let sync = || {
            ::io::sync(&file, Stability::FileSync).inspect_err(|_| {
                if node.kind() == FileKind::Regular {
                    self.store.verifier.change();
                }
            })
        };
        // A leased file has one descriptor, which COMMITs and stable writes use, too.
        let synced = if node.is_leased() { node.syncs().alone(sync) } else { sync() };
        let Err(error) = synced else { return Ok(()) };
        if node.kind() == FileKind::Directory && error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) {
            return Ok(());
        }
        tracing::warn!(handle = ?node.handle(), %error, "syncing failed");
        Err(error.into())
    }
}
