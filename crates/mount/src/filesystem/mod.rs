//! The filesystem: what each request means in terms of the client.
//!
//! [`Filesystem`] is composed of parts that each keep an invariant of their own; the handlers of requests use
//! them and hold no state.
//!
//! | part | contents |
//! |---|---|
//! | [`InodeTable`] | the files that the kernel knows |
//! | [`OpenTable`] | the open files and directories |
//! | `path_cache` | the names that files have |
//! | `negative_names` | directories whose names are all known |
//! | `listed_names` | names and attributes that were listed on behalf of LOOKUPs and GETATTRs |
//! | `silly_rename` | hidden names of files that were removed while open |
//! | `kernel_cache`, `search_revocation` | what the kernel caches, and its invalidation |
//! | `attributes_later` | attributes of new files that the server gets later |
//! | `content_at_open` | small files that their opens have read |
//! | `blocking` | calls on granted files that may wait for a disk |
//! | `in_flight` | operations that outlive their request |
//!
//! | handlers | requests |
//! |---|---|
//! | `dispatch` | from a decoded request to its handler |
//! | `names` | LOOKUP, FORGET, READLINK; making, renaming and removing names |
//! | `listed_requests` | LOOKUPs and GETATTRs that a listing of the directory answers |
//! | `open` | OPEN, CREATE, RELEASE |
//! | `data` | READ, WRITE, FLUSH, FSYNC |
//! | `space` | FALLOCATE, LSEEK, COPY_FILE_RANGE |
//! | `locks` | GETLK, SETLK, SETLKW |
//! | `attributes` | GETATTR, STATX, SETATTR, ACCESS, STATFS |
//! | `xattrs`, `acls` | SETXATTR, GETXATTR, LISTXATTR, REMOVEXATTR |
//! | `directories` | OPENDIR, READDIR, READDIRPLUS, RELEASEDIR, FSYNCDIR |
//! | `search_permission` | access control lists, on behalf of LOOKUP and OPENDIR |

mod acls;
mod attributes;
mod attributes_later;
mod blocking;
mod content_at_open;
mod data;
mod directories;
mod dispatch;
mod in_flight;
mod kernel_cache;
mod listed_names;
mod listed_requests;
mod locks;
mod names;
mod negative_names;
mod open;
mod path_cache;
mod search_permission;
mod search_revocation;
mod silly_rename;
mod space;
mod xattrs;

use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use client::{AttributeUpdate, Attributes, Found, PathConf, Session};
use rustix::io::Errno;
use tokio::sync::{OnceCell, Semaphore};

use crate::buffers::Buffers;
use crate::fuse::device::Device;
use crate::fuse::reply::{CacheTimes, FuseReply, ReplyEntries};
use crate::fuse::request::Header;
use crate::inode::{Inode, InodeNumbers, InodeTable};
use crate::open_table::{OpenDirectory, OpenFile, OpenTable};
use crate::passthrough::Passthrough;
use crate::queues::Queues;
use crate::settings::MountOptions;
use crate::users::{User, Users};
use crate::waiting::GrantedLocks;
use acls::WithoutAcls;
use blocking::BlockingCalls;
pub(crate) use content_at_open::ContentAtOpen;
use content_at_open::ContentsAtOpen;
use in_flight::InFlight;
pub(crate) use in_flight::InFlightGuard;
use kernel_cache::KernelCache;
pub(crate) use listed_names::{ListedNames, ListingMark};
pub(crate) use locks::RemoteLocks;
use negative_names::{NegativeNames, RequestingThread};
pub(crate) use open::ClosingFile;
use path_cache::PathCache;
use silly_rename::HiddenNames;

/// The requests that wait for locks at once. A further one fails with ENOLCK.
const MAX_LOCK_WAITS: usize = 8192;

/// A mounted filesystem.
#[derive(Debug)]
pub(crate) struct Filesystem {
    session: Session,
    options: MountOptions,
    users: Users,
    inodes: Arc<InodeTable>,
    numbers: InodeNumbers,
    files: OpenTable<OpenFile>,
    directories: OpenTable<OpenDirectory>,
    paths: PathCache,
    negative_names: NegativeNames,
    listed_names: ListedNames,
    hidden: HiddenNames,
    /// The closes under way that may release locks, by node ID.
    closes: Arc<InFlight<u64>>,
    contents: ContentsAtOpen,
    kernel: KernelCache,
    blocking: BlockingCalls,
    without_acls: WithoutAcls,
    passthrough: Passthrough,
    buffers: Arc<Buffers>,
    path_conf: OnceCell<PathConf>,
    /// The queues that requests come through; `None`: /dev/fuse.
    queues: OnceLock<Weak<Queues>>,
    remote_locks: RemoteLocks,
    /// Bounds the requests that wait for locks.
    lock_waits: Semaphore,
    granted_locks: Arc<GrantedLocks>,
}

