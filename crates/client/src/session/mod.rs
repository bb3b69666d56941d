//! A session: one server's export as one user sees it.

use std::sync::Arc;

use crate::counters::Counters;
use crate::error::Result;
use crate::file::File;
use crate::lane::LaneReport;
use crate::options::{OpenOptions, Options};
use crate::types::{
    Access, Attributes, Create, DirEntry, ExportEntry, Found, FsInfo, FsStat, Handle, Node, PathConf,
    SetAttributes, Timestamp,
};
use crate::url::Url;

/// What to do with a symbolic link at the end of a path. Links in the middle are always followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Follow {
    /// Go where it points.
    Yes,
    /// Take the link itself.
    No,
}

#[derive(Debug)]
struct Inner {}

/// A session with a server. Clones share it.
#[derive(Debug, Clone)]
pub struct Session {
    inner: Arc<Inner>,
}

/// A listing under way: pages come from the server as they are asked for.
#[derive(Debug)]
pub struct Directory {}

impl Directory {
    /// The next entry, `.` and `..` left out; `None` at the end.
    ///
    /// # Errors
    /// The server's or the call's.
    pub async fn next(&mut self) -> Result<Option<DirEntry>> {
        unimplemented!()
    }

    /// The rest of the entries at once.
    ///
    /// # Errors
    /// As [`Directory::next`].
    pub async fn collect(self) -> Result<Vec<DirEntry>> {
        unimplemented!()
    }
}

macro_rules! skeleton {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {
        impl Session {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// The server's or the call's.
                pub async fn $name(&self, $($arg: $type),*) -> Result<$result> {
                    let _ = ($($arg,)* &self.inner);
                    unimplemented!()
                }
            )*
        }
    };
}
skeleton! {
    /// GETATTR: a file's attributes.
    fn attributes(file: &Handle) -> Attributes;
    /// SETATTR: changes attributes; with `guard` only if the file's ctime is still that.
    fn set_attributes(file: &Handle, set: &SetAttributes, guard: Option<Timestamp>) -> Option<Attributes>;
    /// LOOKUP: a name in a directory.
    fn lookup(directory: &Handle, name: &[u8]) -> Found;
    /// ACCESS: which of the rights `wanted` the user has.
    fn access(file: &Handle, wanted: Access) -> Access;
    /// READLINK: where a symbolic link points.
    fn read_link(link: &Handle) -> Vec<u8>;
    /// CREATE: makes a regular file.
    fn create(directory: &Handle, name: &[u8], how: &Create) -> Found;
    /// MKDIR: makes a directory.
    fn make_dir(directory: &Handle, name: &[u8], set: &SetAttributes) -> Found;
    /// SYMLINK: makes a symbolic link to `target`.
    fn symlink(directory: &Handle, name: &[u8], target: &[u8], set: &SetAttributes) -> Found;
    /// MKNOD: makes a pipe, socket or device.
    fn make_node(directory: &Handle, name: &[u8], node: Node, set: &SetAttributes) -> Found;
    /// REMOVE: takes a name of a file away.
    fn remove(directory: &Handle, name: &[u8]) -> ();
    /// RMDIR: removes an empty directory.
    fn remove_dir(directory: &Handle, name: &[u8]) -> ();
    /// RENAME: moves a name, replacing what stands at the new one.
    fn rename(from_directory: &Handle, from: &[u8], to_directory: &Handle, to: &[u8]) -> ();
    /// LINK: another name for a file.
    fn link(file: &Handle, directory: &Handle, name: &[u8]) -> ();
    /// FSSTAT: how full the filesystem is.
    fn fs_stat(file: &Handle) -> FsStat;
    /// PATHCONF: limits of names.
    fn path_conf(file: &Handle) -> PathConf;
    /// FSINFO, asked anew.
    fn fs_info(file: &Handle) -> FsInfo;
    /// MOUNT's EXPORT: what the server exports to whom.
    fn exports() -> Vec<ExportEntry>;
    /// Follows `path` from the session's root.
    fn walk(path: &[u8], follow: Follow) -> Found;
    /// Follows `path` up to its last name: the directory's handle and that name (empty for the root itself).
    fn walk_parent(path: &[u8]) -> (Handle, Vec<u8>);
    /// Opens the file at `path`, from the session's root.
    fn open(path: &[u8], options: &OpenOptions) -> File;
    /// Opens the file `name` in a directory: one round trip over a lane.
    fn open_at(directory: &Handle, name: &[u8], options: &OpenOptions) -> File;
    /// Opens the file with this handle.
    fn open_handle(file: &Handle, options: &OpenOptions) -> File;
    /// Looks for a lane now, whatever the back-off says, and reports.
    fn probe() -> LaneReport;
    /// Tells the server that the export is no longer used, and closes the connections. Open files stay usable until
    /// they are dropped.
    fn close() -> ();
}

impl Session {
    /// Connects, mounts, asks for the sizes, and looks for a lane.
    ///
    /// # Errors
    /// Why that did not work.
    pub async fn connect(url: &Url, options: Options) -> Result<Self> {
        let _ = (url, options);
        unimplemented!()
    }

    /// Lists a directory: names only (READDIR), or with handles and attributes (READDIRPLUS).
    #[must_use]
    pub fn read_dir(&self, directory: &Handle, plus: bool) -> Directory {
        let _ = (directory, plus);
        unimplemented!()
    }

    /// The root of what was mounted.
    #[must_use]
    pub fn root(&self) -> Handle {
        unimplemented!()
    }

    /// What is left of the URL's path behind what was mounted: the URL named a file or something inside an export.
    #[must_use]
    pub fn target(&self) -> &[u8] {
        unimplemented!()
    }

    /// What the server said about sizes at the beginning.
    #[must_use]
    pub fn sizes(&self) -> FsInfo {
        unimplemented!()
    }

    /// Whether the session is local, and if not, why not.
    #[must_use]
    pub fn lane(&self) -> LaneReport {
        unimplemented!()
    }

    /// What the session has done so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        unimplemented!()
    }
}
