//! The walk: directories, in order, and a queue of everything else.

use std::cell::Cell;

use client::Follow;
use futures_util::{StreamExt, future, stream};
use tokio::sync::{RwLock, mpsc};

use super::job::{self, Job};
use super::remote::is_gone;
use super::side::{self, At, Facts, Goal, Item, Kind};
use super::{How, Progress};
use crate::cli::Place;
use crate::connect::Connector;
use crate::exit::Failure;
use crate::human;
use crate::output::Reporter;

/// How far the walk may be ahead of the copying, in files. It lets the progress bar know what is to come.
const AHEAD: usize = 8192;

/// Directories within directories. A server may claim any depth; no filesystem has this one.
const DEEPEST: usize = 8192;

/// How often two directories that may be one are looked at while somebody else changes them.
const LOOKS: u32 = 16;

/// What was copied.
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

/// Everything that a copy shares.
pub struct Copy<'a> {
    pub how: How,
    pub reporter: &'a Reporter,
    pub progress: &'a Progress,
    pub copied: Cell<Copied>,
    /// A server went away: what is left would fail in the same way.
    pub hopeless: Cell<bool>,
    /// Held for reading by every job under way, and for writing by whoever must see directories that nobody
    /// fills.
    pub still: RwLock<()>,
}

impl Copy<'_> {
    /// Reports a failure and goes on, if there's any use in it.
    pub fn failed(&self, failure: &Failure) {
        if !self.hopeless.get() {
            self.reporter.report(failure);
        }
        self.hopeless.set(self.hopeless.get() || is_gone(failure));
    }

    /// Adds to what was copied.
    pub fn count(&self, add: impl FnOnce(&mut Copied)) {
        let mut copied = self.copied.get();
        add(&mut copied);
        self.copied.set(copied);
    }
}

/// A directory that has been made and gets its mode and times when everything in it is done.
struct Made {
    at: At,
    facts: Facts,
}

/// Copies all but the last of `places` to the last. Failures of single files are reported and the rest goes
/// on.
pub async fn copy_all(
    connector: &Connector,
    places: &[Place],
    how: How,
    reporter: &Reporter,
    progress: &Progress,
) -> Result<Copied, Failure> {
    let Some((to, from)) = places.split_last() else {
        return Err(Failure::usage("cp", "nothing to copy"));
    };
    if places.iter().all(|place| matches!(place, Place::Local(_))) {
        return Err(Failure::usage("cp", "all places are on this machine").next("use cp(1)"));
    }
    let goal = side::goal(connector, to).await?;
    if let (Err(goal), true) = (&goal, from.len() > 1) {
        return Err(Failure::usage(goal.show(), "isn't a directory, and several files can't have one name")
            .next("make it with mkdir first"));
    }
    let copy = Copy {
        how,
        reporter,
        progress,
        copied: Cell::default(),
        hopeless: Cell::new(false),
        still: RwLock::new(()),
    };
    let (queue, jobs) = mpsc::channel(AHEAD);
    let walk = async {
        let mut made = Vec::new();
        for place in from {
            if let Err(failure) = one(connector, place, &goal, &copy, &queue, &mut made).await {
                copy.failed(&failure);
            }
        }
        drop(queue);
        made
    };
    let jobs = stream::unfold(jobs, |mut jobs| async { jobs.recv().await.map(|job| (job, jobs)) });
    let crowd = jobs.for_each_concurrent(how.files, |job| job::run(&copy, job));
    let (made, ()) = future::join(walk, crowd).await;
    finish(&copy, made).await;
    Ok(copy.copied.get())
}

/// Copies one of the sources that the user named.
async fn one(
    connector: &Connector,
    place: &Place,
    goal: &Result<At, Goal>,
    copy: &Copy<'_>,
    queue: &mpsc::Sender<Job>,
    made: &mut Vec<Made>,
) -> Result<(), Failure> {
    let follow = if copy.how.recursive { Follow::No } else { Follow::Yes };
    let Some(item) = side::source(connector, place, follow).await? else {
        return Err(Failure::new(show(place), "no such file or directory"));
    };
    if item.facts.kind == Kind::Directory && !copy.how.recursive {
        return Err(Failure::new(item.at.show(), "is a directory").next("use cp -r"));
    }
    let goal = match (goal, name(place)) {
        (Err(goal), _) => goal.clone(),
        (Ok(into), Some(name)) => Goal { directory: into.clone(), name, named: true, fresh: false },
        // "nfs://host/", ".": what has no name is copied as what is in it.
        (Ok(into), None) => return tree(&item, into.clone(), false, copy, queue, made).await,
    };
    if item.facts.kind == Kind::Directory {
        let (at, fresh) = enter(&item, &goal).await?;
        return tree(&item, at, fresh, copy, queue, made).await;
    }
    submit(item, goal, copy, queue).await
}

