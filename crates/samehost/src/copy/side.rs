//! The two ends of a copy: each is this machine or a server, and nobody above this module asks which.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use client::{Follow, Timestamp};

use super::{local, remote};
use crate::cli::Place;
use crate::connect::Connector;
use crate::exit::Failure;
use crate::human;

/// What kind of file it is, as far as a copy cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// Something that isn't copied: a device, a pipe, a socket.
    Other,
}

/// What a copy needs to know of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// What kind of file it is.
    pub kind: Kind,
    /// The twelve mode bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Its filesystem, as the side that it is on calls it.
    pub fsid: u64,
    /// Its number within its filesystem.
    pub fileid: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the data.
    pub mtime: Timestamp,
    /// Last change of anything.
    pub ctime: Timestamp,
}

impl Facts {
    /// Whether two names are most likely names of one file, though one was seen through a server and one
    /// wasn't: device numbers can't be compared then, but no two files have the same number, size and times
    /// to the nanosecond.
    pub fn same_file(&self, other: &Self) -> bool {
        (self.kind, self.fileid, self.size, self.mtime, self.ctime)
            == (other.kind, other.fileid, other.size, other.mtime, other.ctime)
    }
}

/// A file or directory that exists.
#[derive(Clone)]
pub enum At {
    /// On this machine.
    Local(PathBuf),
    /// On a server.
    Remote(remote::Spot),
}

/// A file or directory, and what is known of it.
#[derive(Clone)]
pub struct Item {
    /// Where it is.
    pub at: At,
    /// What it is.
    pub facts: Facts,
}

/// A directory's entry: its name, and what it is or why that can't be said.
pub type Entry = (Vec<u8>, Result<Item, Failure>);

/// A name in a directory that something is copied to.
#[derive(Clone)]
pub struct Goal {
    /// The directory.
    pub directory: At,
    /// The name in it.
    pub name: Vec<u8>,
    /// The user named it. What is found there may then be a symbolic link to the real goal; anywhere below it
    /// may not.
    pub named: bool,
    /// The directory was made by this copy, so there is nothing in it that one would have to look for.
    pub fresh: bool,
}

/// An open file.
pub enum Open {
    /// On this machine.
    Local(Arc<std::fs::File>),
    /// On a server.
    Remote(client::File),
}

impl At {
    /// Its name for people.
    pub fn show(&self) -> String {
        match self {
            At::Local(path) => local::show(path),
            At::Remote(spot) => spot.url.to_string(),
        }
    }

    /// A goal inside this directory, named by somebody else.
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
        Ok(Goal { directory: self.clone(), name: name.to_vec(), named: false, fresh })
    }

    /// What it is now.
    pub async fn facts(&self) -> Result<Facts, Failure> {
        match self {
            At::Local(path) => local::facts(path, Follow::No),
            At::Remote(spot) => spot.facts().await,
        }
    }

    /// Everything in this directory, by name, in no order. What can't be looked at is an error of its own.
    pub async fn list(&self) -> Result<Vec<Entry>, Failure> {
        match self {
            At::Local(path) => local::list(path),
            At::Remote(spot) => spot.list().await,
        }
    }

    /// Where this symbolic link points.
    pub async fn read_link(&self) -> Result<Vec<u8>, Failure> {
        match self {
            At::Local(path) => local::read_link(path),
            At::Remote(spot) => spot.read_link().await,
        }
    }

    /// Opens this regular file for reading.
    pub async fn open(&self) -> Result<Open, Failure> {
        match self {
            At::Local(path) => local::open(path).map(|file| Open::Local(Arc::new(file))),
            At::Remote(spot) => spot.open().await.map(Open::Remote),
        }
    }

    /// Gives it the lower nine bits of a mode.
    pub async fn set_mode(&self, mode: u32) -> Result<(), Failure> {
        match self {
            At::Local(path) => local::set_mode(path, mode),
            At::Remote(spot) => spot.set_mode(mode).await,
        }
    }

    /// Gives it everything that `--preserve` keeps. Another owner is only given where that is allowed.
    pub async fn preserve(&self, facts: &Facts) -> Result<(), Failure> {
        match self {
            At::Local(path) => local::preserve(path, facts),
            At::Remote(spot) => spot.preserve(facts).await,
        }
    }
}

