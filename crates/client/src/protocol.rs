//! The implementations of [`Operations`] that a session uses.

use bytes::Bytes;
use io::Stability;

use crate::error::Result;
use crate::nfs3::Nfs3;
use crate::operations::{Operations, ReadReply, WriteReply};
use crate::tree::Tree;
use crate::types::{
    Access, AclEntry, Attributes, Create, ExportEntry, Found, FsInfo, FsStat, Handle, Node, Page, PathConf,
    SetAttributes, Timestamp,
};
use crate::user::User;

/// An NFS version over the wire, or a directory tree on this host.
#[derive(Debug)]
pub(crate) enum Protocol {
    Nfs3(Nfs3),
    Tree(Tree),
}

impl Protocol {
    /// The tree, if it is one.
    pub(crate) const fn as_tree(&self) -> Option<&Tree> {
        match self {
            Self::Nfs3(_) => None,
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
                        Self::Nfs3(nfs) => nfs.$method($($argument),*).await,
                        Self::Tree(tree) => tree.$method($($argument),*).await,
                    }
                }
            )*
        }
    };
}

forward! {
    fn null(user: &User) -> Result<()>;
    fn attributes(user: &User, file: &Handle) -> Result<Attributes>;
    fn set_attributes(
        user: &User,
        file: &Handle,
        set: &SetAttributes,
        guard: Option<Timestamp>
    ) -> Result<Option<Attributes>>;
    fn lookup(user: &User, directory: &Handle, name: &[u8]) -> Result<Found>;
    fn access(user: &User, file: &Handle, wanted: Access) -> Result<Access>;
    fn read_link(user: &User, link: &Handle) -> Result<Vec<u8>>;
    fn read(user: &User, file: &Handle, offset: u64, len: usize, buffer: Vec<u8>) -> Result<ReadReply>;
    fn write(
        user: &User,
        file: &Handle,
        offset: u64,
        data: Bytes,
        stability: Stability
    ) -> Result<WriteReply>;
    fn commit(user: &User, file: &Handle) -> Result<[u8; 8]>;
    fn create(user: &User, directory: &Handle, name: &[u8], mode: &Create) -> Result<Option<Found>>;
    fn make_dir(user: &User, directory: &Handle, name: &[u8], set: &SetAttributes) -> Result<Option<Found>>;
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
        plus: bool
    ) -> Result<Page>;
    fn fs_stat(user: &User, file: &Handle) -> Result<FsStat>;
    fn fs_info(user: &User, file: &Handle) -> Result<FsInfo>;
    fn path_conf(user: &User, file: &Handle) -> Result<PathConf>;
    fn acl(user: &User, file: &Handle) -> Result<Vec<AclEntry>>;
    fn exports(user: &User) -> Result<Vec<ExportEntry>>;
    fn end(user: &User) -> ();
}
