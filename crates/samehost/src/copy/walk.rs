//! The walk through the source's directories, and the queue of files and links.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};

use client::Follow;
use futures_util::{StreamExt, future, stream};
use tokio::sync::mpsc;

use super::destinations::Destinations;
use super::job::{self, Job};
use super::location::{self, CopyItem, EntryKind, Facts, Goal, Location};
use super::remote::is_gone;
use super::{Progress, TreeCopyOptions};
use crate::ancestors::Ancestors;
use crate::cli::Operand;
use crate::connect::Connector;
use crate::exit::Failure;
use crate::human;
use crate::output::Reporter;

/// Files in the queue at most. A long queue lets the progress bar show what is to come.
const MAX_QUEUE: usize = 8192;

/// The counts of what was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Regular files.
    pub files: u64,
    /// Directories made or filled.
    pub directories: u64,
    /// Symbolic links.
    pub links: u64,
    /// Bytes of the files.
    pub bytes: u64,
}

/// The shared state of a copy.
pub struct Copy<'a> {
    pub options: TreeCopyOptions,
    pub reporter: &'a Reporter,
    pub progress: &'a Progress,
    pub copied: Cell<Copied>,
    /// A server can't be reached: the rest would fail in the same way.
    pub unreachable: Cell<bool>,
    /// The files that jobs are writing.
    pub destinations: Destinations,
    /// The goals of all files and links so far, if two sources may have the same ones.
    goals: Option<RefCell<HashSet<String>>>,
}

impl Copy<'_> {
    /// Reports a failure; later ones are skipped if the server can't be reached.
    pub fn failed(&self, failure: &Failure) {
        if !self.unreachable.get() {
            self.reporter.report(failure);
        }
        self.unreachable.set(self.unreachable.get() || is_gone(failure));
    }

    /// Adds to the counts.
    pub fn count(&self, add: impl FnOnce(&mut Copied)) {
        let mut copied = self.copied.get();
        add(&mut copied);
        self.copied.set(copied);
    }
}

/// A directory that gets its final mode and times when its contents are copied.
struct CreatedDirectory {
    at: Location,
    facts: Facts,
}

/// Copies all but the last of `operands` to the last. Failures of single files are reported and don't stop
/// the rest.
pub async fn copy_all(
    connector: &Connector,
    operands: &[Operand],
    options: TreeCopyOptions,
    reporter: &Reporter,
    progress: &Progress,
) -> Result<Copied, Failure> {
    let Some((to, from)) = operands.split_last() else {
        return Err(Failure::usage("cp", "nothing to copy"));
    };
    if operands.iter().all(|operand| matches!(operand, Operand::Local(_))) {
        return Err(Failure::usage("cp", "all operands are on this machine").next("use cp(1)"));
    }
    let goal = location::goal(connector, to).await?;
    if let (Err(goal), true) = (&goal, from.len() > 1) {
        return Err(Failure::usage(goal.show(), "isn't a directory, and several files can't have one name")
            .next("make it with mkdir first"));
    }
    let copy = Copy {
        options,
        reporter,
        progress,
        copied: Cell::default(),
        unreachable: Cell::new(false),
        destinations: Destinations::default(),
        goals: may_collide(from).then(RefCell::default),
    };
    let (queue, jobs) = mpsc::channel(MAX_QUEUE);
    let walk = async {
        let mut made = Vec::new();
        for operand in from {
            if let Err(failure) = one(connector, operand, &goal, &copy, &queue, &mut made).await {
                copy.failed(&failure);
            }
        }
        drop(queue);
        made
    };
    let jobs = stream::unfold(jobs, |mut jobs| async { jobs.recv().await.map(|job| (job, jobs)) });
    let running_jobs = jobs.for_each_concurrent(options.files, |job| job::run(&copy, job));
    let (made, ()) = future::join(walk, running_jobs).await;
    finish(&copy, made).await;
    Ok(copy.copied.get())
}

