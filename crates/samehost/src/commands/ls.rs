//! `ls`: lists directories.

use client::{Attributes, FileKind, Follow, Found, Handle, Session, Url};

use crate::cli::{Global, LsArgs};
use crate::connect::{Connector, child, failure};
use crate::exit::{CommandResult, Failure, Stop};
use crate::human;
use crate::ids::Ids;
use crate::output::{Output, Reporter};
use crate::table::{Align, TextTable};

/// A line of a listing.
struct Line {
    name: Vec<u8>,
    attributes: Option<Attributes>,
    points_to: Option<Vec<u8>>,
}

/// Lists all targets; a failure of one doesn't stop the others.
pub async fn ls(global: &Global, args: LsArgs) -> CommandResult {
    let connector = Connector::new(global, &args.session);
    let reporter = Reporter::new(indicatif::MultiProgress::new());
    let mut output = Output::stdout();
    let ids = if args.long && !args.numeric { Ids::of_this_machine() } else { Ids::numeric() };
    for (index, target) in args.targets.iter().enumerate() {
        if let Err(stop) = list(&connector, &args, &ids, index, &target.url, &mut output, &reporter).await {
            output.flush()?;
            reporter.take(stop)?;
        }
    }
    output.flush()?;
    connector.close().await;
    Ok(reporter.exit())
}

async fn list(
    connector: &Connector,
    args: &LsArgs,
    ids: &Ids,
    index: usize,
    url: &Url,
    output: &mut Output,
    reporter: &Reporter,
) -> Result<(), Stop> {
    let follow = if args.long || args.directory { Follow::No } else { Follow::Yes };
    let (session, found) = connector.find(url, follow).await?;
    let attributes = attributes(&session, url, &found).await?;
    let lines = if attributes.kind == FileKind::Directory && !args.directory {
        if args.targets.len() > 1 {
            let gap = if index == 0 { "" } else { "\n" };
            output.line(format!("{gap}{url}:"))?;
        }
        entries(&session, args, url, &found.handle, reporter).await?
    } else {
        let points_to = points_to(&session, args, url, &found.handle, Some(attributes)).await?;
        vec![Line { name: url.to_string().into_bytes(), attributes: Some(attributes), points_to }]
    };
    if args.long { show_long(output, args, ids, &lines) } else { show_short(output, &lines) }
}

async fn attributes(session: &Session, url: &Url, found: &Found) -> Result<Attributes, Failure> {
    match found.attributes {
        Some(attributes) => Ok(attributes),
        None => session.attributes(&found.handle).await.map_err(|error| failure(url, error)),
    }
}

async fn entries(
    session: &Session,
    args: &LsArgs,
    url: &Url,
    directory: &Handle,
    reporter: &Reporter,
) -> Result<Vec<Line>, Failure> {
    let mut listing = session.read_dir(directory, args.long);
    let mut lines = Vec::new();
    while let Some(entry) = listing.next().await.map_err(|error| failure(url, error))? {
        if entry.name.starts_with(b".") && !args.all {
            continue;
        }
        let mut line = Line { name: entry.name, attributes: entry.attributes, points_to: None };
        if args.long {
            let here = child(url, &line.name);
            let completed = complete(session, args, &here, directory, &mut line, entry.handle).await;
            if let Err(failure) = completed {
                reporter.report(&failure);
            }
        }
        lines.push(line);
    }
    lines.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(lines)
}

/// Fetches what READDIRPLUS didn't send: attributes, and the targets of links.
async fn complete(
    session: &Session,
    args: &LsArgs,
    url: &Url,
    directory: &Handle,
    line: &mut Line,
    handle: Option<Handle>,
) -> Result<(), Failure> {
    let handle = match (handle, line.attributes) {
        (Some(handle), Some(_)) => handle,
        _ => {
            let found = session.lookup(directory, &line.name).await.map_err(|error| failure(url, error))?;
            line.attributes = Some(attributes(session, url, &found).await?);
            found.handle
        }
    };
    line.points_to = points_to(session, args, url, &handle, line.attributes).await?;
    Ok(())
}

async fn points_to(
    session: &Session,
    args: &LsArgs,
    url: &Url,
    handle: &Handle,
    attributes: Option<Attributes>,
) -> Result<Option<Vec<u8>>, Failure> {
    if !args.long || attributes.is_none_or(|attributes| attributes.kind != FileKind::Symlink) {
        return Ok(None);
    }
    session.read_link(handle).await.map(Some).map_err(|error| failure(url, error))
}

fn show_short(output: &mut Output, lines: &[Line]) -> Result<(), Stop> {
    for line in lines {
        if output.is_terminal() {
            output.line(human::name(&line.name))?;
        } else {
            output.line(&line.name)?;
        }
    }
    Ok(())
}

fn show_long(output: &mut Output, args: &LsArgs, ids: &Ids, lines: &[Line]) -> Result<(), Stop> {
    let mut table = TextTable::bare(&[
        Align::Left,
        Align::Right,
        Align::Left,
        Align::Left,
        Align::Right,
        Align::Left,
        Align::Left,
    ]);
    for line in lines {
        let mut name = human::name(&line.name);
        if let Some(points_to) = &line.points_to {
            name.push_str(" -> ");
            name.push_str(&human::name(points_to));
        }
        table.row(match &line.attributes {
            Some(attributes) => columns(args, ids, attributes, name),
            None => ["??????????", "?", "?", "?", "?", "?", &name].map(str::to_owned),
        });
    }
    table.lines(0).iter().try_for_each(|line| output.line(line))
}

fn columns(args: &LsArgs, ids: &Ids, attributes: &Attributes, name: String) -> [String; 7] {
    let size = match attributes.kind {
        FileKind::Block | FileKind::Character => format!("{}, {}", attributes.rdev.0, attributes.rdev.1),
        _ if args.human_readable => human::bytes(attributes.size),
        _ => attributes.size.to_string(),
    };
    [
        human::mode(letter(attributes.kind), attributes.mode),
        attributes.nlink.to_string(),
        ids.user(attributes.uid),
        ids.group(attributes.gid),
        size,
        human::minute(attributes.mtime.seconds, attributes.mtime.nanoseconds),
        name,
    ]
}

/// The first letter of `ls -l`.
pub fn letter(kind: FileKind) -> char {
    match kind {
        FileKind::Regular => '-',
        FileKind::Directory => 'd',
        FileKind::Block => 'b',
        FileKind::Character => 'c',
        FileKind::Symlink => 'l',
        FileKind::Socket => 's',
        FileKind::Fifo => 'p',
    }
}
