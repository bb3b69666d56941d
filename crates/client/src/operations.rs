//! The operations of an NFS version, without wire types: [`Operations`].
//!
//! Sessions and files use a server over the wire through this trait only. An implementation turns an
//! operation into calls of its version, decodes the results, counts the calls, and reports the attributes in
//! every reply, failures included, to the session's attribute sink.
//!
//! An operation changes the server at most once, so that it can be repeated. An implementation doesn't repeat
//! it when the server delays it (NFS3ERR_JUKEBOX, NFS4ERR_DELAY): the module `wire` does, for every version.
//! The crate `rpc` restores connections and resends calls.
//!
//! The arguments of an operation include the file's handle and the user. Both together also identify an NFSv4
//! open, so an implementation looks up the state id for READ, WRITE and SETATTR itself. What an open has at
//! the server lasts until its [`OpenReply::state`] is dropped. An NFSv3 open is a LOOKUP or a CREATE, and has
//! no state.

use bytes::Bytes;
use client_state::{ByteRange, LockKind};
use io::Stability;

use crate::error::Result;
pub(crate) use crate::nfs4::WireOpen;
use crate::types::{
    Access, Advice, Attributes, Create, DirectoryPage, ExportEntry, Fallocate, FileKind, Found, FsInfo,
    FsStat, Handle, MadeDirectory, Node, Page, PathConf, Plus, PosixAcls, SeekTo, SetAcl, SetAttributes,
    SetXattr, Timestamp, XattrPage,
};
use crate::user::User;

/// A lock owner: a process for fcntl(2), and an open file description for flock(2) and for the locks of open
/// file descriptions. Within a session, equal numbers are the same owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockOwner(pub u64);

/// A lock that an owner asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockRequest {
    /// The owner.
    pub owner: LockOwner,
    /// The bytes.
    pub range: ByteRange,
    /// Shared or exclusive.
    pub kind: LockKind,
    /// Whether to wait while another owner's lock conflicts.
    pub waits: bool,
}

/// A lock of another owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockConflict {
    /// The bytes.
    pub range: ByteRange,
    /// Shared or exclusive.
    pub kind: LockKind,
}

/// The result of a READ.
#[derive(Debug)]
pub(crate) struct ReadReply {
    /// The data, which may be shorter than requested.
    pub(crate) data: Vec<u8>,
    /// Whether the file ends behind it.
    pub(crate) eof: bool,
}

/// The result of a WRITE.
#[derive(Debug)]
pub(crate) struct WriteReply {
    /// Bytes written, from the start of the data on. Unchecked: a server may send any number.
    pub(crate) count: usize,
    /// How durable they are.
    pub(crate) stability: Stability,
    /// The server's write verifier. If it changes, the server may have lost unstable data.
    pub(crate) verifier: [u8; 8],
    /// The result of setting attributes behind the data, as that of [`Operations::set_attributes`]. `None`:
    /// the request hasn't tried.
    pub(crate) set: Option<Result<Option<Attributes>>>,
}

/// The file that is opened.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FileTarget<'a> {
    /// The file of a handle.
    File(&'a Handle),
    /// The file of a name. `listed` is the kind that a listing has shown; another file may have the name now.
    Entry { directory: &'a Handle, name: &'a [u8], listed: Option<FileKind> },
    /// The file of a name, which is created, or opened if it exists and `how` allows that.
    New { directory: &'a Handle, name: &'a [u8], how: &'a Create },
}

/// What a file is opened for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenPlan {
    pub(crate) read: bool,
    pub(crate) write: bool,
    /// The bytes that the file probably has, if the same request is to read them and one of this version can;
    /// 0 if not.
    pub(crate) content: u32,
}

/// The result of an open.
#[derive(Debug)]
pub(crate) struct OpenReply {
    /// The file. `None` if it was created, and the server didn't send its handle.
    pub(crate) found: Option<Found>,
    /// The rights of the user, if the server sent them.
    pub(crate) access: Option<Access>,
    /// What the server holds for the open. `None` if it holds nothing, or the file isn't regular.
    pub(crate) state: Option<WireOpen>,
    /// All that is in the file, if the same request has read it. It is as new as the attributes, or newer.
    pub(crate) content: Option<Vec<u8>>,
}

