//! A directory tree that a server on the same host has given to the session: [`Tree`].
//!
//! The server gives a directory descriptor in a mount namespace of its own (docs/lane.md). The operations on
//! names and attributes then are system calls of this process. Each runs between the interlock's `try_get`
//! and
//! `put`, as a read of a granted file does. What the tree can't do, and everything once the server has taken
//! it back, fails with [`Error::NotLocal`](crate::Error::NotLocal) and has changed nothing.
//!
//! | module | what |
//! |---|---|
//! | `local` | from handles and names to descriptors |
//! | `acls`, `attributes`, `create`, `entries`, `read_dir`, `open`, `xattrs` | the operations |
//! | `descriptors`, `open_dirs` | what is kept open |
//! | `user` | as which users operations run |
//! | `failure` | why an operation has no result |

mod acls;
mod attributes;
mod create;
mod descriptors;
mod entries;
mod failure;
mod identity;
mod local;
mod open;
mod open_dirs;
mod read_dir;
#[cfg(test)]
mod tests;
mod user;
mod xattrs;

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use client_state::{ByteRange, LockKind};
use io::Stability;
use lane::{Grant, OpenedGrant};
use rustix::process::{Resource, getrlimit};

use self::failure::Failure;
pub(crate) use self::failure::Result as LocalResult;
use self::local::Waits;
pub(crate) use self::local::{Call, LocalTree};
use self::open::Opened;
use self::user::TreeUsers;
use crate::attribute_sink::AttributeSink;
use crate::disk_waits;
use crate::error::{Error, Result};
use crate::operations::{
    CopyReply, FileTarget, LockConflict, LockOwner, LockRequest, OpenPlan, OpenReply, Operations, ReadReply,
    WireOpen, WriteReply, lookup_first,
};
use crate::seal_queue::SealQueue;
use crate::types::{
    Access, Advice, Attributes, Create, ExportEntry, Fallocate, FileKind, Found, FsInfo, FsStat, Handle,
    MadeDirectory, Node, Page, PathConf, Plus, PosixAcls, SeekTo, SetAcl, SetAttributes, SetXattr, Timestamp,
    XattrPage,
};
use crate::user::User;

/// The most descriptors of files that a tree keeps open.
const MAX_DESCRIPTORS: u64 = 65_536;

/// How long a descriptor stays open without being used: once to twice this time.
const IDLE_TIME: Duration = Duration::from_secs(30);

/// A tree that the server has given.
#[derive(Debug)]
pub(crate) struct Tree {
    shared: Arc<TreeState>,
}

/// What operations on other threads need.
#[derive(Debug)]
struct TreeState {
    /// The tree's directory. Its interlock is that of all files opened through it.
    grant: Grant,
    local: LocalTree,
    users: TreeUsers,
    /// The server's write verifier when it gave the tree.
    verifier: [u8; 8],
    blocking: BlockingCalls,
}

/// Bounds the operations that may wait for a disk on the threads that ask for them. The others run on tokio's
/// threads for blocking calls.
#[derive(Debug)]
struct BlockingCalls {
    running: AtomicUsize,
    max: usize,
}

/// A permit to wait for a disk on this thread.
struct BlockingPermit<'a>(&'a BlockingCalls);

impl BlockingCalls {
    fn begin(&self) -> Option<BlockingPermit<'_>> {
        let permit = BlockingPermit(self);
        (self.running.fetch_add(1, Relaxed) < self.max).then_some(permit)
    }
}

impl Drop for BlockingPermit<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Relaxed);
    }
}

/// A file opened through the tree.
#[derive(Debug)]
pub(crate) struct TreeFile {
    /// The open file. It ends with the tree, and the server doesn't know of it. `None` for a file that was
    /// created when this process had only reserved descriptors left: it is used over the wire.
    pub(crate) grant: Option<Grant>,
    pub(crate) handle: Handle,
    /// The attributes after it was opened.
    pub(crate) attributes: Option<Attributes>,
    /// Whether the open has created it.
    pub(crate) is_new: bool,
}

/// The result of an open in the tree.
#[derive(Debug)]
pub(crate) enum TreeOpen {
    File(Box<TreeFile>),
    /// The name belongs to a file that isn't regular.
    Other(FileKind),
}

