//! The remote end of a copy.

use client::{
    Attributes, DirEntry, Error, File, FileKind, Follow, Found, Handle, OpenOptions, Plus, Session,
    SetAttributes, SetTime, Status, Url, Version,
};

use super::location::{CopyEntry, CopyItem, EntryKind, Facts, Location};
use crate::connect::{self, Connector, child, failure};
use crate::exit::{Exit, Failure};

/// A file on a server.
#[derive(Clone)]
pub struct RemoteFile {
    /// A session with the server.
    pub session: Session,
    /// Its URL.
    pub url: Url,
    found_by: FoundBy,
}

/// How a file on a server is found again.
#[derive(Clone)]
enum FoundBy {
    Handle(Handle),
    /// An entry of this directory that was listed without its handle.
    Listed(Handle, Box<DirEntry>),
}

/// The file that `url` names; `None` if there is none.
pub async fn source(connector: &Connector, url: &Url, follow: Follow) -> Result<Option<CopyItem>, Failure> {
    let (session, found) = connector.look(url, follow).await?;
    let found = match found {
        Err(error) if error.status() == Some(Status::NoEntry) => return Ok(None),
        found => found.map_err(|error| failure(url, error))?,
    };
    item(session, url.clone(), found).await.map(Some)
}

/// The parent directory of `url`, and the name in it.
pub async fn split(connector: &Connector, url: &Url) -> Result<(RemoteFile, Vec<u8>), Failure> {
    let connect::TargetName { session, directory, name } = connector.target_name(url).await?;
    let mut parent = url.path();
    while let Some(rest) = parent.strip_suffix(b"/") {
        parent = rest;
    }
    let parent = url.with_path(parent.strip_suffix(&name[..]).unwrap_or(parent));
    Ok((RemoteFile::new(session, directory, parent), name))
}

async fn item(session: Session, url: Url, found: Found) -> Result<CopyItem, Failure> {
    let attributes = match found.attributes {
        Some(attributes) => attributes,
        None => session.attributes(&found.handle).await.map_err(|error| failure(&url, error))?,
    };
    Ok(CopyItem {
        facts: attributes_to_facts(&attributes),
        at: Location::Remote(RemoteFile::new(session, found.handle, url)),
    })
}

fn attributes_to_facts(attributes: &Attributes) -> Facts {
    Facts {
        kind: match attributes.kind {
            FileKind::Regular => EntryKind::File,
            FileKind::Directory => EntryKind::Directory,
            FileKind::Symlink => EntryKind::Link,
            FileKind::Block | FileKind::Character | FileKind::Socket | FileKind::Fifo => EntryKind::Other,
        },
        mode: attributes.mode & 0o7777,
        uid: attributes.uid,
        gid: attributes.gid,
        size: attributes.size,
        fsid: attributes.fsid,
        fileid: attributes.fileid,
        atime: attributes.atime,
        mtime: attributes.mtime,
        ctime: attributes.ctime,
    }
}

impl RemoteFile {
    fn new(session: Session, handle: Handle, url: Url) -> Self {
        Self { session, url, found_by: FoundBy::Handle(handle) }
    }

    /// Its handle. A listed entry is looked up; another file may have its name by now.
    pub async fn handle(&self) -> Result<Handle, Failure> {
        match &self.found_by {
            FoundBy::Handle(handle) => Ok(handle.clone()),
            FoundBy::Listed(directory, entry) => {
                let found = self.session.lookup(directory, &entry.name).await;
                found.map(|found| found.handle).map_err(self.to_failure())
            }
        }
    }