/// Opens a file by the operations that leave nothing open: finds it, or creates it.
pub(crate) async fn open_without_state(
    nfs: &impl Operations,
    user: &User,
    target: FileTarget<'_>,
) -> Result<OpenReply> {
    let found = match target {
        FileTarget::File(file) => Some(Found { handle: file.clone(), attributes: None }),
        FileTarget::Entry { directory, name, .. } => Some(nfs.lookup(user, directory, name).await?),
        FileTarget::New { directory, name, how } => nfs.create(user, directory, name, how).await?,
    };
    Ok(OpenReply { found, access: None, state: None, content: None })
}

/// Finds the first name of a path only.
pub(crate) async fn lookup_first(
    nfs: &impl Operations,
    user: &User,
    directory: &Handle,
    names: &[&[u8]],
) -> Result<Vec<Found>> {
    let name = names.first().copied().unwrap_or(b".");
    Ok(vec![nfs.lookup(user, directory, name).await?])
}

/// The result of a copy within the server.
#[derive(Debug)]
pub(crate) struct CopyReply {
    /// Bytes copied, from the start on. Unchecked: a server may send any number.
    pub(crate) count: u64,
    /// How durable they are.
    pub(crate) stability: Stability,
    /// As [`WriteReply::verifier`].
    pub(crate) verifier: [u8; 8],
}

/// The operations of an NFS version. All fail with the server's status or the call's error. One that the
/// version doesn't have fails with [`Status::NotSupported`](crate::Status::NotSupported), without a call.
pub(crate) trait Operations: Sync {
    /// Does nothing but wait for a reply.
    fn null(&self, user: &User) -> impl Future<Output = Result<()>> + Send;

    /// A file's attributes.
    fn attributes(&self, user: &User, file: &Handle) -> impl Future<Output = Result<Attributes>> + Send;

    /// When a file was made; `None` if its filesystem doesn't tell.
    fn birth_time(
        &self,
        user: &User,
        file: &Handle,
    ) -> impl Future<Output = Result<Option<Timestamp>>> + Send;

    /// Changes attributes; with `guard` only if the file's ctime equals it. Returns the attributes
    /// afterwards, if the server sent them. Fails with [`Status::Invalid`](crate::Status::Invalid) if the
    /// version can't express a time.
    fn set_attributes(
        &self,
        user: &User,
        file: &Handle,
        set: &SetAttributes,
        guard: Option<Timestamp>,
    ) -> impl Future<Output = Result<Option<Attributes>>> + Send;

    /// The file of a name in a directory.
    fn lookup(
        &self,
        user: &User,
        directory: &Handle,
        name: &[u8],
    ) -> impl Future<Output = Result<Found>> + Send;

    /// The files of a path's first names from a directory on, as many as one call can find, at least one. A
    /// symbolic link is the last.
    fn lookup_path(
        &self,
        user: &User,
        directory: &Handle,
        names: &[&[u8]],
    ) -> impl Future<Output = Result<Vec<Found>>> + Send;

    /// Opens a file for reading, writing or both. A file that isn't regular is only looked up.
    ///
    /// A caller that stops waiting leaves nothing open.
    fn open(
        &self,
        user: &User,
        target: FileTarget<'_>,
        plan: OpenPlan,
    ) -> impl Future<Output = Result<OpenReply>> + Send;

    /// Locks bytes of a file that the user has open. Fails with [`Status::Locked`](crate::Status::Locked) if
    /// another owner's lock conflicts and the request doesn't wait. A caller that stops waiting has no lock.
    fn lock(
        &self,
        user: &User,
        file: &Handle,
        open: &WireOpen,
        request: LockRequest,
    ) -> impl Future<Output = Result<()>> + Send;

    /// Unlocks a range, or, with `None`, all of the owner's locks on the file: the owner has closed it.
    fn unlock(
        &self,
        user: &User,
        file: &Handle,
        owner: LockOwner,
        range: Option<ByteRange>,
    ) -> impl Future<Output = Result<()>> + Send;

    /// A lock of another owner that keeps the owner from locking the range as `kind`.
    fn test_lock(
        &self,
        user: &User,
        file: &Handle,
        owner: LockOwner,
        lock: (ByteRange, LockKind),
    ) -> impl Future<Output = Result<Option<LockConflict>>> + Send;

    /// Which of the rights `wanted` the user has.
    fn access(
        &self,
        user: &User,
        file: &Handle,
        wanted: Access,
    ) -> impl Future<Output = Result<Access>> + Send;

