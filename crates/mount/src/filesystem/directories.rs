//! OPENDIR, READDIR, READDIRPLUS and RELEASEDIR.

use client::{Access, DirEntry};
use futures_util::future::join;
use rustix::io::Errno;

use super::{Call, Filesystem, Place};
use crate::fuse::answer::{Answer, Dirent, Valid};
use crate::fuse::request::Io;
use crate::inodes::Node;
use crate::listing::{Fetched, Listing};
use crate::open::OpenDirectory;

impl Filesystem {
    pub(crate) async fn open_dir(&self, call: &Call) -> Result<Answer, Errno> {
        let (node, user) = (self.node(call)?, self.user(call));
        let known = node.state.lock().rights(&user, Access::READ, call.asked);
        let granted = match known {
            Some(granted) => granted,
            // A listing tells the kernel names.
            None => {
                join(self.ask_rights(&user, &node, Access::READ), self.ask_who_searches(&user, &node))
                    .await
                    .0?
            }
        };
        if granted != Access::READ {
            return Err(Errno::ACCESS);
        }
        let listing = tokio::sync::Mutex::new(Listing::default());
        let fh = self.directories.insert(OpenDirectory { node, user, listing });
        Ok(Answer::with_capacity(16).open(fh, 0, 0))
    }

    pub(crate) async fn read_dir(&self, io: &Io, plus: bool) -> Result<Answer, Errno> {
        let open = self.directories.get(io.fh).ok_or(Errno::BADF)?;
        if io.offset == 0 {
            self.hidden.settled(&open.node.handle).await;
        }
        let (size, mut answer) = (io.size as usize, Answer::with_capacity(io.size as usize));
        let mut listing = open.listing.lock().await;
        let mark = self.complete.mark();
        let behind = listing.behind(&open.user.session, &open.node, io.offset, plus).await;
        let (entries, page) = behind.map_err(|error| {
            if matches!(error, client::Error::Protocol { .. }) {
                tracing::warn!(directory = %self.shown(&open.node), %error, "the directory can't be listed");
            }
            self.errno_of(&open.node, &error)
        })?;
        if io.offset == 0 && page.is_whole() {
            let names = entries.iter().map(|entry| &entry.name[..]);
            self.know_all(&open.node, page.version, mark, names).await;
        }
        for entry in entries {
            // A name that no path can contain is not a name (a server may send any bytes).
            if entry.name.is_empty() || entry.name.contains(&b'/') || entry.name.contains(&0) {
                continue;
            }
            let dirent = Dirent {
                fileid: entry.fileid,
                offset: entry.cookie,
                kind: entry.attributes.map(|attributes| attributes.kind),
                name: &entry.name,
            };
            let look_up = || self.entry_of(&open.node, entry, page);
            let look_up: Option<&dyn Fn() -> _> = if plus { Some(&look_up) } else { None };
            if !answer.add_dirent(size, &dirent, look_up) {
                break;
            }
        }
        Ok(answer)
    }

    /// A directory for a person: its last name, as far as the kernel was told one.
    fn shown(&self, node: &Node) -> String {
        let name = node.state.lock().places.first().map(|(_, name)| name.clone());
        name.map_or_else(|| "/".to_owned(), |name| String::from_utf8_lossy(&name).into_owned())
    }

    /// What READDIRPLUS tells of an entry; nothing of `.` and `..`, and of what the server says nothing
    /// about.
    fn entry_of(
        &self,
        directory: &Node,
        entry: &DirEntry,
        page: &Fetched,
    ) -> Option<(u64, client::Attributes, Valid)> {
        if matches!(&entry.name[..], b"." | b"..") {
            return None;
        }
        let (handle, attributes) = (entry.handle?, entry.attributes?);
        let place = Place { directory, name: &entry.name, version: page.version };
        let (node, attributes, valid) = self.meet(&handle, &attributes, &place, page.asked);
        Some((node.number, attributes, valid))
    }

    pub(crate) async fn fsync_dir(&self, call: &Call) -> Result<Answer, Errno> {
        let (node, user) = (self.node(call)?, self.user(call));
        let synced = user.session.sync_metadata(&node.handle).await;
        synced.map_err(|error| self.errno_of(&node, &error))?;
        Ok(Answer::default())
    }

    pub(crate) fn release_dir(&self, fh: u64) -> Result<Answer, Errno> {
        self.directories.remove(fh).map(|_| Answer::default()).ok_or(Errno::BADF)
    }
}
