//! The ends of a copy, each local or on a server, behind one interface.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use client::{Follow, Timestamp};

use super::{local, remote};
use crate::ancestors::FileId;
use crate::cli::Operand;
use crate::connect::{Connector, names_directory};
use crate::exit::Failure;
use crate::human;

/// The types of files that a copy distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A device, a pipe or a socket, which isn't copied.
    Other,
}

/// The attributes of a file that a copy uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The type.
    pub kind: EntryKind,
    /// The twelve mode bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// The filesystem, by its end's number.
    pub fsid: u64,
    /// The file's number within the filesystem.
    pub fileid: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last modification of the data.
    pub mtime: Timestamp,
    /// Last change of the data or the attributes.
    pub ctime: Timestamp,
}

impl Facts {
    /// The file's number with that of its filesystem.
    pub fn file_id(&self) -> FileId {
        (self.fsid, self.fileid)
    }

    /// Whether two names are most likely names of one file, one seen through a server and one not. Their
    /// device numbers can't be compared, but two files hardly have the same number, size and times to the
    /// nanosecond.
    pub fn same_file(&self, other: &Self) -> bool {
        (self.kind, self.fileid, self.size, self.mtime, self.ctime)
            == (other.kind, other.fileid, other.size, other.mtime, other.ctime)
    }
}

/// A file or directory that exists.
#[derive(Clone)]
pub enum Location {
    /// Local.
    Local(PathBuf),
    /// On a server.
    Remote(remote::RemoteFile),
}

/// A file or directory with its attributes.
#[derive(Clone)]
pub struct CopyItem {
    /// Its end and name.
    pub at: Location,
    /// Its attributes.
    pub facts: Facts,
}

/// A directory's entry: its name, and its item or the failure to look at it.
pub type CopyEntry = (Vec<u8>, Result<CopyItem, Failure>);

/// The name in a directory to which a file is copied.
#[derive(Clone)]
pub struct Goal {
    /// The directory.
    pub directory: Location,
    /// The name in it.
    pub name: Vec<u8>,
    /// The user named it, so a symbolic link there is followed; below it none is.
    pub named: bool,
    /// This copy has made the directory, so it has no other entries.
    pub fresh: bool,
    /// The name can only be a directory's: the user named it with a slash at its end.
    pub directory_only: bool,
}

/// An open file.
pub enum Open {
    /// Local.
    Local(Arc<std::fs::File>),
    /// On a server.
    Remote(client::File),
}

impl Open {
    /// Its number with that of its filesystem.
    pub async fn file_id(&self) -> client::Result<FileId> {
        match self {
            Open::Local(file) => local::file_id(file),
            Open::Remote(file) => {
                let attributes = match file.attributes_at_open() {
                    Some(attributes) => attributes,
                    None => file.attributes().await?,
                };
                Ok((attributes.fsid, attributes.fileid))
            }
        }
    }

    /// Removes its contents.
    pub async fn truncate(&self) -> client::Result<()> {
        match self {
            Open::Local(file) => local::truncate(file),
            Open::Remote(file) => file.set_len(0).await,
        }
    }
}

impl CopyItem {
    /// Opens this regular file for reading.
    pub async fn open(&self) -> Result<Open, Failure> {
        match &self.at {
            Location::Local(path) => local::open(path).map(|file| Open::Local(Arc::new(file))),
            Location::Remote(remote) => remote.open(&self.facts).await.map(Open::Remote),
        }
    }
}

impl Location {
    /// Its path or URL.
    pub fn show(&self) -> String {
        match self {
            Location::Local(path) => local::show(path),
            Location::Remote(remote) => remote.url.to_string(),
        }
    }

    /// A goal inside this directory, with a name from the source.
    pub fn inside(&self, name: &[u8], fresh: bool) -> Result<Goal, Failure> {
        let dangerous =
            name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') || name.contains(&0);
        if dangerous {
            return Err(Failure::new(
                self.show(),
                format!("has an entry with the name '{}'", human::name(name)),
            )
            .next("such a name can only come from a broken or hostile server; nothing was copied for it"));
        }
        let (directory, name) = (self.clone(), name.to_vec());
        Ok(Goal { directory, name, named: false, fresh, directory_only: false })
    }

    /// Its present attributes.
    pub async fn facts(&self) -> Result<Facts, Failure> {
        match self {
            Location::Local(path) => local::facts(path, Follow::No),
            Location::Remote(remote) => remote.facts().await,
        }
    }

    /// As [`Location::facts`], also if a mount shows older ones for a while.
    pub async fn current_facts(&self) -> Result<Facts, Failure> {
        match self {
            Location::Local(path) => local::current_facts(path),
            Location::Remote(remote) => remote.facts().await,
        }
    }

    /// The entries of this directory, in no order. Each may have an error of its own.
    pub async fn list(&self) -> Result<Vec<CopyEntry>, Failure> {
        match self {
            Location::Local(path) => local::list(path),
            Location::Remote(remote) => remote.list().await,
        }
    }

    /// The target of this symbolic link.
    pub async fn read_link(&self) -> Result<Vec<u8>, Failure> {
        match self {
            Location::Local(path) => local::read_link(path),
            Location::Remote(remote) => remote.read_link().await,
        }
    }

