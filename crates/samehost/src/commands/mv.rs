//! `mv`: renames files on one server.

use client::{FileKind, Follow, Status, Url};

use crate::cli::{Global, MvArgs};
use crate::connect::{Connector, TargetName, child, failure};
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
    for source in from {
        if let Err(failure) = one(&connector, &source.url, &to.url, into.as_ref()).await {
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
    Ok(is_directory.then(|| TargetName { session, directory: found.handle, name: Vec::new() }))
}

async fn one(connector: &Connector, from: &Url, to: &Url, into: Option<&TargetName>) -> Result<(), Failure> {
    let source = connector.target_name(from).await?;
    let (goal, url) = match into {
        Some(into) => (TargetName { name: source.name.clone(), ..into.clone() }, child(to, &source.name)),
        None => (connector.target_name(to).await?, to.clone()),
    };
    let renamed = source.session.rename(&source.directory, &source.name, &goal.directory, &goal.name).await;
    renamed.map_err(|error| {
        let across = error.status() == Some(Status::CrossDevice);
        let said = failure(from, error);
        let failure = Failure { reason: format!("can't be moved to {url}: {}", said.reason), ..said };
        if across { failure.next("copy it with cp -r and remove it with rm -r") } else { failure }
    })
}
