//! `mkdir`: makes directories.

use client::{FileKind, Follow, SetAttributes, Status, Url};

use crate::cli::{Global, MkdirArgs};
use crate::connect::{Connector, failure};
use crate::exit::{CommandResult, Failure};
use crate::output::Reporter;

/// Makes all targets.
pub async fn mkdir(global: &Global, args: MkdirArgs) -> CommandResult {
    let connector = Connector::new(global, &args.session);
    let reporter = Reporter::new(indicatif::MultiProgress::new());
    for target in &args.targets {
        let made = if args.parents {
            with_parents(&connector, &target.url, args.mode).await
        } else {
            one(&connector, &target.url, args.mode).await
        };
        if let Err(failure) = made {
            reporter.report(&failure);
        }
    }
    connector.close().await;
    Ok(reporter.exit())
}

async fn one(connector: &Connector, url: &Url, mode: u32) -> Result<(), Failure> {
    let target = connector.target_name(url).await?;
    let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
    target
        .session
        .make_dir(&target.directory, &target.name, &set)
        .await
        .map(drop)
        .map_err(|error| failure(url, error))
}

/// Makes the missing directories of a path, from the export down. As in mkdir(1), `mode` is for the last one
/// only.
async fn with_parents(connector: &Connector, url: &Url, mode: u32) -> Result<(), Failure> {
    let session = connector.session(url).await?;
    let to_failure = |error| failure(url, error);
    let names: Vec<&[u8]> =
        session.target().split(|byte| *byte == b'/').filter(|name| !name.is_empty()).collect();
    let mut path = Vec::new();
    let mut directory = session.root();
    for (index, name) in names.iter().enumerate() {
        path.push(b'/');
        path.extend_from_slice(name);
        let mode = if index + 1 == names.len() { mode } else { 0o755 };
        let found = match session.walk(&path, Follow::Yes).await {
            Err(error) if error.status() == Some(Status::NoEntry) => {
                let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
                match session.make_dir(&directory, name, &set).await {
                    // Another client was faster.
                    Err(error) if error.status() == Some(Status::Exists) => {
                        session.walk(&path, Follow::Yes).await.map_err(to_failure)?
                    }
                    made => made.map_err(to_failure)?,
                }
            }
            found => found.map_err(to_failure)?,
        };
        let attributes = match found.attributes {
            Some(attributes) => attributes,
            None => session.attributes(&found.handle).await.map_err(to_failure)?,
        };
        if attributes.kind != FileKind::Directory {
            return Err(to_failure(client::Error::Status {
                object: url.to_string(),
                status: Status::NotDirectory,
            }));
        }
        directory = found.handle;
    }
    Ok(())
}