    /// A symbolic link's target.
    fn read_link(&self, user: &User, link: &Handle) -> impl Future<Output = Result<Vec<u8>>> + Send;

    /// Reads a range, which is an offset and at most the server's largest READ in bytes. The payload is
    /// received into the memory of `buffer`. From a file that `is_sparse` the server may send holes as their
    /// lengths.
    fn read(
        &self,
        user: &User,
        file: &Handle,
        range: (u64, usize),
        is_sparse: bool,
        buffer: Vec<u8>,
    ) -> impl Future<Output = Result<ReadReply>> + Send;

    /// Writes `data`, at most the server's largest WRITE, at `offset`. Sets the attributes `set`, which
    /// aren't the size, in the same request, if one of this version can.
    fn write(
        &self,
        user: &User,
        file: &Handle,
        offset: u64,
        data: Bytes,
        stability: Stability,
        set: Option<&SetAttributes>,
    ) -> impl Future<Output = Result<WriteReply>> + Send;

    /// Makes a whole file's unstable data durable. Returns the server's write verifier.
    fn commit(&self, user: &User, file: &Handle) -> impl Future<Output = Result<[u8; 8]>> + Send;

    /// Creates a regular file. Returns `None`, as the next three do, if the server didn't send the handle.
    fn create(
        &self,
        user: &User,
        directory: &Handle,
        name: &[u8],
        mode: &Create,
    ) -> impl Future<Output = Result<Option<Found>>> + Send;

    /// Creates a directory.
    fn make_dir(
        &self,
        user: &User,
        directory: &Handle,
        name: &[u8],
        set: &SetAttributes,
    ) -> impl Future<Output = Result<Option<Found>>> + Send;

    /// As [`Operations::make_dir`], and asks in the same request which of the rights `wanted` the user has
    /// there, and for the access control list, if a request of this version can.
    fn make_dir_asking(
        &self,
        user: &User,
        directory: &Handle,
        name: &[u8],
        set: &SetAttributes,
        wanted: Access,
    ) -> impl Future<Output = Result<Option<MadeDirectory>>> + Send;

    /// Creates a symbolic link to `target`.
    fn symlink(
        &self,
        user: &User,
        directory: &Handle,
        name: &[u8],
        target: &[u8],
        set: &SetAttributes,
    ) -> impl Future<Output = Result<Option<Found>>> + Send;

    /// Creates a pipe, socket or device.
    fn make_node(
        &self,
        user: &User,
        directory: &Handle,
        name: &[u8],
        node: Node,
        set: &SetAttributes,
    ) -> impl Future<Output = Result<Option<Found>>> + Send;

    /// Removes a name of anything but a directory.
    fn remove(&self, user: &User, directory: &Handle, name: &[u8])
    -> impl Future<Output = Result<()>> + Send;

    /// Removes an empty directory.
    fn remove_dir(
        &self,
        user: &User,
        directory: &Handle,
        name: &[u8],
    ) -> impl Future<Output = Result<()>> + Send;

    /// Moves a name, replacing what is at the new one.
    fn rename(
        &self,
        user: &User,
        from: (&Handle, &[u8]),
        to: (&Handle, &[u8]),
    ) -> impl Future<Output = Result<()>> + Send;

    /// Gives a file another name.
    fn link(
        &self,
        user: &User,
        file: &Handle,
        directory: &Handle,
        name: &[u8],
    ) -> impl Future<Output = Result<()>> + Send;

    /// The entries of a directory behind a cookie and its verifier, both 0 for the beginning, in a reply of
    /// at most `count` bytes.
    fn read_dir_page(
        &self,
        user: &User,
        directory: &Handle,
        behind: (u64, [u8; 8]),
        count: u32,
        plus: Plus<'_>,
    ) -> impl Future<Output = Result<Page>> + Send;

    /// The first pages of directories, each of at most `count` bytes, with handles and attributes: of the
    /// first one, and of as many of the others as the same call may bring.
    fn first_pages(
        &self,
        user: &User,
        directories: &[&Handle],
        count: u32,
    ) -> impl Future<Output = Result<Vec<DirectoryPage>>> + Send {
        async move {
            let Some(first) = directories.first() else { return Ok(Vec::new()) };
            let page = self.read_dir_page(user, first, (0, [0; 8]), count, Plus::All).await?;
            Ok(vec![DirectoryPage { page, ..DirectoryPage::default() }])
        }
    }