/// The caller and the time of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestContext {
    pub(crate) header: Header,
    /// When the request was read.
    pub(crate) received: Instant,
}

/// The result of a request that succeeded.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) reply: FuseReply,
    /// What the reply opens. If the kernel doesn't take the reply, [`Filesystem::undo_open`] closes it.
    pub(crate) opened: Option<UndeliveredOpen>,
    /// The nodes of which the reply gives references to the kernel, besides those of `opened`. If the kernel
    /// doesn't take the reply, [`Filesystem::return_references`] returns them.
    pub(crate) entries: ReplyEntries,
}

/// An open that the kernel isn't told of yet, by its file handle.
#[derive(Debug, Clone, Copy)]
pub(crate) enum UndeliveredOpen {
    File(u64),
    /// A file that was looked up by the same request.
    NewFile {
        node: u64,
        fh: u64,
    },
    Directory(u64),
}

impl From<FuseReply> for Outcome {
    fn from(reply: FuseReply) -> Self {
        Self { reply, opened: None, entries: ReplyEntries::None }
    }
}

/// A name in a directory that the server is asked about.
#[derive(Debug, Clone, Copy)]
struct NameQuery<'a> {
    directory: &'a Inode,
    name: &'a [u8],
    /// The directory's version before the server was asked. While it is the same, the answer holds.
    version: u64,
}

impl<'a> NameQuery<'a> {
    fn new(directory: &'a Inode, name: &'a [u8]) -> Self {
        Self { directory, name, version: directory.version() }
    }
}

/// What a reply with an entry tells the kernel.
struct FileEntry {
    inode: Arc<Inode>,
    /// With the inode number in place of the file id.
    attributes: Attributes,
    times: CacheTimes,
}

impl FileEntry {
    fn reply(&self) -> FuseReply {
        FuseReply::with_capacity(128).entry(self.inode.number, &self.attributes, self.times)
    }
}

impl Filesystem {
    pub(crate) fn new(
        session: Session,
        options: MountOptions,
        device: Arc<Device>,
        inodes: Arc<InodeTable>,
        passthrough: Passthrough,
        remote_locks: RemoteLocks,
        numbers: InodeNumbers,
    ) -> Self {
        Self {
            users: Users::new(session.clone()),
            session,
            options,
            inodes,
            numbers,
            files: OpenTable::default(),
            directories: OpenTable::default(),
            paths: PathCache::default(),
            negative_names: NegativeNames::default(),
            listed_names: ListedNames::default(),
            hidden: HiddenNames::default(),
            closes: Arc::default(),
            contents: ContentsAtOpen::default(),
            kernel: KernelCache::new(device),
            blocking: BlockingCalls::default(),
            without_acls: WithoutAcls::default(),
            passthrough,
            buffers: Arc::default(),
            path_conf: OnceCell::new(),
            queues: OnceLock::new(),
            remote_locks,
            lock_waits: Semaphore::new(MAX_LOCK_WAITS),
            granted_locks: Arc::default(),
        }
    }

    /// Any file may have been changed elsewhere, although its attributes are still valid: names and
    /// attributes are asked for again, and then data that has changed is read again.
    ///
    /// # Errors
    /// `EINVAL`: the kernel goes on using its names as long as they are valid (before Linux 6.16).
    pub(crate) fn distrust_caches(&self) -> rustix::io::Result<()> {
        for inode in self.inodes.all() {
            inode.lock().attributes.distrust(Instant::now());
            self.kernel.invalidate_attributes(&inode);
        }
        self.kernel.expire_all_names()
    }

    /// The session with the server, as the user who mounted.
    pub(crate) const fn session(&self) -> &Session {
        &self.session
    }

    pub(crate) const fn options(&self) -> &MountOptions {
        &self.options
    }

    pub(crate) const fn device(&self) -> &Arc<Device> {
        self.kernel.device()
    }

