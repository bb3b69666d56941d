//! The two ways to a server's files that the tests compare: a session over the wire, and a tree of the same
//! directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::served::Served;
use crate::attribute_sink::{AttributeSink, AttributeUpdate};
use crate::options::{Credential, LaneMode, Options, Version};
use crate::session::Session;
use crate::tree::failure::Failure;
use crate::tree::local::{Call, LocalTree, Waits};
use crate::tree::user::TreeUsers;
use crate::types::{
    Access, Attributes, Create, Found, FsStat, Handle, LaneReport, Node, Page, Plus, PosixAcls, SetAcl,
    SetAttributes, SetXattr, Timestamp,
};
use crate::url::Url;
use crate::user::User;

/// An ordinary user.
pub const USER: u32 = 1000;

/// What the attribute sink has received.
#[derive(Debug, Default)]
pub struct Recorder(Mutex<Vec<(Handle, AttributeUpdate)>>);

impl AttributeSink for Recorder {
    fn attributes(&self, file: &Handle, update: &AttributeUpdate) {
        self.0.lock().push((file.clone(), *update));
    }

    fn lane_changed(&self, _: &LaneReport) {}
}

impl Recorder {
    pub fn take(&self) -> Vec<(Handle, AttributeUpdate)> {
        std::mem::take(&mut *self.0.lock())
    }
}

/// A server whose files can be used both ways.
pub struct Both {
    pub wire: Side,
    pub tree: Side,
    pub root: Handle,
    served: Served,
}

enum Way {
    Wire(tokio::runtime::Runtime, Session),
    Tree(Box<LocalTree>, TreeUsers, User),
}

/// One way, as one user.
pub struct Side {
    way: Way,
    pub seen: Arc<Recorder>,
}

impl Both {
    /// `None` if the server's handles can't be made by a client: it isn't root.
    pub fn new(uid: u32) -> Option<Self> {
        Self::by(uid, Version::V3)
    }

    /// As [`Both::new`], with a session of another version.
    pub fn by(uid: u32, version: Version) -> Option<Self> {
        let served = Served::new(false, "no_root_squash");
        let credential = if uid == rustix::process::geteuid().as_raw() {
            Credential::own()
        } else {
            Credential::Sys { uid, gid: uid, groups: vec![uid + 1] }
        };
        let url = Url::new("127.0.0.1", Some(served.port()), served.export().to_str()?.as_bytes());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        let seen = Arc::new(Recorder::default());
        let options = Options::new().version(version).lane(LaneMode::Off).attribute_sink(seen.clone());
        let session = runtime.block_on(Session::connect(&url, options.credential(credential.clone())));
        let session = session.expect("a session");
        let root = session.root();
        root.head()?;
        let fsid = runtime.block_on(session.attributes(&root)).expect("attributes").fsid;
        let wire = Side { way: Way::Wire(runtime, session), seen };
        let directory = fs::File::open(served.export()).expect("root may").into();
        let seen = Arc::new(Recorder::default());
        let local = LocalTree::new(directory, &root, fsid, 1000, Some(seen.clone())).expect("a tree");
        let way = Way::Tree(Box::new(local), TreeUsers::detect(), User::new(credential, &Arc::default()));
        Some(Self { wire, tree: Side { way, seen }, root, served })
    }

    /// The exported directory.
    pub fn path(&self) -> PathBuf {
        self.served.export()
    }
}

/// A tree of a scratch directory without a server, as the process's user, with the root's handle.
pub fn plain(budget: usize) -> (Side, Handle, tempfile::TempDir) {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory");
    let file: std::os::fd::OwnedFd = fs::File::open(dir.path()).expect("opens").into();
    let kernel = sys::KernelHandle::of(&file, c"").expect("a filesystem with handles");
    let kind = [u8::try_from(kernel.kind()).expect("a small number")];
    let bytes = [&[2, b'S', b'H', 1, 0, 0, 0, 5][..], &kind, kernel.as_bytes(), &[0; 16]].concat();
    let root = Handle::new(&bytes).expect("fits");
    let seen = Arc::new(Recorder::default());
    let local = LocalTree::new(file, &root, 0, budget, Some(seen.clone())).expect("a tree");
    let way = Way::Tree(Box::new(local), TreeUsers::detect(), User::new(Credential::own(), &Arc::default()));
    (Side { way, seen }, root, dir)
}

/// Makes a directory that belongs to the user.
pub fn make_dir_of(uid: u32, path: &Path) {
    fs::create_dir(path).expect("made");
    std::os::unix::fs::chown(path, Some(uid), Some(uid)).expect("root may");
}

/// Gives a directory the default list `u::rwx,g::r--,o::---`. False if the filesystem has no lists.
pub fn inherit_list(dir: &Path) -> bool {
    let entry = |tag: u16, permissions: u16| {
        let mut entry = tag.to_le_bytes().to_vec();
        entry.extend(permissions.to_le_bytes());
        entry.extend(u32::MAX.to_le_bytes());
        entry
    };
    let list = [&2_u32.to_le_bytes()[..], &entry(1, 7), &entry(4, 4), &entry(32, 0)].concat();
    rustix::fs::setxattr(dir, c"system.posix_acl_default", &list, rustix::fs::XattrFlags::empty()).is_ok()
}