/// Makes the directory at the goal, or takes the one that is there.
async fn enter(item: &Item, goal: &Goal) -> Result<(At, bool), Failure> {
    if let Some(there) = goal.existing().await? {
        if there.facts.kind == Kind::Directory {
            return Ok((there.at, false));
        }
        return Err(Failure::new(goal.show(), "exists and is not a directory"));
    }
    Ok((goal.make_dir(item.facts.mode & 0o777).await?, true))
}

/// Walks the tree below `top` into the directory `into`.
async fn tree(
    top: &Item,
    into: At,
    fresh: bool,
    copy: &Copy<'_>,
    queue: &mpsc::Sender<Job>,
    made: &mut Vec<Made>,
) -> Result<(), Failure> {
    let root = Item { facts: into.facts().await?, at: into.clone() };
    refuse_root(top, &root, copy).await?;
    let mut stack = vec![(top.clone(), into, fresh, 0)];
    // The directories that the present one is in, from the top down, and itself.
    let mut way: Vec<(u64, u64)> = Vec::new();
    while let Some((source, into, fresh, depth)) = stack.pop() {
        if copy.hopeless.get() {
            break;
        }
        if depth > DEEPEST {
            copy.failed(&Failure::new(source.at.show(), "directories are nested too deeply"));
            continue;
        }
        way.truncate(depth);
        way.push((source.facts.fsid, source.facts.fileid));
        copy.count(|copied| copied.directories += 1);
        if fresh || copy.how.preserve {
            made.push(Made { at: into.clone(), facts: source.facts });
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
                (Ok(item), Ok(_))
                    if item.facts.kind == Kind::Directory
                        && way.contains(&(item.facts.fsid, item.facts.fileid)) =>
                {
                    Err(Failure::new(item.at.show(), "is inside itself and wasn't copied")
                        .next("such a directory can only come from a broken or hostile server"))
                }
                (Ok(item), Ok(goal)) if item.facts.kind == Kind::Directory => {
                    match refuse_root(&item, &root, copy).await {
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

/// The directory that is being filled, `root`, may be inside the one that is being copied.
async fn refuse_root(source: &Item, root: &Item, copy: &Copy<'_>) -> Result<(), Failure> {
    if source.facts.fileid == root.facts.fileid && is_same(&source.at, &root.at, copy).await? {
        return Err(Failure::new(source.at.show(), "can't be copied into itself"));
    }
    Ok(())
}

/// Whether two names with one file number are names of one directory. Two handles of one server say so by
/// themselves. Else times decide; and as every file that is copied into a directory changes its times, they
/// are compared while no job is under way, and count only if they were the same before and after the other's.
/// What never stands still, because others change it, counts as the same: better to refuse a copy than to
/// make one for ever.
async fn is_same(one: &At, other: &At, copy: &Copy<'_>) -> Result<bool, Failure> {
    if let (At::Remote(one), At::Remote(other)) = (one, other)
        && (one.url.host(), one.url.port()) == (other.url.host(), other.url.port())
        && one.handle == other.handle
    {
        return Ok(true);
    }
    let _still = copy.still.write().await;
    for _ in 0..LOOKS {
        let before = one.facts().await?;
        let there = other.facts().await?;
        if before.same_file(&one.facts().await?) {
            return Ok(before.same_file(&there));
        }
    }
    Ok(true)
}

async fn submit(item: Item, goal: Goal, copy: &Copy<'_>, queue: &mpsc::Sender<Job>) -> Result<(), Failure> {
    if item.facts.kind == Kind::Other {
        return Err(Failure::new(item.at.show(), "is a device, pipe or socket and wasn't copied"));
    }
    if item.facts.kind == Kind::File {
        copy.progress.found(item.facts.size);
    }
    // The crowd ends only after the queue does.
    let _ = queue.send(Job { item, goal }).await;
    Ok(())
}

/// Modes and times of directories, deepest first.
async fn finish(copy: &Copy<'_>, made: Vec<Made>) {
    for Made { at, facts } in made.into_iter().rev() {
        let ended =
            if copy.how.preserve { at.preserve(&facts).await } else { at.set_mode(facts.mode & 0o777).await };
        if let Err(failure) = ended {
            copy.failed(&failure);
        }
    }
}

/// The last name of a source's path; `None` for "/", "." and "..".
fn name(place: &Place) -> Option<Vec<u8>> {
    use std::os::unix::ffi::OsStrExt;
    match place {
        Place::Local(path) => path.file_name().map(|name| name.as_bytes().to_vec()),
        Place::Remote(place) => {
            let name = place.url.path().rsplit(|byte| *byte == b'/').find(|name| !name.is_empty())?;
            (name != b"." && name != b"..").then(|| name.to_vec())
        }
    }
}

fn show(place: &Place) -> String {
    use std::os::unix::ffi::OsStrExt;
    match place {
        Place::Local(path) => human::name(path.as_os_str().as_bytes()),
        Place::Remote(place) => place.to_string(),
    }
}