    /// The space of a file's filesystem.
    fn fs_stat(&self, user: &User, file: &Handle) -> impl Future<Output = Result<FsStat>> + Send;

    /// The server's limits and preferences for a file's filesystem.
    fn fs_info(&self, user: &User, file: &Handle) -> impl Future<Output = Result<FsInfo>> + Send;

    /// The limits of names in a file's filesystem.
    fn path_conf(&self, user: &User, file: &Handle) -> impl Future<Output = Result<PathConf>> + Send;

    /// A file's POSIX access control lists. [`Status::NotSupported`](crate::Status::NotSupported): the server
    /// has none. [`Error::NoPosixAcl`](crate::Error::NoPosixAcl): they are NFSv4 ones without a counterpart.
    fn acls(&self, user: &User, file: &Handle) -> impl Future<Output = Result<PosixAcls>> + Send;

    /// Changes one of them; the new list is valid.
    fn set_acl(&self, user: &User, file: &Handle, change: &SetAcl)
    -> impl Future<Output = Result<()>> + Send;

    /// Changes the space of `len` bytes from `offset` on.
    fn fallocate(
        &self,
        user: &User,
        file: &Handle,
        how: Fallocate,
        offset: u64,
        len: u64,
    ) -> impl Future<Output = Result<()>> + Send;

    /// The first data or hole at `offset` or behind it. `None` if there is none, or the file ends at
    /// `offset` or before.
    fn seek(
        &self,
        user: &User,
        file: &Handle,
        to: SeekTo,
        offset: u64,
    ) -> impl Future<Output = Result<Option<u64>>> + Send;

    /// Tells the server how `len` bytes from `offset` on will be used; 0 for all up to the end.
    fn advise(
        &self,
        user: &User,
        file: &Handle,
        advice: Advice,
        offset: u64,
        len: u64,
    ) -> impl Future<Output = Result<()>> + Send;

    /// Copies up to `len` bytes, at least 1, between files of the server.
    /// [`Status::Invalid`](crate::Status::Invalid): the source ends before.
    fn copy(
        &self,
        user: &User,
        from: (&Handle, u64),
        to: (&Handle, u64),
        len: u64,
    ) -> impl Future<Output = Result<CopyReply>> + Send;

    /// Lets files of the server share `len` bytes; 0 for all up to the end of the source.
    fn clone_range(
        &self,
        user: &User,
        from: (&Handle, u64),
        to: (&Handle, u64),
        len: u64,
    ) -> impl Future<Output = Result<()>> + Send;

    /// A file's NFSv4 access control list, as `fattr4_acl` (RFC 8881 section 6.2) in XDR.
    fn nfs4_acl(&self, user: &User, file: &Handle) -> impl Future<Output = Result<Vec<u8>>> + Send;

    /// Sets a file's NFSv4 access control list, in the same form.
    fn set_nfs4_acl(&self, user: &User, file: &Handle, acl: &[u8])
    -> impl Future<Output = Result<()>> + Send;

    /// The value of an extended attribute of the namespace `user.`, as all operations on them. Its name is
    /// without the namespace.
    fn get_xattr(
        &self,
        user: &User,
        file: &Handle,
        name: &[u8],
    ) -> impl Future<Output = Result<Vec<u8>>> + Send;

    /// Sets an extended attribute.
    fn set_xattr(
        &self,
        user: &User,
        file: &Handle,
        name: &[u8],
        value: &[u8],
        how: SetXattr,
    ) -> impl Future<Output = Result<()>> + Send;

    /// The names of the extended attributes behind a cookie; 0 for the beginning.
    fn list_xattrs(
        &self,
        user: &User,
        file: &Handle,
        cookie: u64,
    ) -> impl Future<Output = Result<XattrPage>> + Send;

    /// Removes an extended attribute.
    fn remove_xattr(
        &self,
        user: &User,
        file: &Handle,
        name: &[u8],
    ) -> impl Future<Output = Result<()>> + Send;

    /// The server's exports.
    fn exports(&self, user: &User) -> impl Future<Output = Result<Vec<ExportEntry>>> + Send;

    /// Tells the server that the session ends. Errors are ignored.
    fn end(&self, user: &User) -> impl Future<Output = ()> + Send;
}
