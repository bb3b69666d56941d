//! `mv`: renames files on one server.

use std::collections::HashSet;

use client::{Attributes, FileKind, Follow, Found, Status, Url};

use crate::cli::{Global, MvArgs};
use crate::connect::{Connector, TargetName, child, failure, names_directory, not_a_directory};
use crate::exit::{CommandResult, Failure};
use crate::output::Reporter;

/// Renames a target to the last one, or all but the last into the last one if that is a directory.
pub async fn mv(global: &Global, args: MvArgs) -> CommandResult {
    let Some((to, from)) = args.targets.split_last() else {
        return Err(Failure::usage("mv", "nothing to move").into());
    };
    for source in from {
        if (source.url.host(), source.url.port()) != (to.url.host(), to.url.port()) {
            return Err(Failure::usage(source.to_string(), format!("is not on the same server as {to}"))
                .next("copy it with cp -r and remove it with rm -r")
                .into());
        }
    }
    let connector = Connector::new(global, &args.session);
    let reporter = Reporter::new(indicatif::MultiProgress::new());
    let into = directory(&connector, &to.url).await?;
    if from.len() > 1 && into.is_none() {
        return Err(Failure::usage(
            to.to_string(),
            "isn't a directory, and several files can't have one name",
        )
        .into());
    }
    let mut moved = HashSet::new();
    for source in from {
        if let Err(failure) = one(&connector, &source.url, &to.url, into.as_ref(), &mut moved).await {
            reporter.report(&failure);
        }
    }
    connector.close().await;
    Ok(reporter.exit())
}

/// The directory that `url` names, if it is one.
async fn directory(connector: &Connector, url: &Url) -> Result<Option<TargetName>, Failure> {
    let session = connector.session(url).await?;
    let found = match session.walk(session.target(), Follow::Yes).await {
        Err(error) if error.status() == Some(Status::NoEntry) => return Ok(None),
        found => found.map_err(|error| failure(url, error))?,
    };
    let attributes = match found.attributes {
        Some(attributes) => attributes,
        None => session.attributes(&found.handle).await.map_err(|error| failure(url, error))?,
    };
    let is_directory = attributes.kind == FileKind::Directory;
    if !is_directory && names_directory(url) {
        return Err(failure(url, not_a_directory(url)));
    }
    Ok(is_directory.then(|| TargetName { session, directory: found.handle, name: Vec::new() }))
}

/// Moves one file. `moved` are the names that this command has made in the directory `into`.
async fn one(
    connector: &Connector,
    from: &Url,
    to: &Url,
    into: Option<&TargetName>,
    moved: &mut HashSet<Vec<u8>>,
) -> Result<(), Failure> {
    let source = connector.target_name(from).await?;
    if names_directory(from) || into.is_none() && names_directory(to) {
        require_directory(&source, from, to).await?;
    }
    let (goal, url) = match into {
        Some(into) => (TargetName { name: source.name.clone(), ..into.clone() }, child(to, &source.name)),
        None => (connector.target_name(to).await?, to.clone()),
    };
    if into.is_some() && moved.contains(&goal.name) {
        return Err(Failure::new(
            url.to_string(),
            format!("was just made by this command, and isn't replaced by {from}"),
        )
        .next("move files of one name into different directories"));
    }
    let renamed = match already_there(&source, &goal).await.map_err(|error| failure(from, error))? {
        None => source.session.rename(&source.directory, &source.name, &goal.directory, &goal.name).await,
        Some(OneFile::OtherName) => source.session.remove(&source.directory, &source.name).await,
        Some(OneFile::SameName) => {
            return Err(Failure::new(url.to_string(), format!("is the same file as {from}")));
        }
    };
    renamed.map_err(|error| {
        let across = error.status() == Some(Status::CrossDevice);
        let said = failure(from, error);
        let failure = Failure { reason: format!("can't be moved to {url}: {}", said.reason), ..said };
        if across { failure.next("copy it with cp -r and remove it with rm -r") } else { failure }
    })?;
    moved.insert(goal.name);
    Ok(())
}

/// What a file is whose new name exists already, and is its own.
enum OneFile {
    /// The two names are one.
    SameName,
    /// They are hard links.
    OtherName,
}

/// Whether the new name is the file's already. rename(2) and RENAME (RFC 1813 section 3.3.14, RFC 8881
/// section 18.26.3) do nothing then and succeed; mv(1) removes the old name.
async fn already_there(source: &TargetName, goal: &TargetName) -> client::Result<Option<OneFile>> {
    let find = async |target: &TargetName| {
        let found = target.session.lookup(&target.directory, &target.name).await?;
        attributes(target, found).await
    };
    let there = match find(goal).await {
        Err(error) if error.status() == Some(Status::NoEntry) => return Ok(None),
        found => found?,
    };
    let id = |attributes: &Attributes| (attributes.fsid, attributes.fileid);
    let here = find(source).await?;
    if id(&here) != id(&there) {
        return Ok(None);
    }
    let directory = async |target: &TargetName| target.session.attributes(&target.directory).await;
    let in_one_directory = id(&directory(source).await?) == id(&directory(goal).await?);
    Ok(if in_one_directory && source.name == goal.name {
        Some(OneFile::SameName)
    } else {
        // A file with one name has two spellings of it, on a filesystem that ignores case.
        (here.kind != FileKind::Directory && here.nlink > 1).then_some(OneFile::OtherName)
    })
}

async fn attributes(target: &TargetName, found: Found) -> client::Result<Attributes> {
    match found.attributes {
        Some(attributes) => Ok(attributes),
        None => target.session.attributes(&found.handle).await,
    }
}

/// Fails unless `source`, which is named `from` and is to get the name `to`, is a directory. One of the two
/// can only be a directory's name.
async fn require_directory(source: &TargetName, from: &Url, to: &Url) -> Result<(), Failure> {
    let found = source.session.lookup(&source.directory, &source.name).await;
    let found = found.map_err(|error| failure(from, error))?;
    let attributes = attributes(source, found).await.map_err(|error| failure(from, error))?;
    if attributes.kind == FileKind::Directory {
        return Ok(());
    }
    if names_directory(from) {
        return Err(failure(from, not_a_directory(from)));
    }
    Err(Failure::new(to.to_string(), "isn't a directory").next("make it with mkdir first"))
}
