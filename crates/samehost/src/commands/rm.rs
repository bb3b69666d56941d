//! `rm`: removes files and, with -r, whole trees.

use client::{Attributes, DirEntry, Error, FileKind, Handle, Plus, Session, Status, Url};
use futures_util::{StreamExt, stream};

use crate::ancestors::{Ancestors, FileId};
use crate::cli::{Global, RmArgs};
use crate::connect::{Connector, child, failure, names_directory, not_a_directory};
use crate::exit::{CommandResult, Failure};
use crate::output::Reporter;

/// Removals in flight.
const MAX_IN_FLIGHT: usize = 16;

/// Removes all targets.
pub async fn rm(global: &Global, args: RmArgs) -> CommandResult {
    let connector = Connector::new(global, &args.session);
    let reporter = Reporter::new(indicatif::MultiProgress::new());
    for target in &args.targets {
        if let Err(failure) = one(&connector, &args, &target.url, &reporter).await {
            reporter.report(&failure);
        }
    }
    connector.close().await;
    Ok(reporter.exit())
}

async fn one(connector: &Connector, args: &RmArgs, url: &Url, reporter: &Reporter) -> Result<(), Failure> {
    let target = connector.target_name(url).await?;
    let found = match target.session.lookup(&target.directory, &target.name).await {
        Err(error) if args.force && error.status() == Some(Status::NoEntry) => return Ok(()),
        found => found.map_err(|error| failure(url, error))?,
    };
    let attributes = match found.attributes {
        Some(attributes) => attributes,
        None => target.session.attributes(&found.handle).await.map_err(|error| failure(url, error))?,
    };
    if attributes.kind != FileKind::Directory {
        if names_directory(url) {
            return Err(failure(url, not_a_directory(url)));
        }
        return target
            .session
            .remove(&target.directory, &target.name)
            .await
            .map_err(|error| failure(url, error));
    }
    if !args.recursive {
        return Err(Failure::new(url.to_string(), "is a directory").next("use rm -r"));
    }
    let parent = target.session.attributes(&target.directory).await.map_err(|error| failure(url, error))?;
    let (parent_fsid, url) = (parent.fsid, url.clone());
    let top = PendingDirectory { parent: target.directory, name: target.name, url, parent_fsid, depth: 0 };
    Removal { session: &target.session, reporter, force: args.force }.remove_tree(top).await;
    Ok(())
}

/// A directory to be removed.
struct PendingDirectory {
    parent: Handle,
    name: Vec<u8>,
    url: Url,
    /// The filesystem of the directory above.
    parent_fsid: u64,
    depth: usize,
}

/// What is to be done with a directory.
enum RemovalStep {
    /// Its contents are to be removed.
    Empty(PendingDirectory),
    /// It is to be removed itself.
    Remove(PendingDirectory),
}

/// What the removal of a directory's contents has come to.
enum Emptied {
    /// The directory is gone, or isn't where it was.
    Gone,
    /// It stays as it is.
    Stays,
    /// Its entries other than directories were tried. `below` are the directories.
    Tried { below: Vec<PendingDirectory>, all_removed: bool },
}

/// The removal of trees. Failures are reported and don't stop the rest.
struct Removal<'a> {
    session: &'a Session,
    reporter: &'a Reporter,
    force: bool,
}

