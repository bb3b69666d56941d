//! Changes of the names and attributes of leased files.
//!
//! A local process can change them without breaking the lease, and the kernel reports it afterwards.
//! fanotify(7) also reports whether this process made the change. A change that this process makes for the
//! lease's own client must not end the lease, so it is announced first ([`FileChanges::announce`]). Reported
//! are:
//! - every change by another process;
//! - an unannounced change by this process, if the file's name, mode, owner or number of links differs from
//!   before. It was made for another client, whose request was admitted just before the lease was taken. Time
//!   stamps that the server sets by itself don't count.
//!
//! Where fanotify isn't available (a container's seccomp rules, a filesystem without handles), inotify(7)
//! reports changes without their origin. There the client's own changes end its lease, too.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;

use ahash::HashMap;
use parking_lot::Mutex;
use rustix::fs::{fstat, inotify};
use sys::fanotify::{Fanotify, FanotifyEvent, WatchedFile};

use crate::error::Result;
use crate::handle::FileHandle;
use crate::node::Node;

/// A watched file, as the notification mechanism identifies it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Watch {
    /// By fanotify, which reports the origin of changes.
    Fanotify(WatchedFile),
    /// By inotify, which doesn't.
    Inotify(i32),
}

/// A file's mode, owner, group and number of links.
type WatchedStatus = (u32, u32, u32, u64);

fn status(node: &Node) -> Option<WatchedStatus> {
    let found = fstat(node.file()).ok()?;
    Some((found.st_mode, found.st_uid, found.st_gid, found.st_nlink as u64))
}

/// A watched file. One entry, however many leases there are on it.
#[derive(Debug)]
struct Watched {
    node: Arc<Node>,
    status: Option<WatchedStatus>,
    leases: usize,
    /// Number of announced changes in progress.
    announced: usize,
    /// An announced change is complete, but its event may not have been read yet.
    made: bool,
}

/// At most as many entries as there are leases.
#[derive(Debug, Default)]
struct Files {
    watched: HashMap<Watch, Watched>,
    by_handle: HashMap<FileHandle, Watch>,
    /// Those with [`Watched::made`].
    made: Vec<Watch>,
}

/// The watched files.
#[derive(Debug)]
pub(crate) struct FileChanges {
    changes: Option<Fanotify>,
    inotify: Arc<OwnedFd>,
    files: Mutex<Files>,
}

impl FileChanges {
    /// Watches no files yet.
    ///
    /// # Errors
    /// When not even inotify is available.
    pub fn new() -> std::io::Result<Self> {
        let changes = Fanotify::new().inspect_err(
            |error| tracing::debug!(%error, "no fanotify: a client's own changes recall its delegations"),
        );
        let inotify = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        Ok(Self { changes: changes.ok(), inotify: Arc::new(inotify), files: Mutex::default() })
    }

    /// Descriptors that are readable when [`FileChanges::changed`] has something to report.
    pub fn events(&self) -> Vec<Arc<OwnedFd>> {
        let fanotify = self.changes.as_ref().map(Fanotify::events);
        [Arc::clone(&self.inotify)].into_iter().chain(fanotify).collect()
    }

    /// Watches a file.
    ///
    /// # Errors
    /// The kernel's.
    pub fn watch(&self, node: &Arc<Node>) -> Result<Watch> {
        let mut files = self.files.lock();
        let watched_file = self.changes.as_ref().and_then(|changes| changes.watch(node.file()).ok());
        let watch = if let Some(file_id) = watched_file {
            Watch::Fanotify(file_id)
        } else {
            let path = format!("/proc/self/fd/{}", node.file().as_raw_fd());
            let flags = inotify::WatchFlags::ATTRIB | inotify::WatchFlags::MOVE_SELF;
            Watch::Inotify(inotify::add_watch(&self.inotify, path, flags)?)
        };
        let fresh = || Watched { node: Arc::clone(node), status: None, leases: 0, announced: 0, made: false };
        let entry = files.watched.entry(watch.clone()).or_insert_with(fresh);
        entry.leases += 1;
        entry.status = status(node);
        files.by_handle.insert(*node.handle(), watch.clone());
        Ok(watch)
    }

    /// Ends the watch for one lease.
    pub fn unwatch(&self, watch: &Watch) {
        let mut files = self.files.lock();
        let Some(entry) = files.watched.get_mut(watch) else { return };
        entry.leases -= 1;
        if entry.leases > 0 {
            return;
        }
        if let Some(Watched { node, .. }) = files.watched.remove(watch) {
            files.by_handle.remove(node.handle());
            // The kernel has already removed the watch of a deleted file.
            match (watch, &self.changes) {
                (Watch::Fanotify(_), Some(changes)) => drop(changes.unwatch(node.file())),
                (Watch::Fanotify(_), None) => {}
                (Watch::Inotify(number), _) => drop(inotify::remove_watch(&self.inotify, *number)),
            }
        }
    }

    /// Announces that the server is about to change a file for the client that has the lease. `None` if the
    /// file isn't watched. [`FileChanges::is_made`] ends the announcement.
    pub fn announce(&self, handle: &FileHandle) -> Option<Watch> {
        let mut files = self.files.lock();
        let watch = files.by_handle.get(handle)?.clone();
        files.watched.get_mut(&watch)?.announced += 1;
        Some(watch)
    }

