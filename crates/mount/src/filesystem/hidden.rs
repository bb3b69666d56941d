//! Files that lose their name while they are open.
//!
//! An NFSv3 server doesn't know what is open. A file whose last name goes is gone for it, though a process
//! here has it open; so instead of being removed or replaced it gets a name that nobody asks for, and loses
//! that when the last process closes it: the "silly rename" of every NFS client.
//!
//! close(2) doesn't wait for that, for the kernel tells of it behind the process's back; but whoever removes
//! the directory or lists it does. Who was told that a file is closed finds its hidden name gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use client::Handle;
use rustix::io::Errno;

use super::Filesystem;
use super::pending::{Affair, Pending};
use crate::inodes::{Hidden, Node};
use crate::users::User;

/// How many names are tried.
const TRIES: u32 = 16;

/// Numbers for hidden names, and the removals of those that are under way.
#[derive(Debug, Default)]
pub(crate) struct HiddenNames {
    serial: AtomicU32,
    /// By directory.
    going: Arc<Pending<Handle>>,
}

impl HiddenNames {
    /// A name that nobody uses.
    fn invent(&self, node: &Node) -> Vec<u8> {
        let serial = self.serial.fetch_add(1, Relaxed);
        let file = node.attributes().map_or(0, |attributes| attributes.fileid);
        format!(".nfs{file:016x}{serial:08x}").into_bytes()
    }

    /// The last process has closed a file: its hidden name is going.
    pub(super) fn begin(&self, hidden: Hidden) -> Going {
        Going { _affair: self.going.begin(hidden.directory), hidden }
    }

    /// Waits until every hidden name of a directory is gone whose file is closed by now.
    pub(super) async fn settled(&self, directory: &Handle) {
        self.going.settled(directory).await;
    }
}

/// A hidden name whose file is closed. Who waits for it waits until this is dropped.
#[derive(Debug)]
pub(crate) struct Going {
    hidden: Hidden,
    _affair: Affair<Handle>,
}

impl Filesystem {
    /// The open file of this name.
    fn open_at(&self, directory: u64, name: &[u8]) -> Option<Arc<Node>> {
        let node = self.places.at(directory, name)?;
        let is_open = node.state.lock().opens > 0;
        is_open.then_some(node)
    }

    /// Gives an open file that is about to lose its name another one. False if no such file is open.
    pub(super) async fn hide(
        &self,
        directory: &Arc<Node>,
        name: &[u8],
        user: &Arc<User>,
    ) -> Result<bool, Errno> {
        let Some(node) = self.open_at(directory.number, name) else { return Ok(false) };
        if node.state.lock().hidden.is_some() {
            // It has its other name already; this one is another file's.
            return Ok(false);
        }
        for _ in 0..TRIES {
            let other = self.hidden.invent(&node);
            match user.session.lookup(&directory.handle, &other).await {
                Err(error) if error.status() == Some(client::Status::NoEntry) => {}
                Ok(_) => continue,
                Err(error) => return Err(self.errno(&error)),
            }
            self.complete.add(directory.number, &other);
            let renamed = user.session.rename(&directory.handle, name, &directory.handle, &other).await;
            renamed.map_err(|error| self.errno(&error))?;
            self.places.moved((directory.number, name), (directory.number, &other), None);
            let hidden = Hidden { directory: directory.handle, name: other, user: user.clone() };
            let closed = {
                let mut state = node.state.lock();
                if state.opens == 0 {
                    Some(hidden)
                } else {
                    state.hidden = Some(hidden);
                    None
                }
            };
            if let Some(hidden) = closed {
                // The last process was quicker.
                self.remove_hidden(&node, self.hidden.begin(hidden)).await;
            }
            return Ok(true);
        }
        Err(Errno::BUSY)
    }

    /// As [`Filesystem::hide`], for a file that is about to be replaced; returns it.
    pub(super) async fn hide_target(
        &self,
        from: &Arc<Node>,
        name: &[u8],
        directory: &Arc<Node>,
        target: &[u8],
        user: &Arc<User>,
    ) -> Result<Option<Arc<Node>>, Errno> {
        let Some(node) = self.open_at(directory.number, target) else { return Ok(None) };
        if Self::is_directory(&node) {
            return Ok(None);
        }
        // Two names of one file: rename(2) then does nothing at all.
        let moving = user.session.lookup(&from.handle, name).await.map_err(|error| self.errno(&error))?;
        if moving.handle == node.handle {
            return Ok(None);
        }
        // What can't be replaced by that mustn't lose its name for it.
        if moving.attributes.is_some_and(|attributes| attributes.kind == client::FileKind::Directory) {
            return Ok(None);
        }
        Ok(self.hide(directory, target, user).await?.then_some(node))
    }

    /// The replacement failed: the file gets its name back.
    pub(super) async fn unhide(&self, node: &Arc<Node>, directory: &Arc<Node>, name: &[u8]) {
        let Some(hidden) = node.state.lock().hidden.take() else { return };
        let session = &hidden.user.session;
        self.complete.add(directory.number, name);
        match session.rename(&hidden.directory, &hidden.name, &directory.handle, name).await {
            Ok(()) => self.places.moved((directory.number, &hidden.name), (directory.number, name), None),
            Err(error) => {
                tracing::warn!(name = %String::from_utf8_lossy(&hidden.name), %error, "a file keeps its hidden name");
            }
        }
    }

    /// Removes what the last process has closed.
    pub(super) async fn remove_hidden(&self, node: &Node, going: Going) {
        let Hidden { directory, name, user } = &going.hidden;
        let removed = user.session.remove(directory, name).await;
        node.state.lock().cache.distrust();
        if let Err(error) = removed
            && error.status() != Some(client::Status::NoEntry)
        {
            tracing::warn!(name = %String::from_utf8_lossy(name), %error, "a hidden file is left behind");
        }
    }

    /// Waits until the hidden names in a directory are gone that nobody has open: it is about to be removed.
    pub(super) async fn settle_hidden(&self, directory: u64, name: &[u8]) {
        if let Some(node) = self.places.at(directory, name) {
            self.hidden.settled(&node.handle).await;
        }
    }
}