    /// Sets the lower nine bits of its mode.
    pub async fn set_mode(&self, mode: u32) -> Result<(), Failure> {
        match self {
            Location::Local(path) => local::set_mode(path, mode),
            Location::Remote(remote) => remote.set_mode(mode).await,
        }
    }

    /// Sets everything that `--preserve` keeps; the owner only if that is permitted.
    pub async fn preserve(&self, facts: &Facts) -> Result<(), Failure> {
        match self {
            Location::Local(path) => local::preserve(path, facts),
            Location::Remote(remote) => remote.preserve(facts).await,
        }
    }
}

impl Goal {
    /// The path of a local goal.
    fn path(&self, directory: &Path) -> PathBuf {
        use std::os::unix::ffi::OsStrExt;
        directory.join(std::ffi::OsStr::from_bytes(&self.name))
    }

    /// Its path or URL.
    pub fn show(&self) -> String {
        match &self.directory {
            Location::Local(directory) => local::show(&self.path(directory)),
            Location::Remote(remote) => remote.child_url(&self.name).to_string(),
        }
    }

    /// The existing file of that name.
    pub async fn existing(&self) -> Result<Option<CopyItem>, Failure> {
        if self.fresh {
            return Ok(None);
        }
        let follow = if self.named { Follow::Yes } else { Follow::No };
        match &self.directory {
            Location::Local(directory) => {
                let path = self.path(directory);
                let found = local::find(&path, follow)?;
                Ok(found.map(|facts| CopyItem { at: Location::Local(path), facts }))
            }
            Location::Remote(remote) => remote.existing(&self.name, follow).await,
        }
    }

    /// Makes this directory, writable for its owner until [`Location::set_mode`].
    pub async fn make_dir(&self, mode: u32) -> Result<Location, Failure> {
        match &self.directory {
            Location::Local(directory) => {
                let path = self.path(directory);
                local::make_dir(&path, mode)?;
                Ok(Location::Local(path))
            }
            Location::Remote(remote) => remote.make_dir(&self.name, mode).await.map(Location::Remote),
        }
    }

    /// Makes this symbolic link.
    pub async fn make_link(&self, target: &[u8]) -> Result<(), Failure> {
        match &self.directory {
            Location::Local(directory) => local::make_link(&self.path(directory), target),
            Location::Remote(remote) => remote.make_link(&self.name, target).await,
        }
    }

    /// Removes the existing link or file.
    pub async fn remove(&self) -> Result<(), Failure> {
        match &self.directory {
            Location::Local(directory) => local::remove(&self.path(directory)),
            Location::Remote(remote) => remote.remove(&self.name).await,
        }
    }

    /// Opens this file for writing: created with `mode`, or truncated if it exists. Writable for its owner
    /// until [`Location::set_mode`].
    pub async fn create(&self, mode: u32) -> Result<(Open, Location), Failure> {
        match &self.directory {
            Location::Local(directory) => {
                let path = self.path(directory);
                let file = local::create(&path, mode, self.named)?;
                Ok((Open::Local(Arc::new(file)), Location::Local(path)))
            }
            Location::Remote(remote) => {
                let (file, remote) = remote.create(&self.name, mode, self.named).await?;
                Ok((Open::Remote(file), Location::Remote(remote)))
            }
        }
    }
}

/// The source that the user named; `None` if it doesn't exist.
pub async fn source(
    connector: &Connector,
    operand: &Operand,
    follow: Follow,
) -> Result<Option<CopyItem>, Failure> {
    match operand {
        Operand::Local(path) => {
            let is_directory = local::names_directory(path);
            let found = local::find(path, if is_directory { Follow::Yes } else { follow })?;
            Ok(found.map(|facts| CopyItem { at: Location::Local(path.clone()), facts }))
        }
        Operand::Remote(operand) => remote::source(connector, &operand.url, follow).await,
    }
}

/// The goal that the user named: an existing directory, or the name of what is to be made.
pub async fn goal(connector: &Connector, operand: &Operand) -> Result<Result<Location, Goal>, Failure> {
    if let Some(item) = source(connector, operand, Follow::Yes).await?
        && item.facts.kind == EntryKind::Directory
    {
        return Ok(Ok(item.at));
    }
    let (directory, name, directory_only) = match operand {
        Operand::Local(path) => {
            let (parent, name) = local::split(path)?;
            (Location::Local(parent), name, local::names_directory(path))
        }
        Operand::Remote(operand) => {
            let (remote, name) = remote::split(connector, &operand.url).await?;
            (Location::Remote(remote), name, names_directory(&operand.url))
        }
    };
    Ok(Err(Goal { directory, name, named: true, fresh: false, directory_only }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_a_server_cannot_leave_the_goal() {
        let directory = Location::Local("/tmp".into());
        for name in [&b""[..], b".", b"..", b"a/b", b"/etc/passwd", b"a\0b"] {
            assert!(directory.inside(name, false).is_err(), "{name:?}");
        }
        assert_eq!(directory.inside(b"..a", false).unwrap().show(), "/tmp/..a");
    }
}
