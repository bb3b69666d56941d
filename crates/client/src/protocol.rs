//! The implementations of [`Operations`] that a session uses.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use bytes::Bytes;
use client_state::{ByteRange, LockKind};
use io::Stability;
use rpc::client::Client;

use crate::error::Result;
use crate::highest;
use crate::nfs3::Nfs3;
use crate::nfs4::Nfs4;
use crate::operations::{
    CopyReply, FileTarget, LockConflict, LockOwner, LockRequest, OpenPlan, OpenReply, Operations, ReadReply,
    WireOpen, WriteReply,
};
use crate::options::{Options, Version};
use crate::tree::Tree;
use crate::types::{
    Access, Advice, Attributes, Create, DirectoryPage, ExportEntry, Fallocate, Found, FsInfo, FsStat, Handle,
    MadeDirectory, Node, Page, PathConf, Plus, PosixAcls, SeekTo, SetAcl, SetAttributes, SetXattr, Timestamp,
    XattrPage,
};
use crate::uncommitted_writes::UncommittedPool;
use crate::url::Url;
use crate::user::User;

/// An NFS version over the wire, or a directory tree on this host.
#[derive(Debug)]
pub(crate) enum Protocol {
    Nfs3(Nfs3),
    Nfs4(Nfs4),
    Tree(Tree),
}

/// An export that was mounted.
pub(crate) struct Mounted {
    pub(crate) protocol: Protocol,
    /// The connections, which other programs than NFS use as well.
    pub(crate) rpc: Arc<Client>,
    /// The path that was mounted, as the server has it.
    pub(crate) path: Vec<u8>,
    /// The rest of the URL's path.
    pub(crate) target: Vec<u8>,
    /// The directory at `path`.
    pub(crate) root: Handle,
    /// Whether one of the sessions on the connections has ever had a lane.
    pub(crate) had_lane: Arc<AtomicBool>,
    /// Other sessions on the connections may rely on it that a change is durable when it is answered.
    pub(crate) is_durable: bool,
    /// `path` is the server's root, and the URL's path begins with a name that isn't there.
    pub(crate) lacks_path: bool,
}

impl Protocol {
    /// Connects as `user`, by the version in `options`, and mounts the directory that the URL names, or the
    /// deepest one on its path that can be mounted.
    ///
    /// # Errors
    /// Those of [`Nfs3::connect`] and [`Nfs4::connect`].
    pub(crate) async fn connect(url: &Url, options: Arc<Options>, user: &Arc<User>) -> Result<Mounted> {
        match options.version {
            Version::Highest => highest::connect(url, options, user).await,
            Version::V3 => Nfs3::connect(url, options, user).await,
            Version::V4 | Version::V4_1 | Version::V4_2 => Nfs4::connect(url, options, user).await,
        }
    }

    /// The NFS version. That of a tree doesn't matter: [`Version::V3`].
    pub(crate) fn version(&self) -> Version {
        match self {
            Self::Nfs3(_) | Self::Tree(_) => Version::V3,
            Self::Nfs4(nfs) => nfs.version(),
        }
    }

    /// Whether locks reach the server.
    pub(crate) const fn has_locks(&self) -> bool {
        matches!(self, Self::Nfs4(_))
    }

    /// Whether the server applies the umask of new files.
    pub(crate) const fn applies_umask(&self) -> bool {
        match self {
            Self::Nfs4(nfs) => nfs.applies_umask,
            Self::Nfs3(_) | Self::Tree(_) => false,
        }
    }

    /// Whether one request can write data and set attributes.
    pub(crate) const fn sets_behind_data(&self) -> bool {
        matches!(self, Self::Nfs4(_))
    }

    /// Since when the server has had to ask this client before the file changes, or, if the client `writes`,
    /// before anybody else opens it.
    pub(crate) fn delegated_since(&self, file: &Handle, writes: bool) -> Option<Instant> {
        match self {
            Self::Nfs4(nfs) => nfs.delegated_since(file, writes),
            Self::Nfs3(_) | Self::Tree(_) => None,
        }
    }

    /// Whether the user's session has its locks on a file for certain, or none. Otherwise only the server can
    /// tell whether they are lost.
    pub(crate) fn has_locks_for_certain(&self, user: &User, file: &Handle) -> bool {
        match self {
            Self::Nfs4(nfs) => nfs.has_locks_for_certain(user, file),
            Self::Nfs3(_) | Self::Tree(_) => true,
        }
    }

    /// Where the session keeps the data that waits to be sent, for what the server asks this client.
    pub(crate) fn set_written_behind(&self, pool: &Arc<UncommittedPool>) {
        if let Self::Nfs4(nfs) = self {
            nfs.set_written_behind(pool);
        }
    }

    /// The tree, if it is one.
    pub(crate) const fn as_tree(&self) -> Option<&Tree> {
        match self {
            Self::Nfs3(_) | Self::Nfs4(_) => None,
            Self::Tree(tree) => Some(tree),
        }
    }
}

/// Implements [`Operations`] by calling the same method of the implementation in use.
macro_rules! forward {
    ($(fn $method:ident($($argument:ident: $type:ty),*) -> $output:ty;)*) => {
        impl Operations for Protocol {
            $(
                async fn $method(&self, $($argument: $type),*) -> $output {
                    match self {
                        Self::Nfs3(nfs) => Operations::$method(nfs, $($argument),*).await,
                        Self::Nfs4(nfs) => Operations::$method(nfs, $($argument),*).await,
                        Self::Tree(tree) => Operations::$method(tree, $($argument),*).await,
                    }
                }
            )*
        }
    };
}

