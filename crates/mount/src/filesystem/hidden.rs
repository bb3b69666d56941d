//! Files that lose their name while they are open.
//!
//! An NFSv3 server doesn't know what is open. A file whose last name goes is gone for it, though a process here has it open;
//! so instead of being removed or replaced it gets a name that nobody asks for, and loses that when the last process closes
//! it: the "silly rename" of every NFS client. Which names open files have is remembered here.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use parking_lot::Mutex;
use rustix::io::Errno;

use super::Filesystem;
use crate::inodes::{Hidden, Node};
use crate::users::User;

/// How many names are tried.
const TRIES: u32 = 16;

/// A directory's node and a name in it.
type Place = (u64, Box<[u8]>);

/// Where open files are.
#[derive(Debug, Default)]
pub(crate) struct Places {
    table: Mutex<HashMap<Place, Arc<Node>>>,
    serial: AtomicU32,
}

impl Places {
    /// A file has been opened.
    pub(super) fn opened(&self, node: &Arc<Node>) {
        let place = node.state.lock().place.clone();
        if let Some(place) = place {
            self.table.lock().insert(place, node.clone());
        }
    }

    /// A file was closed for the last time.
    pub(super) fn closed(&self, node: &Arc<Node>) {
        let place = node.state.lock().place.clone();
        if let Some(place) = place {
            let mut table = self.table.lock();
            if table.get(&place).is_some_and(|other| Arc::ptr_eq(other, node)) {
                table.remove(&place);
            }
        }
    }

    /// The open file of this name.
    fn at(&self, directory: u64, name: &[u8]) -> Option<Arc<Node>> {
        let table = self.table.lock();
        if table.is_empty() {
            return None;
        }
        table.get(&(directory, Box::from(name))).filter(|node| node.state.lock().opens > 0).cloned()
    }

    /// A name is another one now.
    pub(super) fn moved(&self, from: (u64, &[u8]), to: (u64, &[u8])) {
        let mut table = self.table.lock();
        if table.is_empty() {
            return;
        }
        if let Some(node) = table.remove(&(from.0, Box::from(from.1))) {
            let place = (to.0, Box::from(to.1));
            node.state.lock().place = Some(place.clone());
            table.insert(place, node);
        }
    }

    /// A name that nobody uses.
    fn invent(&self, node: &Node) -> Vec<u8> {
        let serial = self.serial.fetch_add(1, Relaxed);
        let file = node.attributes().map_or(0, |attributes| attributes.fileid);
        format!(".nfs{file:016x}{serial:08x}").into_bytes()
    }
}

impl Filesystem {
    /// Gives an open file that is about to lose its name another one. False if no such file is open.
    pub(super) async fn hide(
        &self,
        directory: &Arc<Node>,
        name: &[u8],
        user: &Arc<User>,
    ) -> Result<bool, Errno> {
        let Some(node) = self.places.at(directory.number, name) else { return Ok(false) };
        if node.state.lock().hidden.is_some() {
            // It has its other name already; this one is another file's.
            return Ok(false);
        }
        for _ in 0..TRIES {
            let other = self.places.invent(&node);
            match user.session.lookup(&directory.handle, &other).await {
                Err(error) if error.status() == Some(client::Status::NoEntry) => {}
                Ok(_) => continue,
                Err(error) => return Err(self.errno(&error)),
            }
            let renamed = user.session.rename(&directory.handle, name, &directory.handle, &other).await;
            renamed.map_err(|error| self.errno(&error))?;
            self.places.moved((directory.number, name), (directory.number, &other));
            let hidden = Hidden { directory: directory.handle, name: other, user: user.clone() };
            let closed = {
                let mut state = node.state.lock();
                state.hidden = Some(hidden);
                state.opens == 0
            };
            if closed {
                // The last process was quicker.
                self.remove_hidden(&node).await;
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
        let Some(node) = self.places.at(directory.number, target) else { return Ok(None) };
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
        match session.rename(&hidden.directory, &hidden.name, &directory.handle, name).await {
            Ok(()) => self.places.moved((directory.number, &hidden.name), (directory.number, name)),
            Err(error) => {
                tracing::warn!(name = %String::from_utf8_lossy(&hidden.name), %error, "a file keeps its hidden name");
            }
        }
    }

    /// The last process has closed a hidden file: it goes.
    pub(super) async fn remove_hidden(&self, node: &Arc<Node>) {
        let Some(hidden) = node.state.lock().hidden.take() else { return };
        let removed = hidden.user.session.remove(&hidden.directory, &hidden.name).await;
        if let Err(error) = removed
            && error.status() != Some(client::Status::NoEntry)
        {
            tracing::warn!(name = %String::from_utf8_lossy(&hidden.name), %error, "a hidden file is left behind");
        }
    }
}