/// Sends an operation to whichever way the side is; `$map` makes the tree's result the wire's.
macro_rules! operation {
    ($self:ident, $method:ident($($argument:expr),*)) => {
        operation!($self, $method($($argument),*), $method($($argument),*), |result| result)
    };
    ($self:ident, $method:ident($($argument:expr),*), $map:expr) => {
        operation!($self, $method($($argument),*), $method($($argument),*), $map)
    };
    ($self:ident, $wire:ident($($wire_argument:expr),*), $tree:ident($($argument:expr),*), $map:expr) => {
        match &$self.way {
            Way::Wire(runtime, session) => {
                let result = runtime.block_on(session.$wire($($wire_argument),*));
                result.map_err(|error| Failure::Status(error.status().unwrap_or_else(|| panic!("{error}"))))
            }
            Way::Tree(local, users, user) => users.run(user, |user| {
                local.$tree(Call { user, waits: Waits::Allowed, umask: 0 }, $($argument),*).map($map)
            }),
        }
    };
}

fn made(found: Option<Found>) -> Found {
    found.expect("its handle is known")
}

type Result<T> = std::result::Result<T, Failure>;

impl Side {
    pub fn local(&self) -> &LocalTree {
        match &self.way {
            Way::Wire(..) => panic!("not the tree"),
            Way::Tree(local, ..) => local,
        }
    }

    /// Runs `work` on the tree as the side's user.
    pub fn with_waits<T>(
        &self,
        waits: Waits,
        work: impl FnOnce(&LocalTree, Call<'_>) -> Result<T>,
    ) -> Result<T> {
        match &self.way {
            Way::Wire(..) => panic!("not the tree"),
            Way::Tree(local, users, user) => {
                users.run(user, |user| work(local, Call { user, waits, umask: 0 }))
            }
        }
    }

    pub fn lookup(&self, directory: &Handle, name: &[u8]) -> Result<Found> {
        operation!(self, lookup(directory, name))
    }

    pub fn attributes(&self, file: &Handle) -> Result<Attributes> {
        operation!(self, attributes(file))
    }

    pub fn set_attributes(
        &self,
        file: &Handle,
        set: &SetAttributes,
        guard: Option<Timestamp>,
    ) -> Result<Option<Attributes>> {
        operation!(self, set_attributes(file, set, guard), Some)
    }

    pub fn access(&self, file: &Handle, wanted: Access) -> Result<Access> {
        operation!(self, access(file, wanted))
    }

    pub fn read_link(&self, link: &Handle) -> Result<Vec<u8>> {
        operation!(self, read_link(link))
    }

    pub fn create(&self, directory: &Handle, name: &[u8], how: &Create) -> Result<Found> {
        operation!(self, create(directory, name, how), made)
    }

    pub fn make_dir(&self, directory: &Handle, name: &[u8], set: &SetAttributes) -> Result<Found> {
        operation!(self, make_dir(directory, name, set), made)
    }

    pub fn symlink(
        &self,
        directory: &Handle,
        name: &[u8],
        target: &[u8],
        set: &SetAttributes,
    ) -> Result<Found> {
        operation!(self, symlink(directory, name, target, set), made)
    }

    pub fn make_node(
        &self,
        directory: &Handle,
        name: &[u8],
        node: Node,
        set: &SetAttributes,
    ) -> Result<Found> {
        operation!(self, make_node(directory, name, node, set), make_node(directory, name, set, node), made)
    }

    pub fn remove(&self, directory: &Handle, name: &[u8]) -> Result<()> {
        operation!(self, remove(directory, name))
    }

    pub fn remove_dir(&self, directory: &Handle, name: &[u8]) -> Result<()> {
        operation!(self, remove_dir(directory, name))
    }

    pub fn rename(&self, from: (&Handle, &[u8]), to: (&Handle, &[u8])) -> Result<()> {
        operation!(self, rename(from.0, from.1, to.0, to.1))
    }

    pub fn link(&self, file: &Handle, directory: &Handle, name: &[u8]) -> Result<()> {
        operation!(self, link(file, directory, name))
    }

    pub fn read_dir_page(
        &self,
        directory: &Handle,
        behind: (u64, [u8; 8]),
        count: u32,
        plus: bool,
    ) -> Result<Page> {
        let plus = if plus { Plus::All } else { Plus::None };
        operation!(self, read_dir_page(directory, behind, count, plus))
    }

    pub fn fs_stat(&self, file: &Handle) -> Result<FsStat> {
        operation!(self, fs_stat(file))
    }

    pub fn xattr(&self, file: &Handle, name: &[u8]) -> Result<Vec<u8>> {
        operation!(self, xattr(file, name), get_xattr(file, name), |value| value)
    }

    pub fn set_xattr(&self, file: &Handle, name: &[u8], value: &[u8], how: SetXattr) -> Result<()> {
        operation!(self, set_xattr(file, name, value, how))
    }

    pub fn list_xattrs(&self, file: &Handle) -> Result<Vec<Vec<u8>>> {
        operation!(self, list_xattrs(file))
    }

    pub fn remove_xattr(&self, file: &Handle, name: &[u8]) -> Result<()> {
        operation!(self, remove_xattr(file, name))
    }

    pub fn acls(&self, file: &Handle) -> Result<PosixAcls> {
        operation!(self, acls(file))
    }

    pub fn set_acl(&self, file: &Handle, change: &SetAcl) -> Result<()> {
        operation!(self, set_acl(file, change))
    }
}
