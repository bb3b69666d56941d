//! Durable metadata: what a `sync` export promises for changes of names and attributes (exports(5)).

use rustix::io::Errno;

use super::context::UserContext;
use crate::attributes::FileKind;
use crate::error::{Error, Result};
use crate::node::Node;
use ::io::Stability;

impl UserContext<'_> {
    /// Makes what was changed of a directory's entries or of a regular file's attributes durable; the caller
    /// was allowed to make the change, so nothing is checked. A new file is durable with its directory, which
    /// is all that can be done for links, devices, sockets and pipes: they can't be opened for an fsync. The
    /// same goes for directories of filesystems that know no fsync of a directory, and for what neither the
    /// user nor the process may read.
    ///
    /// # Errors
    /// `Io`, `NoSpace`, `Quota`; the write verifier has changed when a regular file's sync failed.
    pub fn sync_metadata(&self, node: &Node) -> Result<()> {
        if !matches!(node.kind(), FileKind::Directory | FileKind::Regular) {
            return Ok(());
        }
        let file = match self.open_to_look(node) {
            // Without privileges, what its owner may not read he may not sync either; it stays to the
            // filesystem.
            Err(Error::Access) => return Ok(()),
            other => other?,
        };
        let Err(error) = ::io::sync(&file, Stability::FileSync) else { return Ok(()) };
        if node.kind() == FileKind::Directory && error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) {
            return Ok(());
        }
        tracing::warn!(handle = ?node.handle(), %error, "syncing failed");
        if node.kind() == FileKind::Regular {
            self.store.verifier.change();
        }
        Err(error.into())
    }
}
