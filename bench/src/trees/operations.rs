//! Single operations on small files in one directory, by the same program on every data path.

use std::ffi::CString;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, ValueEnum};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};

use super::comparison::{Comparison, Presentation};
use super::data_path::{LeftOut, through};
use super::passthrough_ll::VARIANTS;
use super::subject::Subject;
use crate::Effort;
use crate::data_paths::json_of;
use crate::figure::{Table, microseconds};

/// Number of files.
const FILES: usize = 2000;
/// Size of a file in bytes.
const SIZE: usize = 4096;

/// Runs server, mount and program on one processor, or as the kernel distributes them.
const PLACEMENTS: [(&str, &[&str]); 2] = [("pinned", &["taskset", "-c", "1"]), ("unpinned", &[])];

/// An operation on each of the files, in the order of their names.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Operation {
    Create,
    Stat,
    Query,
    Read,
    Chmod,
    Rename,
    Unlink,
}

/// The operations with titles and goals. Each finds the files as the ones before it left them.
///
/// `Query` is the shortest request that a FUSE filesystem can get: a GETATTR of a file that is known.
const OPERATIONS: [(Operation, &str, &str); 7] = [
    (Operation::Create, "create+write+close", "1.5"),
    (Operation::Stat, "stat", "1"),
    (Operation::Query, "statx, AT_STATX_FORCE_SYNC", ""),
    (Operation::Read, "open+read+close", "1.5"),
    (Operation::Chmod, "chmod", "1"),
    (Operation::Rename, "rename", "1"),
    (Operation::Unlink, "unlink", "1"),
];

/// The child process that does one operation on every file of a directory.
#[derive(Debug, Args)]
pub struct Timed {
    operation: Operation,
    directory: PathBuf,
}

