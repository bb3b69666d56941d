//! The filesystem: what each request means in terms of the client.
//!
//! | module | what |
//! |---|---|
//! | `names` | LOOKUP, the making and removing of names, FORGET |
//! | `places` | which names files have |
//! | `complete` | which names directories haven't |
//! | `hidden` | what happens to a file that is removed while it is open |
//! | `files` | OPEN, CREATE, RELEASE |
//! | `data` | READ, WRITE, FLUSH, FSYNC |
//! | `pages` | what the kernel caches of files that are also written directly |
//! | `space` | FALLOCATE, LSEEK, COPY_FILE_RANGE |
//! | `disks` | where calls on granted files are made that may wait for a disk |
//! | `searching` | who may search a directory: which names the kernel may keep |
//! | `shutting` | directories that not everybody may search any more |
//! | `pending` | what goes on behind requests' backs, and who waits for it |
//! | `status` | GETATTR, SETATTR, ACCESS, STATFS |
//! | `directories` | OPENDIR, READDIR, READDIRPLUS |

mod complete;
mod data;
mod directories;
mod disks;
mod files;
mod hidden;
mod names;
mod pages;
mod pending;
mod places;
mod searching;
mod shutting;
mod space;
mod status;

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

use client::{AttributeUpdate, Attributes, Found, PathConf, Session};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::sync::OnceCell;

use crate::buffers::Buffers;
use crate::fuse::answer::Valid;
use crate::fuse::device::Device;
use crate::fuse::request::Header;
use crate::inodes::{Inodes, Node};
use crate::open::{OpenDirectory, OpenFile, Opened};
use crate::report::Passing;
use crate::settings::MountOptions;
use crate::users::{User, Users};
use complete::Complete;
use disks::Disks;
use hidden::HiddenNames;
use pages::Dropping;
pub(crate) use pages::Pages;
use places::Places;
pub(crate) use searching::Searching;
use searching::is_open_by_mode;
use shutting::Shutting;

/// A mounted filesystem.
#[derive(Debug)]
pub(crate) struct Filesystem {
    pub(crate) session: Session,
    pub(crate) options: MountOptions,
    pub(crate) device: Arc<AsyncFd<Device>>,
    pub(crate) inodes: Arc<Inodes>,
    pub(crate) files: Opened<OpenFile>,
    directories: Opened<OpenDirectory>,
    users: Users,
    places: Places,
    complete: Complete,
    hidden: HiddenNames,
    shutting: Shutting,
    disks: Disks,
    dropping: Dropping,
    pub(crate) passing: Passing,
    pub(crate) buffers: Arc<Buffers>,
    path_conf: OnceCell<PathConf>,
}

/// One request under way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) header: Header,
    /// When it was read.
    pub(crate) asked: Instant,
}

/// A name in a directory, as somebody was asked for it.
#[derive(Debug, Clone, Copy)]
struct Place<'a> {
    directory: &'a Node,
    name: &'a [u8],
    /// The directory's version before the question: if it is still the same, so is what was answered.
    version: u64,
}

impl<'a> Place<'a> {
    /// A question is about to be asked.
    fn of(directory: &'a Node, name: &'a [u8]) -> Self {
        Self { directory, name, version: directory.version() }
    }
}

impl Filesystem {
    pub(crate) fn new(
        session: Session,
        options: MountOptions,
        device: Arc<AsyncFd<Device>>,
        inodes: Arc<Inodes>,
        passing: Passing,
    ) -> Self {
        Self {
            users: Users::new(session.clone()),
            session,
            options,
            device,
            inodes,
            files: Opened::default(),
            directories: Opened::default(),
            places: Places::default(),
            complete: Complete::default(),
            hidden: HiddenNames::default(),
            shutting: Shutting::default(),
            disks: Disks::default(),
            dropping: Dropping::default(),
            passing,
            buffers: Arc::default(),
            path_conf: OnceCell::new(),
        }
    }

    /// A place where something is about to be made.
    fn new_place<'a>(&self, directory: &'a Node, name: &'a [u8]) -> Place<'a> {
        self.complete.add(directory.number, name);
        Place::of(directory, name)
    }

    /// What the server says of names, asked once.
    async fn path_conf(&self) -> Option<PathConf> {
        let root = self.session.root();
        self.path_conf.get_or_try_init(|| self.session.path_conf(&root)).await.ok().copied()
    }

    /// Who asks.
    fn user(&self, call: &Call) -> Arc<User> {
        self.users.of(&call.header, call.asked)
    }

    /// The file that is asked about.
    fn node(&self, call: &Call) -> Result<Arc<Node>, Errno> {
        self.node_of(call.header.node)
    }

    fn node_of(&self, number: u64) -> Result<Arc<Node>, Errno> {
        self.inodes.get(number).ok_or(Errno::STALE)
    }

    /// How the application hears of an error.
    fn errno(&self, error: &client::Error) -> Errno {
        given_up(error.errno(), self.options.softerr)
    }

    /// As [`Filesystem::errno`], for what was asked about a file by its handle.
    fn errno_of(&self, node: &Arc<Node>, error: &client::Error) -> Errno {
        if error.status() == Some(client::Status::Stale) {
            // The kernel looks its name up again, and is not to meet the same file.
            self.places.doubt(node);
        }
        self.errno(error)
    }