    /// Ends an announcement: the change is complete.
    pub fn is_made(&self, watch: &Watch) {
        let mut files = self.files.lock();
        let Some(entry) = files.watched.get_mut(watch) else { return };
        entry.announced = entry.announced.saturating_sub(1);
        if matches!(watch, Watch::Fanotify(_)) {
            entry.status = status(&entry.node);
            if !std::mem::replace(&mut entry.made, true) {
                files.made.push(watch.clone());
            }
        }
    }

    /// The files that others have changed since the last call.
    pub fn changed(&self) -> Vec<FileHandle> {
        let mut found = Vec::new();
        let mut files = self.files.lock();
        // The events of these changes are already queued, and are read below.
        let made = std::mem::take(&mut files.made);
        if let Some(changes) = &self.changes {
            let read = changes.read(|change| match change {
                FanotifyEvent::Overflow => found.extend(files.by_handle.keys().copied()),
                FanotifyEvent::Changed { file_id, renamed, own } => {
                    let Some(entry) = files.watched.get(&Watch::Fanotify(file_id)) else { return };
                    let is_announced = entry.announced > 0 || entry.made;
                    let is_otherwise = || renamed || status(&entry.node) != entry.status;
                    if !own || !is_announced && is_otherwise() {
                        found.push(*entry.node.handle());
                    }
                }
            });
            if let Err(error) = read {
                tracing::warn!(%error, "changes of delegated files can't be read");
            }
        }
        for watch in made {
            let Some(entry) = files.watched.get_mut(&watch) else { continue };
            if entry.announced == 0 {
                entry.made = false;
            } else {
                files.made.push(watch);
            }
        }
        self.changed_by_inotify(&files, &mut found);
        found
    }

    /// Adds the files that inotify reports and that look different from before or were renamed.
    fn changed_by_inotify(&self, files: &Files, found: &mut Vec<FileHandle>) {
        let mut buffer = [const { std::mem::MaybeUninit::uninit() }; 4096];
        let mut events = inotify::Reader::new(&*self.inotify, &mut buffer);
        while let Ok(event) = events.next() {
            let moved = event.events().contains(inotify::ReadFlags::MOVE_SELF);
            let is_changed = |entry: &&Watched| moved || status(&entry.node) != entry.status;
            let handle = |entry: &Watched| *entry.node.handle();
            if event.events().contains(inotify::ReadFlags::QUEUE_OVERFLOW) {
                let by_inotify = files.watched.iter().filter(|(watch, _)| matches!(watch, Watch::Inotify(_)));
                found.extend(by_inotify.map(|(_, entry)| entry).filter(is_changed).map(handle));
            } else {
                let of = files.watched.get(&Watch::Inotify(event.wd()));
                found.extend(of.filter(is_changed).map(handle));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Identity;

    #[test]
    fn only_announced_changes_of_this_process_are_not_reported() {
        let dir = tempfile::tempdir_in("/dev/shm").expect("a scratch directory");
        let (f, g) = (dir.path().join("f"), dir.path().join("g"));
        std::fs::write(&f, b"").expect("writes");
        let store = crate::testing::store(dir.path());
        let context = store.as_user(&Identity { uid: 0, gid: 0, groups: vec![] }).expect("acts");
        let root = context.node(store.root().as_bytes()).expect("there");
        let node = context.lookup(&root, b"f").expect("there");
        let changes = FileChanges::new().expect("there is room");
        if changes.changes.is_none() {
            // Forbidden by a container's rules.
            return;
        }
        let watch = changes.watch(&node).expect("may be watched");
        let rename = |from, to| std::fs::rename(from, to).expect("renames");
        let elsewhere = |program, arguments: &[&std::path::Path]| {
            assert!(std::process::Command::new(program).args(arguments).status().expect("runs").success());
        };
        let (told, nothing) = (vec![*node.handle()], vec![]);
        rename(&f, &g);
        assert_eq!(changes.changed(), told, "for whom isn't known");
        let announced = changes.announce(node.handle()).expect("it is watched");
        rename(&g, &f);
        assert_eq!(changes.changed(), nothing, "while it is made");
        rename(&f, &g);
        changes.is_made(&announced);
        assert_eq!(changes.changed(), nothing, "when it has been made");
        rename(&g, &f);
        assert_eq!(changes.changed(), told, "nor longer");
        let announced = changes.announce(node.handle()).expect("it is watched");
        rename(&f, &g);
        elsewhere("mv", &[&g, &f]);
        rename(&f, &g);
        changes.is_made(&announced);
        assert_eq!(changes.changed(), told, "another process, in the middle of it");
        elsewhere("touch", &[&g]);
        assert_eq!(changes.changed(), told, "times, too");
        context.touch(&node).expect("touches");
        assert_eq!(changes.changed(), nothing, "but not the server's own");
        changes.unwatch(&watch);
        rename(&g, &f);
        assert_eq!((changes.changed(), changes.announce(node.handle())), (nothing, None));
    }
}