    fn to_failure(&self) -> impl Fn(Error) -> Failure + '_ {
        |error| failure(&self.url, error)
    }

    pub fn child_url(&self, name: &[u8]) -> Url {
        child(&self.url, name)
    }

    pub async fn facts(&self) -> Result<Facts, Failure> {
        let attributes = self.session.attributes(&self.handle().await?).await;
        attributes.map(|attributes| attributes_to_facts(&attributes)).map_err(self.to_failure())
    }

    pub async fn list(&self) -> Result<Vec<CopyEntry>, Failure> {
        let directory = self.handle().await?;
        let mut listing = self.session.read_dir(&directory, Plus::Attributes);
        let mut entries = Vec::new();
        while let Some(entry) = listing.next().await.map_err(self.to_failure())? {
            let url = self.child_url(&entry.name);
            let name = entry.name.clone();
            entries.push((name, self.listed(&directory, entry, url).await));
        }
        Ok(entries)
    }

    /// The item of an entry of this directory.
    async fn listed(&self, directory: &Handle, entry: DirEntry, url: Url) -> Result<CopyItem, Failure> {
        let session = self.session.clone();
        let found = match (&entry.handle, &entry.attributes) {
            (Some(handle), _) => Found { handle: handle.clone(), attributes: entry.attributes },
            (None, Some(attributes)) if attributes.kind == FileKind::Regular => {
                let facts = attributes_to_facts(attributes);
                let found_by = FoundBy::Listed(directory.clone(), Box::new(entry));
                return Ok(CopyItem { facts, at: Location::Remote(Self { session, url, found_by }) });
            }
            (None, _) => {
                session.lookup(directory, &entry.name).await.map_err(|error| failure(&url, error))?
            }
        };
        item(session, url, found).await
    }

    pub async fn read_link(&self) -> Result<Vec<u8>, Failure> {
        self.session.read_link(&self.handle().await?).await.map_err(self.to_failure())
    }

    /// Opens this regular file for reading, which had these attributes when it was found.
    pub async fn open(&self, facts: &Facts) -> Result<File, Failure> {
        let reading = OpenOptions::reading();
        let opened = match &self.found_by {
            FoundBy::Handle(handle) => self.session.open_handle(handle, self.url.path(), &reading).await,
            FoundBy::Listed(directory, entry) => self.session.open_listed(directory, entry, &reading).await,
        };
        let file = opened.map_err(self.to_failure())?;
        // The copy gets the mode of the file that was found.
        let is_another = |now: Attributes| (now.fsid, now.fileid) != facts.file_id();
        if matches!(self.found_by, FoundBy::Listed(..)) && file.attributes_at_open().is_some_and(is_another) {
            let failure = Failure::new(self.url.to_string(), "was replaced while it was copied");
            return Err(failure.next("copy it again"));
        }
        Ok(file)
    }

    /// This file, which is open as `file`, opened once more in the session of `goal` on the same server. That
    /// can then copy by itself. `None` if it can't: it doesn't speak NFSv4.2, or the URLs have other options.
    pub async fn open_beside(&self, file: &File, goal: &Self) -> Option<File> {
        let root = |file: &Self| file.url.with_path(b"/").to_string();
        if goal.session.version() != Version::V4_2 || root(self) != root(goal) {
            return None;
        }
        let reading = OpenOptions::reading();
        goal.session.open_handle(&file.handle(), self.url.path(), &reading).await.ok()
    }

    pub async fn existing(&self, name: &[u8], follow: Follow) -> Result<Option<CopyItem>, Failure> {
        let url = self.child_url(name);
        let found = match self.session.lookup(&self.handle().await?, name).await {
            Err(error) if error.status() == Some(Status::NoEntry) => return Ok(None),
            found => found.map_err(|error| failure(&url, error))?,
        };
        let there = item(self.session.clone(), url, found).await?;
        if there.facts.kind == EntryKind::Link && follow == Follow::Yes {
            // A link that the user named is followed. If its target doesn't exist, that file is made.
            let Location::Remote(remote) = &there.at else { return Ok(Some(there)) };
            let target = remote.read_link().await?;
            return self.follow(&target).await;
        }
        Ok(Some(there))
    }

    /// The target of a link in this directory. Longer chains are left to [`Session::open`].
    async fn follow(&self, target: &[u8]) -> Result<Option<CopyItem>, Failure> {
        if target.contains(&b'/') {
            return Ok(None);
        }
        Box::pin(self.existing(target, Follow::No)).await
    }

    pub async fn make_dir(&self, name: &[u8], mode: u32) -> Result<RemoteFile, Failure> {
        let url = self.child_url(name);
        let set = SetAttributes { mode: Some(mode | 0o700), ..SetAttributes::default() };
        let directory = self.handle().await?;
        match self.session.make_dir(&directory, name, &set).await {
            Ok(found) => Ok(Self::new(self.session.clone(), found.handle, url)),
            Err(error) if error.status() == Some(Status::Exists) => {
                let found =
                    self.session.lookup(&directory, name).await.map_err(|error| failure(&url, error))?;
                let there = item(self.session.clone(), url, found).await?;
                match there.at {
                    Location::Remote(remote) if there.facts.kind == EntryKind::Directory => Ok(remote),
                    at => Err(Failure::new(at.show(), "exists and is not a directory")),
                }
            }
            Err(error) => Err(failure(&url, error)),
        }
    }

    pub async fn make_link(&self, name: &[u8], target: &[u8]) -> Result<(), Failure> {
        let directory = self.handle().await?;
        let made = self.session.symlink(&directory, name, target, &SetAttributes::default()).await;
        made.map(drop).map_err(|error| failure(&self.child_url(name), error))
    }

    pub async fn remove(&self, name: &[u8]) -> Result<(), Failure> {
        let removed = self.session.remove(&self.handle().await?, name).await;
        removed.map_err(|error| failure(&self.child_url(name), error))
    }

    pub async fn create(&self, name: &[u8], mode: u32, named: bool) -> Result<(File, RemoteFile), Failure> {
        let url = self.child_url(name);
        let options = OpenOptions::replacing().mode(mode | 0o200).no_follow(!named);
        let opened = self.session.open_at(&self.handle().await?, name, &options).await;
        let file = opened.map_err(|error| failure(&url, error))?;
        let remote = Self::new(self.session.clone(), file.handle(), url);
        Ok((file, remote))
    }

    pub async fn set_mode(&self, mode: u32) -> Result<(), Failure> {
        self.set(&SetAttributes { mode: Some(mode), ..SetAttributes::default() }).await
    }

    async fn set(&self, set: &SetAttributes) -> Result<(), Failure> {
        let set = self.session.set_attributes(&self.handle().await?, set, None).await;
        set.map(drop).map_err(self.to_failure())
    }

    pub async fn preserve(&self, facts: &Facts) -> Result<(), Failure> {
        let owner = SetAttributes { uid: Some(facts.uid), gid: Some(facts.gid), ..SetAttributes::default() };
        let given = match self.session.set_attributes(&self.handle().await?, &owner, None).await {
            Ok(_) => true,
            Err(error)
                if matches!(
                    error.status(),
                    Some(Status::NotPermitted | Status::Access | Status::Invalid)
                ) =>
            {
                false
            }
            Err(error) => return Err(failure(&self.url, error)),
        };
        // A set-id bit would give another owner's rights than the original's.
        let mode = if given { facts.mode } else { facts.mode & 0o1777 };
        let set = SetAttributes {
            mode: (facts.kind != EntryKind::Link).then_some(mode),
            atime: Some(SetTime::To(facts.atime)),
            mtime: Some(SetTime::To(facts.mtime)),
            ..SetAttributes::default()
        };
        self.set(&set).await
    }
}

/// Whether `failure` makes further calls to this server useless.
pub fn is_gone(failure: &Failure) -> bool {
    failure.exit == Exit::Unreachable
}