    /// The buffers of large requests and replies.
    pub(crate) const fn buffers(&self) -> &Arc<Buffers> {
        &self.buffers
    }

    pub(crate) const fn granted_locks(&self) -> &Arc<GrantedLocks> {
        &self.granted_locks
    }

    pub(crate) const fn passthrough(&self) -> &Passthrough {
        &self.passthrough
    }

    /// Requests come through queues from now on.
    pub(crate) fn set_queues(&self, queues: &Arc<Queues>) {
        let _ = self.queues.set(Arc::downgrade(queues));
        // All of them may come through one queue.
        self.lock_waits.forget_permits(MAX_LOCK_WAITS.saturating_sub(queues.max_entries() / 2));
    }

    pub(crate) fn has_queues(&self) -> bool {
        self.queues.get().is_some()
    }

    /// Waits until every RELEASE that the kernel has sent before this call has taken effect. By /dev/fuse
    /// they have, because it is read in order.
    async fn receive_releases(&self) {
        if let Some(queues) = self.queues.get().and_then(Weak::upgrade) {
            queues.drain().await;
        }
    }

    /// The number of open files, and of inodes that the kernel knows.
    pub(crate) fn count(&self) -> (usize, usize) {
        (self.files.len(), self.inodes.len())
    }

    /// Prepares for the server to make a name.
    fn begin_create<'a>(
        &self,
        request: &RequestContext,
        directory: &'a Inode,
        name: &'a [u8],
    ) -> NameQuery<'a> {
        self.negative_names.add(Some(RequestingThread::of(request)), directory.number, name);
        NameQuery::new(directory, name)
    }

    /// The server's limits for names (PATHCONF), asked once.
    async fn path_conf(&self) -> Option<PathConf> {
        let root = self.session.root();
        self.path_conf.get_or_try_init(|| self.session.path_conf(&root)).await.ok().copied()
    }

    fn user(&self, request: &RequestContext) -> Arc<User> {
        self.users.of(&request.header, request.received)
    }

    /// The inode that a request names in its header.
    fn inode(&self, request: &RequestContext) -> Result<Arc<Inode>, Errno> {
        self.inode_of(request.header.node)
    }

    fn inode_of(&self, number: u64) -> Result<Arc<Inode>, Errno> {
        self.inodes.get(number).ok_or(Errno::STALE)
    }

    /// The error that the application gets.
    fn errno(&self, error: &client::Error) -> Errno {
        map_timeout(Errno::from_raw_os_error(error.errno()), self.options.softerr)
    }

    /// As [`Filesystem::errno`], for a call that used the inode's handle.
    fn errno_for(&self, inode: &Arc<Inode>, error: &client::Error) -> Errno {
        if error.status() == Some(client::Status::Stale) {
            // The kernel will look the file's name up again, and must not get the same inode.
            self.paths.invalidate(inode);
        }
        self.errno(error)
    }

    /// For how long the kernel may cache the attributes of a file, which it is being told.
    fn report_attributes(&self, inode: &Inode, now: Instant) -> Duration {
        let mut state = inode.lock();
        state.attributes.report();
        if state.has_set_id() {
            inode.report_set_id();
        }
        if state.opens.has_kernel_writer() {
            // The kernel may write by itself, through a mapping without noticing. That changes times and
            // clears set-id bits.
            return Duration::ZERO;
        }
        state.attributes.valid(now, &self.options.attributes)
    }

    /// The attributes of a file as of `asked` or later: from a reply since then, or by a GETATTR.
    async fn current_attributes(
        &self,
        session: &Session,
        inode: &Inode,
        asked: Instant,
    ) -> Result<Attributes, Errno> {
        {
            let state = inode.lock();
            if let Some(attributes) = state.attributes.get()
                && state.attributes.is_newer_than(asked)
            {
                // The access time, too.
                inode.set_atime_stale(false);
                return Ok(*attributes);
            }
        }
        let now = Instant::now();
        if let Some(attributes) = Self::delegated_attributes(session, inode) {
            let update = AttributeUpdate { before: None, attributes: Some(attributes), asked: now };
            inode.update(&update, now, &self.options.attributes);
            return Ok(attributes);
        }
        let attributes = session.attributes(&inode.handle).await.map_err(|error| self.errno(&error))?;
        self.update_attributes(inode, attributes, now);
        Ok(attributes)
    }

    /// Enters attributes that were requested at `asked`.
    fn update_attributes(&self, inode: &Inode, attributes: Attributes, asked: Instant) {
        self.update_received_attributes(inode, attributes, (asked, Instant::now()));
    }

    /// As [`Filesystem::update_attributes`], for attributes that were requested and received at these times.
    fn update_received_attributes(
        &self,
        inode: &Inode,
        attributes: Attributes,
        (asked, received): (Instant, Instant),
    ) {
        inode.set_atime_stale(false);
        let update = AttributeUpdate { before: None, attributes: Some(attributes), asked };
        inode.update(&update, received, &self.options.attributes);
        let revoked = {
            let mut state = inode.lock();
            !state.is_searchable_by_mode() && state.search.revoke()
        };
        if revoked {
            self.revoke_names(inode);
        }
    }

    /// The entry of a file that the server has found or made.
    async fn entry_of_found(
        &self,
        session: &Session,
        found: &Found,
        query: &NameQuery<'_>,
        asked: Instant,
    ) -> Result<FileEntry, Errno> {
        let attributes = match found.attributes {
            Some(attributes) => attributes,
            None => session.attributes(&found.handle).await.map_err(|error| self.errno(&error))?,
        };
        Ok(self.entry(&found.handle, &attributes, query, asked))
    }

    /// As [`Filesystem::entry_of_found`], with known attributes. Counts a reference to the inode.
    fn entry(
        &self,
        handle: &client::Handle,
        attributes: &Attributes,
        query: &NameQuery<'_>,
        asked: Instant,
    ) -> FileEntry {
        let inode = self.inodes.reference(handle);
        inode.handle.moved(&query.directory.handle, query.name);
        let now = Instant::now();
        self.update_received_attributes(&inode, *attributes, (asked, now));
        let times = self.cache_times(query.directory, &inode, now);
        let place = (query.directory.number, query.name);
        self.paths.insert(&inode, place, Some(query.version), now + times.entry);
        // Asked first: the replies to the WRITEs that end now are in the cache then.
        let unwritten_end = self.session.unwritten_end(handle).unwrap_or(0);
        // The cache may be newer than this reply.
        let mut attributes = inode.attributes().unwrap_or(*attributes);
        attributes.size = attributes.size.max(unwritten_end);
        self.file_entry(inode, attributes, times)
    }

    /// The entry of a file with these attributes from the server.
    fn file_entry(&self, inode: Arc<Inode>, attributes: Attributes, times: CacheTimes) -> FileEntry {
        FileEntry { inode, attributes: self.numbers.renumber(attributes), times }
    }

    /// For how long the kernel may cache a file's name in a directory and its attributes.
    fn cache_times(&self, directory: &Inode, inode: &Inode, now: Instant) -> CacheTimes {
        let entry = if self.kernel.revocation.is_under_way(inode) {
            Duration::ZERO
        } else {
            self.name_validity(directory, now)
        };
        CacheTimes { entry, attributes: self.report_attributes(inode, now) }
    }

    /// For how long the kernel may cache a name in a directory: as long as the directory's attributes are
    /// valid, and not at all if not everybody may search the directory ([`search_permission`]).
    fn name_validity(&self, directory: &Inode, now: Instant) -> Duration {
        let mut state = directory.lock();
        let is_searchable = !self.options.allow_other || self.is_searchable_by_all(&state, now);
        if self.options.lookup_cache == crate::LookupCache::None || !is_searchable {
            return Duration::ZERO;
        }
        let valid = state.attributes.valid(now, &self.options.attributes);
        if self.options.allow_other && !valid.is_zero() {
            state.search.note_names_cached();
        }
        valid
    }
}

/// The error for a call that timed out, whether the server was silent or kept asking for patience
/// (NFS3ERR_JUKEBOX): EIO with `soft` and ETIMEDOUT with `softerr` (nfs(5)). Other errors stay.
const fn map_timeout(errno: Errno, softerr: bool) -> Errno {
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
    fn timeouts_have_the_error_of_the_mount_option() {
        for (errno, soft, softerr) in [
            (Errno::TIMEDOUT, Errno::IO, Errno::TIMEDOUT),
            (Errno::AGAIN, Errno::IO, Errno::TIMEDOUT),
            (Errno::ACCESS, Errno::ACCESS, Errno::ACCESS),
        ] {
            assert_eq!((map_timeout(errno, false), map_timeout(errno, true)), (soft, softerr));
        }
    }
}