impl Tree {
    /// Uses the directory that the server has opened for [`lane::Target::Tree`] of `root`. Within a tokio
    /// runtime.
    ///
    /// At most `max_blocking` operations that may wait for a disk run at once on the threads that ask for
    /// them.
    ///
    /// # Errors
    /// The reason why the tree can't be used.
    pub(crate) fn new(
        opened: OpenedGrant,
        root: &Handle,
        sink: Option<Arc<dyn AttributeSink>>,
        seals: Arc<SealQueue>,
        max_blocking: usize,
    ) -> std::result::Result<Self, String> {
        let OpenedGrant { grant, attributes, verifier, .. } = opened;
        let directory = grant.as_fd().try_clone_to_owned().map_err(|error| error.to_string())?;
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let budget = (limit / 4).min(MAX_DESCRIPTORS) as usize;
        let mut local = LocalTree::new(directory, root, attributes.file.fsid, budget, sink)
            .ok_or("the server's handles can't be made by a client")?;
        local.seals = Some(seals);
        let max = if local.is_in_memory() { usize::MAX } else { max_blocking };
        let blocking = BlockingCalls { running: AtomicUsize::new(0), max };
        let shared = Arc::new(TreeState { grant, local, users: TreeUsers::detect(), verifier, blocking });
        let closing = Arc::downgrade(&shared);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(IDLE_TIME).await;
                let Some(shared) = closing.upgrade() else { return };
                shared.local.close_idle();
            }
        });
        Ok(Self { shared })
    }

    /// Whether the server still lets the tree be used.
    pub(crate) fn is_live(&self) -> bool {
        self.shared.grant.is_live()
    }

    /// The server's write verifier when it gave the tree.
    pub(crate) fn verifier(&self) -> [u8; 8] {
        self.shared.verifier
    }

    /// Performs an operation on this thread. `None`: it may have to wait, or isn't local; it has changed
    /// nothing. Errors name it `object`.
    pub(crate) fn perform_now<T>(
        &self,
        user: &User,
        object: &'static str,
        operation: impl FnOnce(&LocalTree, Call<'_>) -> LocalResult<T>,
    ) -> Option<Result<T>> {
        match self.shared.try_run(user, operation) {
            Err(Failure::NotLocal | Failure::WouldWait) => None,
            result => Some(result.map_err(|failure| failure.into_error(object))),
        }
    }

    /// As [`Tree::perform_now`], for an open.
    pub(crate) fn open_now(
        &self,
        user: &User,
        target: FileTarget<'_>,
        access: (bool, bool),
    ) -> Option<Result<TreeOpen>> {
        let object = match target {
            FileTarget::New { .. } => "CREATE",
            FileTarget::File(_) | FileTarget::Entry { .. } => "open",
        };
        let opened = self.perform_now(user, object, |local, call| match target {
            FileTarget::File(file) => local.open_handle(call, file, access),
            FileTarget::Entry { directory, name, listed } => {
                local.open(call, directory, name, listed, access)
            }
            FileTarget::New { directory, name, how } => local.open_new(call, directory, name, how, access),
        })?;
        match opened.and_then(|opened| self.shared.granted(opened)) {
            Err(Error::NotLocal) => None,
            result => Some(result),
        }
    }
}