impl Removal<'_> {
    /// Reports a failure, unless `force` says not to. Returns whether the file is left.
    fn failed(&self, url: &Url, error: Error) -> bool {
        let is_gone = error.status() == Some(Status::NoEntry);
        if !is_gone || !self.force {
            self.reporter.report(&failure(url, error));
        }
        !is_gone
    }

    /// Removes `top` from the leaves up. Directories above what is left aren't tried.
    async fn remove_tree(&self, top: PendingDirectory) {
        let mut stack = vec![RemovalStep::Empty(top)];
        let mut ancestors = Ancestors::default();
        // How many directories stay, from the top down to the present one. A depth counts those above.
        let mut staying = 0;
        while let Some(step) = stack.pop() {
            match step {
                RemovalStep::Empty(directory) => match self.empty(&directory, &mut ancestors).await {
                    Emptied::Gone => {}
                    Emptied::Stays => staying = directory.depth,
                    Emptied::Tried { below, all_removed } => {
                        if !all_removed {
                            staying = directory.depth + 1;
                        }
                        stack.push(RemovalStep::Remove(directory));
                        stack.extend(below.into_iter().map(RemovalStep::Empty));
                    }
                },
                RemovalStep::Remove(directory) => {
                    if staying > directory.depth {
                        staying = directory.depth;
                    } else if let Err(error) = self.remove_dir(&directory).await
                        && self.failed(&directory.url, error)
                    {
                        staying = directory.depth;
                    }
                }
            }
        }
    }

    async fn remove_dir(&self, directory: &PendingDirectory) -> client::Result<()> {
        self.session.remove_dir(&directory.parent, &directory.name).await
    }

    /// Removes the entries of a directory other than directories.
    async fn empty(&self, directory: &PendingDirectory, ancestors: &mut Ancestors) -> Emptied {
        let left = |error| if self.failed(&directory.url, error) { Emptied::Stays } else { Emptied::Gone };
        let (handle, file) = match self.enter(directory).await {
            Ok(Some(entered)) => entered,
            Ok(None) => return Emptied::Gone,
            Err(error) => return left(error),
        };
        let refusal = if file.0 == directory.parent_fsid {
            let refusal = ancestors.check(directory.depth, file).err();
            refusal.map(|refusal| refusal.failure(&directory.url.to_string(), "removed"))
        } else {
            Some(another_filesystem(&directory.url))
        };
        if let Some(refusal) = refusal {
            self.reporter.report(&refusal);
            return Emptied::Stays;
        }
        ancestors.enter(directory.depth, file);
        // The whole list first, because not every server's cookies survive removals.
        match self.session.read_dir(&handle, Plus::Kinds).collect().await {
            Ok(entries) => self.remove_entries(directory, &handle, file.0, entries).await,
            // An empty directory can be removed by who may not read it.
            Err(error) => match self.remove_dir(directory).await {
                Ok(()) => Emptied::Gone,
                Err(_) => left(error),
            },
        }
    }

    /// Finds a directory by its name just before its contents are removed. A listing has shown it some time
    /// ago, and by now it may have been moved out of the tree. `None`: there is nothing to be emptied.
    async fn enter(&self, directory: &PendingDirectory) -> client::Result<Option<(Handle, FileId)>> {
        let (handle, attributes) = self.find(&directory.parent, &directory.name).await?;
        if attributes.kind != FileKind::Directory {
            self.session.remove(&directory.parent, &directory.name).await?;
            return Ok(None);
        }
        Ok(Some((handle, (attributes.fsid, attributes.fileid))))
    }

    async fn find(&self, directory: &Handle, name: &[u8]) -> client::Result<(Handle, Attributes)> {
        let found = self.session.lookup(directory, name).await?;
        let attributes = match found.attributes {
            Some(attributes) => attributes,
            None => self.session.attributes(&found.handle).await?,
        };
        Ok((found.handle, attributes))
    }

    async fn remove_entries(
        &self,
        directory: &PendingDirectory,
        handle: &Handle,
        fsid: u64,
        entries: Vec<DirEntry>,
    ) -> Emptied {
        let mut ended = stream::iter(entries)
            .map(|entry| async move {
                let removed = self.is_removed(handle, &entry).await;
                (entry.name, removed)
            })
            .buffer_unordered(MAX_IN_FLIGHT);
        let (mut below, mut all_removed) = (Vec::new(), true);
        while let Some((name, removed)) = ended.next().await {
            let url = child(&directory.url, &name);
            match removed {
                Ok(true) => {}
                Ok(false) => below.push(PendingDirectory {
                    parent: handle.clone(),
                    name,
                    url,
                    parent_fsid: fsid,
                    depth: directory.depth + 1,
                }),
                Err(error) => all_removed &= !self.failed(&url, error),
            }
        }
        Emptied::Tried { below, all_removed }
    }

    /// Removes an entry of a directory. Returns false if it is a directory, which stays.
    async fn is_removed(&self, directory: &Handle, entry: &DirEntry) -> client::Result<bool> {
        let kind = match entry.kind {
            Some(kind) => kind,
            None => self.find(directory, &entry.name).await?.1.kind,
        };
        if kind == FileKind::Directory {
            return Ok(false);
        }
        self.session.remove(directory, &entry.name).await.map(|()| true)
    }
}

/// The refusal of a directory with another filesystem than the one above it. It can't be removed itself, so a
/// removal of its contents is hardly what was meant.
fn another_filesystem(url: &Url) -> Failure {
    Failure::new(url.to_string(), "is an export or another filesystem, and isn't removed")
        .next("name what is to be removed in it")
}
