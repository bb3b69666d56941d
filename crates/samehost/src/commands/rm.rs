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

/// Removes `top` from the leaves up. Failures are reported and don't stop the rest.
async fn remove_tree(session: &Session, top: PendingDirectory, reporter: &Reporter) {
    let mut stack = vec![top];
    let mut ancestors = Ancestors::default();
    while let Some(mut directory) = stack.pop() {
        if directory.emptied {
            if let Err(error) = session.remove_dir(&directory.parent, &directory.name).await {
                reporter.report(&failure(&directory.url, error));
            }
            continue;
        }
        if let Err(refusal) = ancestors.check(directory.depth, directory.file) {
            reporter.report(&refusal.failure(&directory.url.to_string(), "removed"));
            continue;
        }
        ancestors.enter(directory.depth, directory.file);
        directory.emptied = true;
        let below = remove_entries(session, &directory, reporter).await;
        stack.push(directory);
        stack.extend(below);
    }
}

/// Removes the entries of `directory` other than directories, and returns those.
async fn remove_entries(
    session: &Session,
    directory: &PendingDirectory,
    reporter: &Reporter,
) -> Vec<PendingDirectory> {
    // The whole list first, because not every server's cookies survive removals.
    let entries = match session.read_dir(&directory.handle, Plus::Directories).collect().await {
        Ok(entries) => entries,
        Err(error) => {
            reporter.report(&failure(&directory.url, error));
            return Vec::new();
        }
    };
    stream::iter(entries)
        .map(|entry| async move {
            let url = child(&directory.url, &entry.name);
            let ended = entry_of(session, directory, entry, &url, reporter).await;
            ended.unwrap_or_else(|error| {
                reporter.report(&failure(&url, error));
                None
            })
        })
        .buffer_unordered(MAX_IN_FLIGHT)
        .filter_map(|pending| async { pending })
        .collect()
        .await
}

async fn entry_of(
    session: &Session,
    directory: &PendingDirectory,
    entry: DirEntry,
    url: &Url,
    reporter: &Reporter,
) -> client::Result<Option<PendingDirectory>> {
    if entry.kind.is_some_and(|kind| kind != FileKind::Directory) {
        session.remove(&directory.handle, &entry.name).await?;
        return Ok(None);
    }
    let (attributes, handle) = match (entry.attributes, entry.handle) {
        (Some(attributes), Some(handle)) => (attributes, handle),
        _ => {
            let found = session.lookup(&directory.handle, &entry.name).await?;
            let attributes = match found.attributes {
                Some(attributes) => attributes,
                None => session.attributes(&found.handle).await?,
            };
            (attributes, found.handle)
        }
    };
    if attributes.kind == FileKind::Directory {
        if attributes.fsid != directory.file.0 {
            reporter.report(&another_filesystem(url));
            return Ok(None);
        }
        let (parent, file) = (directory.handle.clone(), (attributes.fsid, attributes.fileid));
        let (url, depth) = (url.clone(), directory.depth + 1);
        return Ok(Some(PendingDirectory {
            parent,
            name: entry.name,
            handle,
            url,
            file,
            depth,
            emptied: false,
        }));
    }
    session.remove(&directory.handle, &entry.name).await.map(|()| None)
}