/// Copies one of the sources that the user named.
async fn one(
    connector: &Connector,
    operand: &Operand,
    goal: &Result<Location, Goal>,
    copy: &Copy<'_>,
    queue: &mpsc::Sender<Job>,
    made: &mut Vec<CreatedDirectory>,
) -> Result<(), Failure> {
    let follow = if copy.options.recursive { Follow::No } else { Follow::Yes };
    let Some(item) = location::source(connector, operand, follow).await? else {
        return Err(Failure::new(show(operand), "no such file or directory"));
    };
    if item.facts.kind == EntryKind::Directory && !copy.options.recursive {
        return Err(Failure::new(item.at.show(), "is a directory").next("use cp -r"));
    }
    let goal = match (goal, name(operand)) {
        (Err(goal), _) => goal.clone(),
        (Ok(into), Some(name)) => {
            Goal { directory: into.clone(), name, named: true, fresh: false, directory_only: false }
        }
        // "nfs://host/" and "dir/." have no name: their contents are copied.
        (Ok(into), None) => return tree(&item, into.clone(), false, copy, queue, made).await,
    };
    if item.facts.kind == EntryKind::Directory {
        let (at, fresh) = enter(&item, &goal).await?;
        return tree(&item, at, fresh, copy, queue, made).await;
    }
    submit(item, goal, copy, queue).await
}

/// Makes the directory at the goal, or uses the existing one.
async fn enter(item: &CopyItem, goal: &Goal) -> Result<(Location, bool), Failure> {
    if let Some(there) = goal.existing().await? {
        if there.facts.kind == EntryKind::Directory {
            return Ok((there.at, false));
        }
        return Err(Failure::new(goal.show(), "exists and is not a directory"));
    }
    Ok((goal.make_dir(item.facts.mode & 0o777).await?, true))
}

/// Walks the tree below `top` into the directory `into`.
async fn tree(
    top: &CopyItem,
    into: Location,
    fresh: bool,
    copy: &Copy<'_>,
    queue: &mpsc::Sender<Job>,
    made: &mut Vec<CreatedDirectory>,
) -> Result<(), Failure> {
    let root = CopyItem { facts: into.facts().await?, at: into.clone() };
    refuse_root(top, &root).await?;
    let mut stack = vec![(top.clone(), into, fresh, 0)];
    let mut ancestors = Ancestors::default();
    while let Some((source, into, fresh, depth)) = stack.pop() {
        if copy.unreachable.get() {
            break;
        }
        ancestors.enter(depth, source.facts.file_id());
        copy.count(|copied| copied.directories += 1);
        if fresh || copy.options.preserve {
            made.push(CreatedDirectory { at: into.clone(), facts: source.facts });
        }
        let entries = match source.at.list().await {
            Ok(entries) => entries,
            Err(failure) => {
                copy.failed(&failure);
                continue;
            }
        };
        for (name, item) in entries {
            let entered = match (item, into.inside(&name, fresh)) {
                (Ok(item), Ok(goal)) if item.facts.kind == EntryKind::Directory => {
                    let allowed = match ancestors.check(depth + 1, item.facts.file_id()) {
                        Ok(()) => refuse_root(&item, &root).await,
                        Err(refusal) => Err(refusal.failure(&item.at.show(), "copied")),
                    };
                    match allowed {
                        Ok(()) => enter(&item, &goal)
                            .await
                            .map(|(at, fresh)| stack.push((item, at, fresh, depth + 1))),
                        Err(failure) => Err(failure),
                    }
                }
                (Ok(item), Ok(goal)) => submit(item, goal, copy, queue).await,
                (Err(failure), _) | (_, Err(failure)) => Err(failure),
            };
            if let Err(failure) = entered {
                copy.failed(&failure);
            }
        }
    }
    Ok(())
}

