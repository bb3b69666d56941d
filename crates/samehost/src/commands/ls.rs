//! `ls`: lists directories and, with -R, whole trees.

use client::{Attributes, DirEntry, FileKind, Follow, Found, Handle, Plus, Session, Url};

use crate::ancestors::{Ancestors, FileId};
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
    /// Known if the listing needs attributes, and the server didn't refuse them.
    attributes: Option<Attributes>,
    /// Known if the line's further questions need it.
    handle: Option<Handle>,
    points_to: Option<Vec<u8>>,
}

/// A directory whose entries are to be listed.
struct PendingDirectory {
    url: Url,
    handle: Handle,
    file: FileId,
    depth: usize,
}

/// Lists all targets; a failure of one doesn't stop the others.
pub async fn ls(global: &Global, args: LsArgs) -> CommandResult {
    let connector = Connector::new(global, &args.session);
    let ids = if args.long && !args.numeric { Ids::of_this_machine() } else { Ids::numeric() };
    let mut lister = DirectoryLister {
        args: &args,
        ids,
        output: Output::stdout(),
        reporter: Reporter::new(indicatif::MultiProgress::new()),
        headings: 0,
    };
    for target in &args.targets {
        if let Err(stop) = lister.target(&connector, &target.url).await {
            lister.take(stop)?;
        }
    }
    lister.output.flush()?;
    connector.close().await;
    Ok(lister.reporter.exit())
}

/// What the listings of all targets share.
struct DirectoryLister<'a> {
    args: &'a LsArgs,
    ids: Ids,
    output: Output,
    reporter: Reporter,
    /// Number of headings so far.
    headings: usize,
}

impl DirectoryLister<'_> {
    /// Lists one target.
    async fn target(&mut self, connector: &Connector, url: &Url) -> Result<(), Stop> {
        let follow = if self.args.long || self.args.directory { Follow::No } else { Follow::Yes };
        let (session, found) = connector.find(url, follow).await?;
        let attributes = attributes(&session, url, &found).await?;
        if attributes.kind == FileKind::Directory && !self.args.directory {
            let (url, handle) = (url.clone(), found.handle);
            let top = PendingDirectory { url, handle, file: file_id(&attributes), depth: 0 };
            return self.directories(&session, top).await;
        }
        let mut line = Line {
            name: url.to_string().into_bytes(),
            attributes: Some(attributes),
            handle: Some(found.handle),
            points_to: None,
        };
        self.find_target(&session, url, &mut line).await?;
        self.show(&[line])
    }

    /// Lists a directory and, with -R, those below it, each before its own subdirectories. A failure of one
    /// below doesn't stop the others.
    async fn directories(&mut self, session: &Session, top: PendingDirectory) -> Result<(), Stop> {
        let mut ancestors = Ancestors::default();
        let mut stack = vec![top];
        while let Some(directory) = stack.pop() {
            if let Err(refusal) = ancestors.check(directory.depth, directory.file) {
                self.take(refusal.failure(&directory.url.to_string(), "listed").into())?;
                continue;
            }
            ancestors.enter(directory.depth, directory.file);
            match self.directory(session, &directory).await {
                Ok(below) => stack.extend(below.into_iter().rev()),
                Err(stop) => self.take(stop)?,
            }
        }
        Ok(())
    }

    /// Lists one directory; with -R the directories in it.
    async fn directory(
        &mut self,
        session: &Session,
        directory: &PendingDirectory,
    ) -> Result<Vec<PendingDirectory>, Stop> {
        let url = &directory.url;
        if self.args.recursive || self.args.targets.len() > 1 {
            if self.headings > 0 {
                self.output.line("")?;
            }
            self.output.line(format!("{url}:"))?;
            self.headings += 1;
        }
        let lines = self.entries(session, url, &directory.handle).await?;
        self.show(&lines)?;
        if !self.args.recursive {
            return Ok(Vec::new());
        }
        let below = lines.into_iter().filter_map(|line| {
            let (handle, attributes) = (line.handle?, line.attributes?);
            let (url, file) = (child(url, &line.name), file_id(&attributes));
            (attributes.kind == FileKind::Directory).then_some(PendingDirectory {
                url,
                handle,
                file,
                depth: directory.depth + 1,
            })
        });
        Ok(below.collect())
    }

    /// The entries of a directory by name.
    async fn entries(&self, session: &Session, url: &Url, directory: &Handle) -> Result<Vec<Line>, Failure> {
        let needs_attributes = self.args.long || self.args.recursive;
        let plus = if needs_attributes { Plus::Attributes } else { Plus::None };
        let mut listing = session.read_dir(directory, plus);
        let mut lines = Vec::new();
        while let Some(entry) = listing.next().await.map_err(|error| failure(url, error))? {
            if entry.name.starts_with(b".") && !self.args.all {
                continue;
            }
            let DirEntry { name, attributes, handle, .. } = entry;
            let mut line = Line { name, attributes, handle, points_to: None };
            if needs_attributes {
                let here = child(url, &line.name);
                if let Err(failure) = self.complete(session, &here, directory, &mut line).await {
                    self.reporter.report(&failure);
                }
            }
            lines.push(line);
        }
        lines.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(lines)
    }

    /// Fetches what the listing didn't bring: attributes, handles if they are needed, and the targets of
    /// links.
    async fn complete(
        &self,
        session: &Session,
        url: &Url,
        directory: &Handle,
        line: &mut Line,
    ) -> Result<(), Failure> {
        let needs_handle =
            |attributes: &Attributes| matches!(attributes.kind, FileKind::Directory | FileKind::Symlink);
        let is_complete = match &line.attributes {
            Some(attributes) => line.handle.is_some() || !needs_handle(attributes),
            None => false,
        };
        if !is_complete {
            let found = session.lookup(directory, &line.name).await.map_err(|error| failure(url, error))?;
            line.attributes = Some(attributes(session, url, &found).await?);
            line.handle = Some(found.handle);
        }
        self.find_target(session, url, line).await
    }

    /// Reads the target of a symbolic link, with -l.
    async fn find_target(&self, session: &Session, url: &Url, line: &mut Line) -> Result<(), Failure> {
        let is_link = line.attributes.is_some_and(|attributes| attributes.kind == FileKind::Symlink);
        if let Some(handle) = line.handle.as_ref().filter(|_| self.args.long && is_link) {
            let target = session.read_link(handle).await.map_err(|error| failure(url, error))?;
            line.points_to = Some(target);
        }
        Ok(())
    }

    fn show(&mut self, lines: &[Line]) -> Result<(), Stop> {
        if self.args.long {
            show_long(&mut self.output, self.args, &self.ids, lines)
        } else {
            show_short(&mut self.output, lines)
        }
    }

    /// Reports a failure behind the lines that precede it, and returns any other stop.
    fn take(&mut self, stop: Stop) -> Result<(), Stop> {
        self.output.flush()?;
        self.reporter.take(stop)
    }
}

async fn attributes(session: &Session, url: &Url, found: &Found) -> Result<Attributes, Failure> {
    match found.attributes {
        Some(attributes) => Ok(attributes),
        None => session.attributes(&found.handle).await.map_err(|error| failure(url, error)),
    }
}

fn file_id(attributes: &Attributes) -> FileId {
    (attributes.fsid, attributes.fileid)
}

fn show_short(output: &mut Output, lines: &[Line]) -> Result<(), Stop> {
    for line in lines {
        if output.is_terminal() {
            output.line(human::name(&line.name))?;
        } else {
            output.raw_line(&line.name)?;
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