impl Timed {
    /// Prints the time of one operation in microseconds.
    pub fn run(self) -> Result<()> {
        let directory = rustix::fs::open(&self.directory, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        let names = |prefix: &str| -> Result<Vec<CString>> {
            (0..FILES).map(|number| Ok(CString::new(format!("{prefix}-{number:05}"))?)).collect()
        };
        let (files, renamed) = (names("file")?, names("renamed")?);
        let mut buffer = vec![7; SIZE];
        let start = Instant::now();
        for (file, renamed) in files.iter().zip(&renamed) {
            match self.operation {
                Operation::Create => {
                    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
                    let file: OwnedFd = rustix::fs::openat(&directory, file, flags, Mode::from(0o644))?;
                    ensure!(rustix::io::write(&file, &buffer)? == SIZE, "a short write");
                }
                Operation::Stat => {
                    let stat = rustix::fs::statat(&directory, file, AtFlags::SYMLINK_NOFOLLOW)?;
                    ensure!(stat.st_size == SIZE as i64, "{} bytes", stat.st_size);
                }
                Operation::Query => {
                    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC;
                    let stat = rustix::fs::statx(&directory, file, flags, StatxFlags::BASIC_STATS)?;
                    ensure!(stat.stx_size == SIZE as u64, "{} bytes", stat.stx_size);
                }
                Operation::Read => {
                    let file: OwnedFd = rustix::fs::openat(&directory, file, OFlags::RDONLY, Mode::empty())?;
                    ensure!(rustix::io::read(&file, &mut buffer)? == SIZE, "a short read");
                }
                Operation::Chmod => {
                    rustix::fs::chmodat(&directory, file, Mode::from(0o600), AtFlags::empty())?;
                }
                Operation::Rename => rustix::fs::renameat(&directory, file, &directory, renamed)?,
                Operation::Unlink => rustix::fs::unlinkat(&directory, renamed, AtFlags::empty())?,
            }
        }
        let microseconds = start.elapsed().as_secs_f64() * 1e6 / FILES as f64;
        println!("{}", serde_json::json!({ "microseconds": microseconds }));
        Ok(())
    }
}

/// Measures on one filesystem: one table.
pub fn measure(effort: &Effort, kind: &str, place: &Path) -> Result<Table> {
    let mut comparisons = Vec::new();
    let mut columns: Option<(Vec<&'static str>, Vec<LeftOut>)> = None;
    for (placement, prefix) in PLACEMENTS {
        let (subjects, left_out) = Subject::open_all(effort, place, prefix)?;
        let headings: Vec<_> = subjects.iter().map(Subject::heading).collect();
        match &columns {
            Some((pinned, _)) => ensure!(*pinned == headings, "{placement} there are {headings:?} only"),
            None => columns = Some((headings, left_out)),
        }
        comparisons.extend(compare(effort, &subjects, placement, prefix)?);
        subjects.into_iter().try_for_each(Subject::clear)?;
        eprintln!("bench: operations on {kind}: {placement}");
    }
    let Some((headings, left_out)) = columns else { bail!("no placement") };
    let peer = VARIANTS.iter().find_map(|peer| headings.iter().position(|it| *it == peer.heading));
    if peer.is_none_or(|peer| headings[peer] != VARIANTS[0].heading) {
        // The goals are ratios to the peer by io_uring.
        comparisons.iter_mut().for_each(|comparison| comparison.goal = "");
    }
    let presentation = Presentation {
        headings,
        time: microseconds,
        base: peer.unwrap_or(0),
        gain: peer.is_some(),
        operations: FILES as u64,
    };
    let description = format!(
        "{FILES} files of {SIZE} bytes in one directory are created, and then queried, read, changed, \
         renamed and removed one after another, by one thread; the program is the same for all columns, \
         which take turns in each run. Time, calls to the server and the kernel's requests are for one file. \
         The names leave the kernel's cache before stat; the statx that follows is the shortest request that \
         a FUSE filesystem gets. Pinned: program, mount and server on one processor (taskset -c 1). \
         passthrough_ll is libfuse's example, a filesystem in user space that does nothing but call the \
         system (--passthrough-ll names the program). Goals for a tree by io_uring: never slower than \
         passthrough_ll with io_uring, and 1.5 times as fast where a file is opened."
    );
    Ok(presentation.table(
        format!("Mount: single operations on {kind}"),
        description,
        &left_out,
        &comparisons,
    ))
}

/// Does all operations in each directory in turn, in every run.
fn compare(
    effort: &Effort,
    subjects: &[Subject],
    placement: &str,
    prefix: &[&str],
) -> Result<Vec<Comparison>> {
    let program = std::env::current_exe()?;
    let mut comparisons: Vec<Comparison> = OPERATIONS
        .iter()
        .map(|(_, title, goal)| Comparison::new(format!("{title}, {placement}"), goal, subjects.len()))
        .collect();
    for run in 0..effort.runs {
        for turn in 0..subjects.len() {
            let index = if run % 2 == 0 { turn } else { subjects.len() - 1 - turn };
            let subject = &subjects[index];
            for ((operation, ..), comparison) in OPERATIONS.iter().zip(&mut comparisons) {
                if matches!(operation, Operation::Stat) {
                    drop_names()?;
                }
                let word = operation.to_possible_value().context("a named operation")?;
                let mut command = Command::new(&program);
                command.args(["operation", word.get_name()]).arg(subject.work());
                let before = subject.calls();
                let report = json_of(&mut through(prefix, &command))?;
                let column = &mut comparison.columns[index];
                column.times.add(report["microseconds"].as_f64().context("a number")?);
                column.calls = subject.calls().since(before);
            }
            subject.wait_until_quiet()?;
        }
    }
    Ok(comparisons)
}

/// Drops names and inodes from the kernel's caches.
fn drop_names() -> Result<()> {
    let mut file = File::create("/proc/sys/vm/drop_caches").context("/proc/sys/vm/drop_caches")?;
    file.write_all(b"2").context("/proc/sys/vm/drop_caches")?;
    // The kernel sends FUSE filesystems a FORGET for each, which they handle meanwhile.
    std::thread::sleep(std::time::Duration::from_millis(100));
    Ok(())
}