/// Whether the goal `root` is the directory about to be walked, which would copy it into itself for ever.
async fn refuse_root(source: &CopyItem, root: &CopyItem) -> Result<(), Failure> {
    if source.facts.fileid == root.facts.fileid && is_same(&source.at, &root.at).await? {
        return Err(Failure::new(source.at.show(), "can't be copied into itself"));
    }
    Ok(())
}

/// Whether two names with one file number are names of one directory. For two names on one server the
/// handles decide. Otherwise what is made by one name must be found by the other: attributes can't tell,
/// since a mount may show old ones.
async fn is_same(one: &Location, other: &Location) -> Result<bool, Failure> {
    if let (Location::Remote(one), Location::Remote(other)) = (one, other)
        && (one.url.host(), one.url.port()) == (other.url.host(), other.url.port())
        && one.handle().await? == other.handle().await?
    {
        return Ok(true);
    }
    // Nobody has asked for this name before, so no cache answers.
    let name = format!(".samehost-cp-{:016x}", RandomState::new().hash_one(()));
    let marker = other.inside(name.as_bytes(), false)?;
    let Ok(made) = marker.create(0o600).await else {
        // A copy into this directory fails, too, and ends.
        return Ok(false);
    };
    drop(made);
    let found = one.inside(name.as_bytes(), false)?.existing().await;
    marker.remove().await?;
    Ok(found?.is_some())
}

async fn submit(
    item: CopyItem,
    goal: Goal,
    copy: &Copy<'_>,
    queue: &mpsc::Sender<Job>,
) -> Result<(), Failure> {
    if item.facts.kind == EntryKind::Other {
        return Err(Failure::new(item.at.show(), "is a device, pipe or socket and wasn't copied"));
    }
    if goal.directory_only {
        return Err(Failure::new(goal.show(), "isn't a directory").next("make it with mkdir first"));
    }
    if let Some(goals) = &copy.goals
        && !goals.borrow_mut().insert(goal.show())
    {
        let reason = format!("was just made by this command, and isn't replaced by {}", item.at.show());
        return Err(
            Failure::new(goal.show(), reason).next("copy files of one name into different directories")
        );
    }
    if item.facts.kind == EntryKind::File {
        copy.progress.found(item.facts.size);
    }
    // The jobs end after the queue is closed.
    let _ = queue.send(Job { item, goal }).await;
    Ok(())
}

/// Sets the modes and times of directories, deepest first.
async fn finish(copy: &Copy<'_>, made: Vec<CreatedDirectory>) {
    for CreatedDirectory { at, facts } in made.into_iter().rev() {
        let ended = if copy.options.preserve {
            at.preserve(&facts).await
        } else {
            at.set_mode(facts.mode & 0o777).await
        };
        if let Err(failure) = ended {
            copy.failed(&failure);
        }
    }
}

/// Whether files of different sources may get the same name at the goal: contents of sources without a name
/// may have any.
fn may_collide(from: &[Operand]) -> bool {
    let names: Option<Vec<Vec<u8>>> = from.iter().map(name).collect();
    names.map_or(from.len() > 1, |names| names.iter().collect::<HashSet<_>>().len() < names.len())
}

/// The last name of a source's path; `None` for "/", "." and "..", also behind a slash.
fn name(operand: &Operand) -> Option<Vec<u8>> {
    use std::os::unix::ffi::OsStrExt;
    let path = match operand {
        Operand::Local(path) => path.as_os_str().as_bytes(),
        Operand::Remote(operand) => operand.url.path(),
    };
    let name = path.rsplit(|byte| *byte == b'/').find(|name| !name.is_empty())?;
    (name != b"." && name != b"..").then(|| name.to_vec())
}

fn show(operand: &Operand) -> String {
    use std::os::unix::ffi::OsStrExt;
    match operand {
        Operand::Local(path) => human::name(path.as_os_str().as_bytes()),
        Operand::Remote(operand) => operand.to_string(),
    }
}
