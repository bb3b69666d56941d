//! `rm`: removes files and, with -r, whole trees.

use client::{DirEntry, FileKind, Handle, Plus, Session, Status, Url};
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
    if parent.fsid != attributes.fsid {
        return Err(another_filesystem(url));
    }
    let top = PendingDirectory {
        parent: target.directory,
        name: target.name,
        handle: found.handle,
        url: url.clone(),
        file: (attributes.fsid, attributes.fileid),
        depth: 0,
        emptied: false,
    };
    remove_tree(&target.session, top, reporter).await;
    Ok(())
}

/// The refusal of a directory with another filesystem than the one above it. It can't be removed itself, so a
/// removal of its contents is hardly what was meant.
fn another_filesystem(url: &Url) -> Failure {
    Failure::new(url.to_string(), "is an export or another filesystem, and isn't removed")
        .next("name what is to be removed in it")
}

/// A directory to be removed.
struct PendingDirectory {
    parent: Handle,
    name: Vec<u8>,
    handle: Handle,
    url: Url,
    file: FileId,
    depth: usize,
    /// The removal of its contents was tried.
    emptied: bool,
}

/// Removes `top` from the leaves up. Failures are reported and don't stop the rest. Directories above what is
/// left aren't tried.
async fn remove_tree(session: &Session, top: PendingDirectory, reporter: &Reporter) {
    let mut stack = vec![top];
    let mut ancestors = Ancestors::default();
    // How many directories stay, from the top down to the present one. A depth counts those above.
    let mut staying = 0;
    while let Some(mut directory) = stack.pop() {
        let depth = directory.depth;
        if directory.emptied {
            if staying > depth {
                staying = depth;
            } else if let Err(error) = session.remove_dir(&directory.parent, &directory.name).await {
                reporter.report(&failure(&directory.url, error));
                staying = depth;
            }
            continue;
        }
        if let Err(refusal) = ancestors.check(depth, directory.file) {
            reporter.report(&refusal.failure(&directory.url.to_string(), "removed"));
            staying = depth;
            continue;
        }
        ancestors.enter(depth, directory.file);
        // The whole list first, because not every server's cookies survive removals.
        let entries = match session.read_dir(&directory.handle, Plus::Directories).collect().await {
            Ok(entries) => entries,
            Err(error) => {
                // An empty directory can be removed by who may not read it.
                if session.remove_dir(&directory.parent, &directory.name).await.is_err() {
                    reporter.report(&failure(&directory.url, error));
                    staying = depth;
                }
                continue;
            }
        };
        directory.emptied = true;
        let (below, all_removed) = remove_entries(session, &directory, entries, reporter).await;
        if !all_removed {
            staying = depth + 1;
        }
        stack.push(directory);
        stack.extend(below);
    }
}

/// Removes the entries of `directory` other than directories, and returns those; also whether nothing else is
/// left.
async fn remove_entries(
    session: &Session,
    directory: &PendingDirectory,
    entries: Vec<DirEntry>,
    reporter: &Reporter,
) -> (Vec<PendingDirectory>, bool) {
    let mut ended = stream::iter(entries)
        .map(|entry| async move {
            let url = child(&directory.url, &entry.name);
            let ended = entry_of(session, directory, entry, &url).await;
            ended.inspect_err(|failure| reporter.report(failure))
        })
        .buffer_unordered(MAX_IN_FLIGHT);
    let (mut below, mut all_removed) = (Vec::new(), true);
    while let Some(ended) = ended.next().await {
        match ended {
            Ok(pending) => below.extend(pending),
            Err(_) => all_removed = false,
        }
    }
    (below, all_removed)
}

/// Removes an entry of `directory`, or returns it if it is a directory.
async fn entry_of(
    session: &Session,
    directory: &PendingDirectory,
    entry: DirEntry,
    url: &Url,
) -> Result<Option<PendingDirectory>, Failure> {
    let to_failure = |error| failure(url, error);
    if entry.kind.is_some_and(|kind| kind != FileKind::Directory) {
        return session.remove(&directory.handle, &entry.name).await.map(|()| None).map_err(to_failure);
    }
    let (attributes, handle) = match (entry.attributes, entry.handle) {
        (Some(attributes), Some(handle)) => (attributes, handle),
        _ => {
            let found = session.lookup(&directory.handle, &entry.name).await.map_err(to_failure)?;
            let attributes = match found.attributes {
                Some(attributes) => attributes,
                None => session.attributes(&found.handle).await.map_err(to_failure)?,
            };
            (attributes, found.handle)
        }
    };
    if attributes.kind != FileKind::Directory {
        return session.remove(&directory.handle, &entry.name).await.map(|()| None).map_err(to_failure);
    }
    if attributes.fsid != directory.file.0 {
        return Err(another_filesystem(url));
    }
    Ok(Some(PendingDirectory {
        parent: directory.handle.clone(),
        name: entry.name,
        handle,
        url: url.clone(),
        file: (attributes.fsid, attributes.fileid),
        depth: directory.depth + 1,
        emptied: false,
    }))
}
