//! Durable metadata: what a `sync` export promises for changes of names and attributes (exports(5)).

use rustix::fs::OFlags;

use super::Acting;
use crate::attributes::Kind;
use crate::error::{Error, Result};
use crate::node::Node;
use ::io::Stability;

impl Acting<'_> {
    /// Makes what was changed of a directory's entries or of a regular file's attributes durable; the caller was allowed to make the
    /// change, so nothing is checked. A new file is durable with its directory, which is all that can be done for
    /// links, devices, sockets and pipes: they can't be opened for an fsync.
    ///
    /// # Errors
    /// `Io`, `NoSpace`, `Quota`; the write verifier has changed when a regular file's sync failed.
    pub fn sync_metadata(&self, node: &Node) -> Result<()> {
        let more = match node.kind() {
            Kind::Directory => OFlags::DIRECTORY,
            Kind::Regular => OFlags::empty(),
            _ => return Ok(()),
        };
        let file = match self.reopen(node.file(), OFlags::RDONLY | more) {
            // Without privileges, what its owner may not read he may not sync either; it stays to the filesystem.
            Err(Error::Access) => return Ok(()),
            other => other?,
        };
        ::io::sync(&file, Stability::FileSync).inspect_err(|error| {
            tracing::warn!(handle = ?node.handle(), %error, "syncing failed");
            if node.kind() == Kind::Regular {
                self.store.verifier.change();
            }
        })?;
        Ok(())
    }
}
