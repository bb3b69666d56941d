//! The copy of one file or symbolic link.

use std::sync::atomic::{AtomicU64, Ordering};

use client::CopyOptions;

use super::location::{CopyItem, EntryKind, Goal, Location, Open};
use super::walk::Copy;
use crate::exit::Failure;

/// How often two files that may be one are compared while one of them changes.
const MAX_COMPARISONS: u32 = 16;

/// A regular file or a symbolic link, and where it goes.
pub struct Job {
    pub item: CopyItem,
    pub goal: Goal,
}

/// Copies and reports the result.
pub async fn run(copy: &Copy<'_>, job: Job) {
    if copy.unreachable.get() {
        return;
    }
    let ended = match job.item.facts.kind {
        EntryKind::Link => link(copy, &job).await,
        _ => file(copy, &job).await,
    };
    match ended {
        Ok(()) => copy.progress.files(copy.copied.get().files),
        Err(failure) => copy.failed(&failure),
    }
}

async fn link(copy: &Copy<'_>, job: &Job) -> Result<(), Failure> {
    let target = job.item.at.read_link().await?;
    // An existing link is replaced, not followed.
    let goal = Goal { named: false, ..job.goal.clone() };
    if let Some(there) = goal.existing().await? {
        if there.facts.kind == EntryKind::Directory {
            return Err(Failure::new(goal.show(), "is a directory and isn't replaced by a link"));
        }
        if there.facts.kind == EntryKind::Link && there.at.read_link().await? == target {
            return Ok(());
        }
        refuse_same(job, &there).await?;
        goal.remove().await?;
    }
    goal.make_link(&target).await?;
    copy.count(|copied| copied.links += 1);
    Ok(())
}

async fn file(copy: &Copy<'_>, job: &Job) -> Result<(), Failure> {
    let facts = &job.item.facts;
    let existing = job.goal.existing().await?;
    if let Some(there) = &existing {
        if there.facts.kind == EntryKind::Directory {
            return Err(Failure::new(job.goal.show(), "is a directory and isn't replaced by a file"));
        }
        refuse_same(job, there).await?;
    }
    let from = job.item.open().await?;
    let mode = facts.mode & 0o777;
    let opening = copy.destinations.opening();
    let (to, at) = job.goal.create(mode).await?;
    let of_goal = |error| to_failure(&at, &at, error);
    let writing = opening.opened(to.file_id().await.map_err(of_goal)?).await;
    if writing.overlapped {
        to.truncate().await.map_err(of_goal)?;
    }
    let beside = match (&job.item.at, &from, &at) {
        (Location::Remote(source), Open::Remote(file), Location::Remote(goal)) => {
            source.open_beside(file, goal).await
        }
        _ => None,
    };
    let from = beside.map_or(from, Open::Remote);
    let bytes = transfer(copy, &from, &to, &job.item.at, &at).await?;
    if let Open::Remote(file) = to {
        let closed = if copy.options.commit { file.close().await } else { file.flush().await };
        closed.map_err(of_goal)?;
    }
    if copy.options.preserve {
        at.preserve(facts).await?;
    } else if existing.is_none() && mode & 0o200 == 0 {
        at.set_mode(mode).await?;
    }
    copy.count(|copied| {
        copied.files += 1;
        copied.bytes += bytes;
    });
    Ok(())
}

/// Refuses to copy a file onto itself, which would truncate it first. A server can hide that two names are
/// one file.
async fn refuse_same(job: &Job, there: &CopyItem) -> Result<(), Failure> {
    let same = match (&job.item.at, &there.at) {
        (Location::Remote(one), Location::Remote(other)) if one.url.host() == other.url.host() => {
            one.handle().await? == other.handle().await?
        }
        _ => job.item.facts.fileid == there.facts.fileid && is_one_file(&job.item.at, &there.at).await?,
    };
    if same {
        return Err(Failure::new(job.goal.show(), format!("is the same file as {}", job.item.at.show())));
    }
    Ok(())
}

/// Whether two names with one file number, of which at most one is on a certain server, are names of one
/// file. One that changes all the time counts as the same.
async fn is_one_file(one: &Location, other: &Location) -> Result<bool, Failure> {
    for _ in 0..MAX_COMPARISONS {
        let before = one.current_facts().await?;
        let there = other.current_facts().await?;
        if before.same_file(&one.current_facts().await?) {
            return Ok(before.same_file(&there));
        }
    }
    Ok(true)
}

async fn transfer(
    copy: &Copy<'_>,
    from: &Open,
    to: &Open,
    source: &Location,
    goal: &Location,
) -> Result<u64, Failure> {
    let seen = AtomicU64::new(0);
    let progress = copy.progress.clone();
    let tell = move |so_far: client::Progress| {
        let before = seen.fetch_max(so_far.bytes, Ordering::Relaxed);
        progress.bytes(so_far.bytes.saturating_sub(before));
    };
    // Local copies aren't synced, as with cp(1).
    let commit = copy.options.commit && matches!(to, Open::Remote(_));
    let options = CopyOptions::new().commit(commit).progress(tell);
    let copied = match (from, to) {
        (Open::Remote(from), Open::Remote(to)) => client::copy(from, to, &options).await,
        (Open::Remote(from), Open::Local(to)) => client::read_from(from, to, &options).await,
        (Open::Local(from), Open::Remote(to)) => client::write_to(from, to, &options).await,
        // The walk has refused it before.
        (Open::Local(_), Open::Local(_)) => {
            return Err(Failure::usage(goal.show(), "is on this machine, too"));
        }
    };
    copied.map_err(|error| {
        let failure = to_failure(source, goal, error);
        Failure { reason: format!("copying from {}: {}", source.show(), failure.reason), ..failure }
    })
}

/// The failure of a copy from `source` to `goal`. Timeouts and missing lanes are attributed to the end that
/// is on a server; with two servers the error names the server.
fn to_failure(source: &Location, goal: &Location, error: client::Error) -> Failure {
    let of_a_server = matches!(error, client::Error::Rpc { .. } | client::Error::NoLane { .. });
    match (source, goal) {
        (_, Location::Remote(remote)) => crate::connect::failure(&remote.url, error),
        (Location::Remote(remote), Location::Local(_)) if of_a_server => {
            crate::connect::failure(&remote.url, error)
        }
        (_, Location::Local(_)) => Failure::new(goal.show(), error),
    }
}