impl TreeState {
    /// Runs an operation on this thread as a user, unless the server has taken the tree back.
    fn run<T>(
        &self,
        user: &User,
        waits: Waits,
        operation: impl FnOnce(&LocalTree, Call<'_>) -> failure::Result<T>,
    ) -> failure::Result<T> {
        let _in_flight = self.grant.try_get().ok_or(Failure::NotLocal)?;
        let umask = user.umask;
        let result = self.users.run(user, |user| operation(&self.local, Call { user, waits, umask }));
        result.map_err(|failure| if self.grant.is_live() { failure } else { failure.in_ended_tree() })
    }

    /// As [`TreeState::run`] on a thread that may not wait, or one of a few that may.
    fn try_run<T>(
        &self,
        user: &User,
        operation: impl FnOnce(&LocalTree, Call<'_>) -> failure::Result<T>,
    ) -> failure::Result<T> {
        let permit = self.blocking.begin();
        let may_wait = permit.is_some() || disk_waits::is_blocking_thread();
        let waits = if may_wait { Waits::Allowed } else { Waits::Forbidden };
        self.run(user, waits, operation)
    }

    /// A grant of a file that was opened through the tree. A file that existed can be opened elsewhere if
    /// there is no descriptor for its grant; one that was created is open already.
    fn granted(&self, opened: Opened) -> Result<TreeOpen> {
        let (file, found, is_new) = match opened {
            Opened::File(file, found) => (file, found, false),
            Opened::New(file, found) => (file, found, true),
            Opened::Other(kind) => return Ok(TreeOpen::Other(kind)),
        };
        let grant = self.grant.derive(file).ok();
        if grant.is_none() && !is_new {
            return Err(Error::NotLocal);
        }
        let Found { handle, attributes } = *found;
        Ok(TreeOpen::File(Box::new(TreeFile { grant, handle, attributes, is_new })))
    }
}

/// Performs a method of [`LocalTree`] with the arguments that are references and those that are values: on
/// this thread if it doesn't have to wait or may wait there, and otherwise on one for blocking calls.
macro_rules! perform {
    ($self:ident, $object:literal, $user:ident, $method:ident($($reference:ident),*; $($value:expr),*)) => {{
        let attempt = $self
            .shared
            .try_run($user, |local, call| local.$method(call, $($reference,)* $($value,)*));
        let result = match attempt {
            Err(Failure::WouldWait) if disk_waits::may_wait_here().await => {
                $self.shared.run($user, Waits::Allowed, |local, call| {
                    local.$method(call, $($reference,)* $($value,)*)
                })
            }
            Err(Failure::WouldWait) => {
                let (shared, user) = (Arc::clone(&$self.shared), $user.clone());
                $(let $reference = $reference.to_owned();)*
                let operation = move || {
                    shared.run(&user, Waits::Allowed, |local, call| {
                        local.$method(call, $(&$reference,)* $($value,)*)
                    })
                };
                match tokio::task::spawn_blocking(operation).await {
                    Ok(result) => result,
                    Err(error) => match error.try_into_panic() {
                        Ok(panic) => std::panic::resume_unwind(panic),
                        // The runtime ends, and has dropped it.
                        Err(_) => Err(Failure::NotLocal),
                    },
                }
            }
            result => result,
        };
        result.map_err(|failure| failure.into_error($object))
    }};
}

impl Tree {
    /// Opens the file `name` in a directory for reading, writing or both.
    ///
    /// # Errors
    /// [`Error::NotLocal`] also where the user may not open the file: NFS may allow it.
    pub(crate) async fn open(
        &self,
        user: &User,
        directory: &Handle,
        name: &[u8],
        listed: Option<FileKind>,
        access: (bool, bool),
    ) -> Result<TreeOpen> {
        let opened = perform!(self, "open", user, open(directory, name; listed, access))?;
        self.shared.granted(opened)
    }

    /// Opens the file of a handle.
    ///
    /// # Errors
    /// As [`Tree::open`].
    pub(crate) async fn open_handle(
        &self,
        user: &User,
        file: &Handle,
        access: (bool, bool),
    ) -> Result<TreeOpen> {
        let opened = perform!(self, "open", user, open_handle(file; access))?;
        self.shared.granted(opened)
    }

    /// Creates and opens the file `name` in a directory, or opens an existing one as `how` allows.
    ///
    /// # Errors
    /// As [`Tree::open`] and CREATE. After [`Error::NotLocal`] the file may exist, if `how` allows an
    /// existing one.
    pub(crate) async fn open_new(
        &self,
        user: &User,
        directory: &Handle,
        name: &[u8],
        how: &Create,
        access: (bool, bool),
    ) -> Result<TreeOpen> {
        let opened = perform!(self, "CREATE", user, open_new(directory, name, how; access))?;
        self.shared.granted(opened)
    }
}

impl Operations for Tree {
    async fn null(&self, _: &User) -> Result<()> {
        Err(Error::NotLocal)
    }

    async fn attributes(&self, user: &User, file: &Handle) -> Result<Attributes> {
        perform!(self, "GETATTR", user, attributes(file;))
    }

    async fn birth_time(&self, user: &User, file: &Handle) -> Result<Option<Timestamp>> {
        perform!(self, "GETATTR", user, birth_time(file;))
    }

    async fn set_attributes(
        &self,
        user: &User,
        file: &Handle,
        set: &SetAttributes,
        guard: Option<Timestamp>,
    ) -> Result<Option<Attributes>> {
        perform!(self, "SETATTR", user, set_attributes(file, set; guard)).map(Some)
    }

    async fn lookup(&self, user: &User, directory: &Handle, name: &[u8]) -> Result<Found> {
        perform!(self, "LOOKUP", user, lookup(directory, name;))
    }

    /// [`Tree::open`] and the like open files in the tree.
    async fn lookup_path(&self, user: &User, directory: &Handle, names: &[&[u8]]) -> Result<Vec<Found>> {
        lookup_first(self, user, directory, names).await
    }

    async fn open(&self, _: &User, _: FileTarget<'_>, _: OpenPlan) -> Result<OpenReply> {
        Err(Error::NotLocal)
    }

    async fn lock(&self, _: &User, _: &Handle, _: &WireOpen, _: LockRequest) -> Result<()> {
        Err(Error::NotLocal)
    }

    async fn unlock(&self, _: &User, _: &Handle, _: LockOwner, _: Option<ByteRange>) -> Result<()> {
        Err(Error::NotLocal)
    }

    async fn test_lock(
        &self,
        _: &User,
        _: &Handle,
        _: LockOwner,
        _: (ByteRange, LockKind),
    ) -> Result<Option<LockConflict>> {
        Err(Error::NotLocal)
    }

    async fn access(&self, user: &User, file: &Handle, wanted: Access) -> Result<Access> {
        perform!(self, "ACCESS", user, access(file; wanted))
    }

    async fn read_link(&self, user: &User, link: &Handle) -> Result<Vec<u8>> {
        perform!(self, "READLINK", user, read_link(link;))
    }

    async fn read(&self, _: &User, _: &Handle, _: (u64, usize), _: bool, _: Vec<u8>) -> Result<ReadReply> {
        Err(Error::NotLocal)
    }

    async fn write(
        &self,
        _: &User,
        _: &Handle,
        _: u64,
        _: Bytes,
        _: Stability,
        _: Option<&SetAttributes>,
    ) -> Result<WriteReply> {
        Err(Error::NotLocal)
    }

    async fn commit(&self, user: &User, file: &Handle) -> Result<[u8; 8]> {
        perform!(self, "COMMIT", user, commit(file;)).map(|()| self.shared.verifier)
    }

    async fn create(
        &self,
        user: &User,
        directory: &Handle,
        name: &[u8],
        mode: &Create,
    ) -> Result<Option<Found>> {
        perform!(self, "CREATE", user, create(directory, name, mode;))
    }

    async fn make_dir(
        &self,
        user: &User,
        directory: &Handle,
        name: &[u8],
        set: &SetAttributes,
    ) -> Result<Option<Found>> {
        perform!(self, "MKDIR", user, make_dir(directory, name, set;))
    }

    async fn make_dir_asking(
        &self,
        user: &User,
        directory: &Handle,
        name: &[u8],
        set: &SetAttributes,
        _wanted: Access,
    ) -> Result<Option<MadeDirectory>> {
        Ok(self.make_dir(user, directory, name, set).await?.map(MadeDirectory::from))
    }

    async fn symlink(
        &self,
        user: &User,
        directory: &Handle,
        name: &[u8],
        target: &[u8],
        set: &SetAttributes,
    ) -> Result<Option<Found>> {
        perform!(self, "SYMLINK", user, symlink(directory, name, target, set;))
    }

    async fn make_node(
        &self,
        user: &User,
        directory: &Handle,
        name: &[u8],
        node: Node,
        set: &SetAttributes,
    ) -> Result<Option<Found>> {
        perform!(self, "MKNOD", user, make_node(directory, name, set; node))
    }

    async fn remove(&self, user: &User, directory: &Handle, name: &[u8]) -> Result<()> {
        perform!(self, "REMOVE", user, remove(directory, name;))
    }

    async fn remove_dir(&self, user: &User, directory: &Handle, name: &[u8]) -> Result<()> {
        perform!(self, "RMDIR", user, remove_dir(directory, name;))
    }

    async fn rename(&self, user: &User, from: (&Handle, &[u8]), to: (&Handle, &[u8])) -> Result<()> {
        let ((from_directory, from), (to_directory, to)) = (from, to);
        perform!(self, "RENAME", user, rename(from_directory, from, to_directory, to;))
    }

    async fn link(&self, user: &User, file: &Handle, directory: &Handle, name: &[u8]) -> Result<()> {
        perform!(self, "LINK", user, link(file, directory, name;))
    }

    async fn read_dir_page(
        &self,
        user: &User,
        directory: &Handle,
        behind: (u64, [u8; 8]),
        count: u32,
        plus: Plus<'_>,
    ) -> Result<Page> {
        let plus = match plus {
            Plus::Unless(_) => {
                let listed = self
                    .shared
                    .try_run(user, |local, call| local.read_dir_page(call, directory, behind, count, plus));
                match listed {
                    // The caller's function can't go to another thread.
                    Err(Failure::WouldWait) => Plus::All,
                    listed => return listed.map_err(|failure| failure.into_error("READDIR")),
                }
            }
            Plus::None => Plus::None,
            Plus::All => Plus::All,
            Plus::Acls => Plus::Acls,
            Plus::Kinds => Plus::Kinds,
            Plus::Attributes => Plus::Attributes,
        };
        perform!(self, "READDIR", user, read_dir_page(directory; behind, count, plus))
    }

    async fn fs_stat(&self, user: &User, file: &Handle) -> Result<FsStat> {
        perform!(self, "FSSTAT", user, fs_stat(file;))
    }

    async fn fs_info(&self, _: &User, _: &Handle) -> Result<FsInfo> {
        Err(Error::NotLocal)
    }

    async fn path_conf(&self, _: &User, _: &Handle) -> Result<PathConf> {
        Err(Error::NotLocal)
    }

    async fn acls(&self, user: &User, file: &Handle) -> Result<PosixAcls> {
        perform!(self, "GETACL", user, acls(file;))
    }

    async fn set_acl(&self, user: &User, file: &Handle, change: &SetAcl) -> Result<()> {
        perform!(self, "SETACL", user, set_acl(file, change;))
    }

    /// These four are performed on granted files.
    async fn fallocate(&self, _: &User, _: &Handle, _: Fallocate, _: u64, _: u64) -> Result<()> {
        Err(Error::NotLocal)
    }

    async fn seek(&self, _: &User, _: &Handle, _: SeekTo, _: u64) -> Result<Option<u64>> {
        Err(Error::NotLocal)
    }

    async fn advise(&self, _: &User, _: &Handle, _: Advice, _: u64, _: u64) -> Result<()> {
        Err(Error::NotLocal)
    }

    async fn copy(&self, _: &User, _: (&Handle, u64), _: (&Handle, u64), _: u64) -> Result<CopyReply> {
        Err(Error::NotLocal)
    }

    async fn clone_range(&self, _: &User, _: (&Handle, u64), _: (&Handle, u64), _: u64) -> Result<()> {
        Err(Error::NotLocal)
    }

    /// The tree's filesystem has POSIX lists. The server translates.
    async fn nfs4_acl(&self, _: &User, _: &Handle) -> Result<Vec<u8>> {
        Err(Error::NotLocal)
    }

    async fn set_nfs4_acl(&self, _: &User, _: &Handle, _: &[u8]) -> Result<()> {
        Err(Error::NotLocal)
    }

    async fn get_xattr(&self, user: &User, file: &Handle, name: &[u8]) -> Result<Vec<u8>> {
        perform!(self, "GETXATTR", user, get_xattr(file, name;))
    }

    async fn set_xattr(
        &self,
        user: &User,
        file: &Handle,
        name: &[u8],
        value: &[u8],
        how: SetXattr,
    ) -> Result<()> {
        perform!(self, "SETXATTR", user, set_xattr(file, name, value; how))
    }

    async fn list_xattrs(&self, user: &User, file: &Handle, _: u64) -> Result<XattrPage> {
        perform!(self, "LISTXATTRS", user, list_xattrs(file;)).map(|names| XattrPage { names, next: None })
    }

    async fn remove_xattr(&self, user: &User, file: &Handle, name: &[u8]) -> Result<()> {
        perform!(self, "REMOVEXATTR", user, remove_xattr(file, name;))
    }

    async fn exports(&self, _: &User) -> Result<Vec<ExportEntry>> {
        Err(Error::NotLocal)
    }

    async fn end(&self, _: &User) {}
}
