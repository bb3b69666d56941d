//! `stat`: all attributes of a file.

use client::{Attributes, FileKind, Follow, Session, Url};
use serde::Serialize;

use super::ls::letter;
use crate::cli::{Global, StatArgs};
use crate::connect::{Connector, failure};
use crate::exit::{CommandResult, Failure, Stop};
use crate::human;
use crate::ids::Ids;
use crate::output::{Output, Reporter};

/// An element of `--json`'s array.
#[derive(Serialize)]
struct StatJson {
    url: String,
    kind: &'static str,
    mode: u32,
    links: u32,
    uid: u32,
    gid: u32,
    size: u64,
    used: u64,
    device_major: u32,
    device_minor: u32,
    fsid: u64,
    fileid: u64,
    access: Time,
    modify: Time,
    change: Time,
    handle: String,
    link_target: Option<String>,
}

#[derive(Serialize)]
struct Time {
    seconds: i64,
    nanoseconds: u32,
}

impl From<client::Timestamp> for Time {
    fn from(stamp: client::Timestamp) -> Self {
        Self { seconds: stamp.seconds, nanoseconds: stamp.nanoseconds }
    }
}

/// Shows all targets.
pub async fn stat(global: &Global, args: StatArgs) -> CommandResult {
    let connector = Connector::new(global, &args.session);
    let reporter = Reporter::new(indicatif::MultiProgress::new());
    let mut output = Output::stdout();
    let ids = Ids::of_this_machine();
    let mut all = Vec::new();
    for target in &args.targets {
        match facts(&connector, &target.url).await {
            Ok(facts) if args.json => all.push(facts),
            Ok(facts) => show(&mut output, &facts, &ids)?,
            Err(failure) => {
                output.flush()?;
                reporter.report(&failure);
            }
        }
    }
    if args.json {
        output.json(&all)?;
    }
    output.flush()?;
    connector.close().await;
    Ok(reporter.exit())
}

async fn facts(connector: &Connector, url: &Url) -> Result<StatJson, Failure> {
    let (session, found) = connector.find(url, Follow::No).await?;
    let attributes = match found.attributes {
        Some(attributes) => attributes,
        None => session.attributes(&found.handle).await.map_err(|error| failure(url, error))?,
    };
    let link_target = link_target(&session, url, &found.handle, &attributes).await?;
    Ok(StatJson {
        url: url.to_string(),
        kind: attributes.kind.name(),
        mode: attributes.mode,
        links: attributes.nlink,
        uid: attributes.uid,
        gid: attributes.gid,
        size: attributes.size,
        used: attributes.used,
        device_major: attributes.rdev.0,
        device_minor: attributes.rdev.1,
        fsid: attributes.fsid,
        fileid: attributes.fileid,
        access: attributes.atime.into(),
        modify: attributes.mtime.into(),
        change: attributes.ctime.into(),
        handle: found.handle.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect(),
        link_target,
    })
}

async fn link_target(
    session: &Session,
    url: &Url,
    handle: &client::Handle,
    attributes: &Attributes,
) -> Result<Option<String>, Failure> {
    if attributes.kind != FileKind::Symlink {
        return Ok(None);
    }
    let target = session.read_link(handle).await.map_err(|error| failure(url, error))?;
    Ok(Some(human::name(&target)))
}

fn show(output: &mut Output, facts: &StatJson, ids: &Ids) -> Result<(), Stop> {
    let first = match facts.kind {
        "regular file" => letter(FileKind::Regular),
        "directory" => letter(FileKind::Directory),
        "block device" => letter(FileKind::Block),
        "character device" => letter(FileKind::Character),
        "symbolic link" => letter(FileKind::Symlink),
        "socket" => letter(FileKind::Socket),
        _ => letter(FileKind::Fifo),
    };
    let arrow = facts.link_target.as_ref().map_or_else(String::new, |target| format!(" -> {target}"));
    let lines = [
        ("file", format!("{}{arrow}", facts.url)),
        ("kind", facts.kind.to_owned()),
        ("size", format!("{} ({} on disk)", facts.size, human::bytes(facts.used))),
        ("mode", format!("{:04o} {}", facts.mode, human::mode(first, facts.mode))),
        ("owner", format!("{} ({})", facts.uid, ids.user(facts.uid))),
        ("group", format!("{} ({})", facts.gid, ids.group(facts.gid))),
        ("links", facts.links.to_string()),
        ("device", format!("{}, {}", facts.device_major, facts.device_minor)),
        ("fsid", format!("{:x}", facts.fsid)),
        ("fileid", facts.fileid.to_string()),
        ("access", human::instant(facts.access.seconds, facts.access.nanoseconds)),
        ("modify", human::instant(facts.modify.seconds, facts.modify.nanoseconds)),
        ("change", human::instant(facts.change.seconds, facts.change.nanoseconds)),
        ("handle", facts.handle.clone()),
    ];
    let is_device = facts.kind.ends_with("device");
    for (title, value) in lines {
        if title != "device" || is_device {
            output.line(format!("{title:>7}: {value}"))?;
        }
    }
    Ok(())
}
