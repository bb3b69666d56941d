//! Files that lose their name while they are open.
//!
//! An NFSv3 server doesn't know what is open. A file whose last name goes is gone for it, though a process here has it open;
//! so instead of being removed or replaced it gets a name that nobody asks for, and loses that when the last process closes
//! it: the "silly rename" of every NFS client. Which names files have is remembered here.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use parking_lot::Mutex;
use rustix::io::Errno;

use super::Filesystem;
use crate::inodes::{Hidden, Node, Place};
use crate::users::User;

/// How many names are tried.
const TRIES: u32 = 16;

/// Names of one file that are remembered.
const NAMES: usize = 64;

/// Where files are: every name that the kernel was told of and may still know. A file may have several, and is opened by
/// any of them without our being told by which.
#[derive(Debug, Default)]
pub(crate) struct Places {
    table: Mutex<HashMap<Place, Arc<Node>>>,
    serial: AtomicU32,
}

impl Places {
    /// The kernel is being told that a name is this file's.
    pub(super) fn told(&self, node: &Arc<Node>, directory: u64, name: &[u8]) {
        let place: Place = (directory, name.into());
        let mut table = self.table.lock();
        let before = table.insert(place.clone(), node.clone());
        if before.as_ref().is_some_and(|before| Arc::ptr_eq(before, node)) {
            return;
        }
        if let Some(before) = before {
            before.state.lock().places.retain(|other| *other != place);
        }
        let mut state = node.state.lock();
        if state.places.len() >= NAMES {
            let oldest = state.places.remove(0);
            table.remove(&oldest);
        }
        state.places.push(place);
    }

    /// The kernel has forgotten a file.
    pub(super) fn forgotten(&self, node: &Arc<Node>) {
        let mut table = self.table.lock();
        for place in std::mem::take(&mut node.state.lock().places) {
            if table.get(&place).is_some_and(|other| Arc::ptr_eq(other, node)) {
                table.remove(&place);
            }
        }
    }

    /// The open file of this name.
    fn at(&self, directory: u64, name: &[u8]) -> Option<Arc<Node>> {
        let node = self.table.lock().get(&(directory, Box::from(name))).cloned()?;
        let is_open = node.state.lock().opens > 0;
        is_open.then_some(node)
    }

    /// A name is gone.
    pub(super) fn removed(&self, directory: u64, name: &[u8]) -> Option<Arc<Node>> {
        let place = (directory, Box::from(name));
        let node = self.table.lock().remove(&place)?;
        let mut state = node.state.lock();
        state.places.retain(|other| *other != place);
        // NFSv3's replies to REMOVE and RENAME tell of the directories only.
        state.cache.distrust();
        drop(state);
        Some(node)
    }

    /// A name is another one now.
    pub(super) fn moved(&self, from: (u64, &[u8]), to: (u64, &[u8])) {
        self.removed(to.0, to.1);
        if let Some(node) = self.removed(from.0, from.1) {
            self.told(&node, to.0, to.1);
        }
    }

    /// The names in a directory.
    pub(super) fn names_in(&self, directory: u64) -> Vec<Box<[u8]>> {
        let table = self.table.lock();
        table.keys().filter(|(at, _)| *at == directory).map(|(_, name)| name.clone()).collect()
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
        node.state.lock().cache.distrust();
        if let Err(error) = removed
            && error.status() != Some(client::Status::NoEntry)
        {
            tracing::warn!(name = %String::from_utf8_lossy(&hidden.name), %error, "a hidden file is left behind");
        }
    }
}