    /// For how long the kernel may believe what it is told of a file; it counts as told.
    fn tell(&self, node: &Node, now: Instant) -> Duration {
        let mut state = node.state.lock();
        state.cache.tell();
        if state.has_set_id() {
            node.told_set_id.store(true, SeqCst);
        }
        if state.kernel_writers > 0 {
            // The kernel may write to it by itself, which changes times and takes set-id bits away, and by a
            // mapping without noticing.
            return Duration::ZERO;
        }
        state.cache.valid(now, &self.options.attributes)
    }

    /// A file has been changed by a call that takes set-id bits away, and the call is about to be answered.
    /// Nobody tells the kernel by that answer that they are gone, and it would run the file as its owner.
    fn forget_set_id(&self, node: &Node) {
        if node.told_set_id.load(SeqCst) && node.told_set_id.swap(false, SeqCst) {
            // Without pages this doesn't wait.
            let _ = self.device.get_ref().forget_attributes(node.number, false);
        }
    }

    /// The attributes of a file, as of `asked` or later: what a reply has brought in passing, or what the
    /// server says now.
    async fn fresh(&self, session: &Session, node: &Node, asked: Instant) -> Result<Attributes, Errno> {
        {
            let state = node.state.lock();
            if let Some(attributes) = state.cache.attributes()
                && state.cache.is_newer_than(asked)
            {
                return Ok(*attributes);
            }
        }
        let now = Instant::now();
        let attributes = session.attributes(&node.handle).await.map_err(|error| self.errno(&error))?;
        self.learn(node, attributes, now);
        Ok(attributes)
    }

    fn learn(&self, node: &Node, attributes: Attributes, asked: Instant) {
        node.read_since.store(false, Relaxed);
        let seen = AttributeUpdate { before: None, attributes: Some(attributes), asked };
        node.learn(&seen, Instant::now(), &self.options.attributes);
        let closed = {
            let mut state = node.state.lock();
            state.names_told && !is_open_by_mode(&state) && std::mem::take(&mut state.names_told)
        };
        if closed {
            self.shut(node);
        }
    }

    /// Tells the kernel of a file that was found in a directory: its node, which counts as told, and its
    /// attributes.
    async fn introduce(
        &self,
        session: &Session,
        found: &Found,
        place: &Place<'_>,
        asked: Instant,
    ) -> Result<(Arc<Node>, Attributes, Valid), Errno> {
        let attributes = match found.attributes {
            Some(attributes) => attributes,
            None => session.attributes(&found.handle).await.map_err(|error| self.errno(&error))?,
        };
        Ok(self.meet(&found.handle, &attributes, place, asked))
    }

    /// As [`Filesystem::introduce`], with the attributes at hand.
    fn meet(
        &self,
        handle: &client::Handle,
        attributes: &Attributes,
        place: &Place<'_>,
        asked: Instant,
    ) -> (Arc<Node>, Attributes, Valid) {
        let node = self.inodes.remember(handle, 1);
        self.learn(&node, *attributes, asked);
        let now = Instant::now();
        let entry = self.entry_valid(place.directory, &node, now);
        let valid = Valid { entry, attributes: self.tell(&node, now) };
        self.places.told(&node, place.directory.number, place.name, Some(place.version));
        // What is known may be newer than this reply.
        let attributes = node.attributes().unwrap_or(*attributes);
        (node, attributes, valid)
    }

    /// For how long the kernel may believe that a name in a directory is this file's.
    fn entry_valid(&self, directory: &Node, node: &Node, now: Instant) -> Duration {
        if self.is_shutting(node) { Duration::ZERO } else { self.name_valid(directory, now) }
    }

    /// For how long the kernel may believe a name in a directory: as long as the directory's attributes are
    /// believed, and not at all where it must ask who walks ([`searching`]).
    fn name_valid(&self, directory: &Node, now: Instant) -> Duration {
        let mut state = directory.state.lock();
        let open = !self.options.allow_other || self.is_open_to_all(&state, now);
        if self.options.lookup_cache == crate::LookupCache::None || !open {
            return Duration::ZERO;
        }
        let valid = state.cache.valid(now, &self.options.attributes);
        state.names_told |= self.options.allow_other && !valid.is_zero();
        valid
    }
}

/// How an application hears that a call was given up: by nfs(5), EIO with `soft` and ETIMEDOUT with
/// `softerr`, whether the server was silent or asked to be asked later (NFS3ERR_JUKEBOX) until the end. Other
/// errors are themselves.
const fn given_up(errno: Errno, softerr: bool) -> Errno {
    match errno {
        Errno::TIMEDOUT | Errno::AGAIN if softerr => Errno::TIMEDOUT,
        Errno::TIMEDOUT | Errno::AGAIN => Errno::IO,
        errno => errno,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_up_is_told_as_the_mount_option_says() {
        for (errno, soft, softerr) in [
            (Errno::TIMEDOUT, Errno::IO, Errno::TIMEDOUT),
            (Errno::AGAIN, Errno::IO, Errno::TIMEDOUT),
            (Errno::ACCESS, Errno::ACCESS, Errno::ACCESS),
        ] {
            assert_eq!((given_up(errno, false), given_up(errno, true)), (soft, softerr));
        }
    }
}