forward! {
    fn null(user: &User) -> Result<()>;
    fn attributes(user: &User, file: &Handle) -> Result<Attributes>;
    fn birth_time(user: &User, file: &Handle) -> Result<Option<Timestamp>>;
    fn set_attributes(
        user: &User,
        file: &Handle,
        set: &SetAttributes,
        guard: Option<Timestamp>
    ) -> Result<Option<Attributes>>;
    fn lookup(user: &User, directory: &Handle, name: &[u8]) -> Result<Found>;
    fn lookup_path(user: &User, directory: &Handle, names: &[&[u8]]) -> Result<Vec<Found>>;
    fn open(user: &User, target: FileTarget<'_>, plan: OpenPlan) -> Result<OpenReply>;
    fn lock(user: &User, file: &Handle, open: &WireOpen, request: LockRequest) -> Result<()>;
    fn unlock(user: &User, file: &Handle, owner: LockOwner, range: Option<ByteRange>) -> Result<()>;
    fn test_lock(
        user: &User,
        file: &Handle,
        owner: LockOwner,
        lock: (ByteRange, LockKind)
    ) -> Result<Option<LockConflict>>;
    fn access(user: &User, file: &Handle, wanted: Access) -> Result<Access>;
    fn read_link(user: &User, link: &Handle) -> Result<Vec<u8>>;
    fn read(
        user: &User,
        file: &Handle,
        range: (u64, usize),
        is_sparse: bool,
        buffer: Vec<u8>
    ) -> Result<ReadReply>;
    fn write(
        user: &User,
        file: &Handle,
        offset: u64,
        data: Bytes,
        stability: Stability,
        set: Option<&SetAttributes>
    ) -> Result<WriteReply>;
    fn commit(user: &User, file: &Handle) -> Result<[u8; 8]>;
    fn create(user: &User, directory: &Handle, name: &[u8], mode: &Create) -> Result<Option<Found>>;
    fn make_dir(user: &User, directory: &Handle, name: &[u8], set: &SetAttributes) -> Result<Option<Found>>;
    fn make_dir_asking(
        user: &User,
        directory: &Handle,
        name: &[u8],
        set: &SetAttributes,
        wanted: Access
    ) -> Result<Option<MadeDirectory>>;
    fn symlink(
        user: &User,
        directory: &Handle,
        name: &[u8],
        target: &[u8],
        set: &SetAttributes
    ) -> Result<Option<Found>>;
    fn make_node(
        user: &User,
        directory: &Handle,
        name: &[u8],
        node: Node,
        set: &SetAttributes
    ) -> Result<Option<Found>>;
    fn remove(user: &User, directory: &Handle, name: &[u8]) -> Result<()>;
    fn remove_dir(user: &User, directory: &Handle, name: &[u8]) -> Result<()>;
    fn rename(user: &User, from: (&Handle, &[u8]), to: (&Handle, &[u8])) -> Result<()>;
    fn link(user: &User, file: &Handle, directory: &Handle, name: &[u8]) -> Result<()>;
    fn read_dir_page(
        user: &User,
        directory: &Handle,
        behind: (u64, [u8; 8]),
        count: u32,
        plus: Plus<'_>
    ) -> Result<Page>;
    fn first_pages(user: &User, directories: &[&Handle], count: u32) -> Result<Vec<DirectoryPage>>;
    fn fs_stat(user: &User, file: &Handle) -> Result<FsStat>;
    fn fs_info(user: &User, file: &Handle) -> Result<FsInfo>;
    fn path_conf(user: &User, file: &Handle) -> Result<PathConf>;
    fn acls(user: &User, file: &Handle) -> Result<PosixAcls>;
    fn set_acl(user: &User, file: &Handle, change: &SetAcl) -> Result<()>;
    fn fallocate(user: &User, file: &Handle, how: Fallocate, offset: u64, len: u64) -> Result<()>;
    fn advise(user: &User, file: &Handle, advice: Advice, offset: u64, len: u64) -> Result<()>;
    fn seek(user: &User, file: &Handle, to: SeekTo, offset: u64) -> Result<Option<u64>>;
    fn copy(user: &User, from: (&Handle, u64), to: (&Handle, u64), len: u64) -> Result<CopyReply>;
    fn clone_range(user: &User, from: (&Handle, u64), to: (&Handle, u64), len: u64) -> Result<()>;
    fn nfs4_acl(user: &User, file: &Handle) -> Result<Vec<u8>>;
    fn set_nfs4_acl(user: &User, file: &Handle, acl: &[u8]) -> Result<()>;
    fn get_xattr(user: &User, file: &Handle, name: &[u8]) -> Result<Vec<u8>>;
    fn set_xattr(user: &User, file: &Handle, name: &[u8], value: &[u8], how: SetXattr) -> Result<()>;
    fn list_xattrs(user: &User, file: &Handle, cookie: u64) -> Result<XattrPage>;
    fn remove_xattr(user: &User, file: &Handle, name: &[u8]) -> Result<()>;
    fn exports(user: &User) -> Result<Vec<ExportEntry>>;
    fn end(user: &User) -> ();
}