impl Goal {
    /// The path of a goal on this machine.
    fn path(&self, directory: &Path) -> PathBuf {
        use std::os::unix::ffi::OsStrExt;
        directory.join(std::ffi::OsStr::from_bytes(&self.name))
    }

    /// Its name for people.
    pub fn show(&self) -> String {
        match &self.directory {
            At::Local(directory) => local::show(&self.path(directory)),
            At::Remote(spot) => spot.child_url(&self.name).to_string(),
        }
    }

    /// What stands there already.
    pub async fn existing(&self) -> Result<Option<Item>, Failure> {
        if self.fresh {
            return Ok(None);
        }
        let follow = if self.named { Follow::Yes } else { Follow::No };
        match &self.directory {
            At::Local(directory) => {
                let path = self.path(directory);
                let found = local::find(&path, follow)?;
                Ok(found.map(|facts| Item { at: At::Local(path), facts }))
            }
            At::Remote(spot) => spot.existing(&self.name, follow).await,
        }
    }

    /// Makes this directory, writable for its owner until [`At::set_mode`].
    pub async fn make_dir(&self, mode: u32) -> Result<At, Failure> {
        match &self.directory {
            At::Local(directory) => {
                let path = self.path(directory);
                local::make_dir(&path, mode)?;
                Ok(At::Local(path))
            }
            At::Remote(spot) => spot.make_dir(&self.name, mode).await.map(At::Remote),
        }
    }

    /// Makes this symbolic link.
    pub async fn make_link(&self, target: &[u8]) -> Result<(), Failure> {
        match &self.directory {
            At::Local(directory) => local::make_link(&self.path(directory), target),
            At::Remote(spot) => spot.make_link(&self.name, target).await,
        }
    }

    /// Removes the link or file that stands there.
    pub async fn remove(&self) -> Result<(), Failure> {
        match &self.directory {
            At::Local(directory) => local::remove(&self.path(directory)),
            At::Remote(spot) => spot.remove(&self.name).await,
        }
    }

    /// Opens this file for writing: made with `mode` if it is missing, emptied if it is not. Writable for its
    /// owner until [`At::set_mode`].
    pub async fn create(&self, mode: u32) -> Result<(Open, At), Failure> {
        match &self.directory {
            At::Local(directory) => {
                let path = self.path(directory);
                let file = local::create(&path, mode, self.named)?;
                Ok((Open::Local(Arc::new(file)), At::Local(path)))
            }
            At::Remote(spot) => {
                let (file, spot) = spot.create(&self.name, mode, self.named).await?;
                Ok((Open::Remote(file), At::Remote(spot)))
            }
        }
    }
}

/// What the user named as a source; `None` if there is nothing.
pub async fn source(connector: &Connector, place: &Place, follow: Follow) -> Result<Option<Item>, Failure> {
    match place {
        Place::Local(path) => {
            let slash = local::ends_with_slash(path);
            let found = local::find(path, if slash { Follow::Yes } else { follow })?;
            Ok(found.map(|facts| Item { at: At::Local(path.clone()), facts }))
        }
        Place::Remote(place) => remote::source(connector, &place.url, follow).await,
    }
}

/// What the user named as a goal: a directory that exists, or a name for what is to be made.
pub async fn goal(connector: &Connector, place: &Place) -> Result<Result<At, Goal>, Failure> {
    if let Some(item) = source(connector, place, Follow::Yes).await?
        && item.facts.kind == Kind::Directory
    {
        return Ok(Ok(item.at));
    }
    let (directory, name) = match place {
        Place::Local(path) => local::split(path).map(|(parent, name)| (At::Local(parent), name))?,
        Place::Remote(place) => {
            let (spot, name) = remote::split(connector, &place.url).await?;
            (At::Remote(spot), name)
        }
    };
    Ok(Err(Goal { directory, name, named: true, fresh: false }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_a_server_stay_inside() {
        let directory = At::Local("/tmp".into());
        for name in [&b""[..], b".", b"..", b"a/b", b"/etc/passwd", b"a\0b"] {
            assert!(directory.inside(name, false).is_err(), "{name:?}");
        }
        assert_eq!(directory.inside(b"..a", false).unwrap().show(), "/tmp/..a");
    }
}
