//! fio on the plain directory, on the mount with a lane, and on the mount without, in one run, as the
//! kernel's document on LOCALIO shows its figures.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use samehost_tests::Serve;
use serde_json::Value;

use super::{DataPath, perf};
use crate::Effort;
use crate::data_paths::json_of;
use crate::figure::{Figure, Table, bytes_per_second, per_second, ratio};
use crate::only::Only;

/// Bytes of all files of a run together.
pub const SIZE: usize = 256 << 20;

/// A run is so much of the others' time: there are more than a hundred cells.
const PART: f64 = 0.5;

/// Words of a cell, of which `--only` may name any.
pub const WORDS: &str = "fio, tmpfs|ext4|xfs, randread|randwrite|read|write, 4k|128k, 1-job|16-jobs";

/// What fio does.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// fio's word.
    op: &'static str,
    /// Bytes at a time.
    pub block: usize,
    /// Our title.
    pub title: &'static str,
    /// The goal for lane to raw.
    pub goal: f64,
}

const LOADS: [Load; 6] = [
    Load { op: "randread", block: 4096, title: "4 KiB random read", goal: 0.85 },
    Load { op: "randwrite", block: 4096, title: "4 KiB random write", goal: 0.85 },
    Load { op: "read", block: 4096, title: "4 KiB sequential read", goal: 0.85 },
    Load { op: "write", block: 4096, title: "4 KiB sequential write", goal: 0.85 },
    Load { op: "read", block: 128 << 10, title: "128 KiB sequential read", goal: 0.95 },
    Load { op: "write", block: 128 << 10, title: "128 KiB sequential write", goal: 0.95 },
];

/// Those that the wire is compared by: one with each size of block and direction.
pub const BESIDE: [Load; 4] = [LOADS[0], LOADS[1], LOADS[4], LOADS[5]];

/// How many jobs at the same time.
const JOBS: [usize; 2] = [1, 16];

impl Load {
    /// Rates of it in a table.
    pub fn show(self, figure: &Figure) -> String {
        if self.block > 4096 {
            figure.show(|ops| bytes_per_second(ops * self.block as f64))
        } else {
            figure.show(per_second)
        }
    }

    fn is_wanted(self, only: &Only, kind: &str, jobs: usize) -> bool {
        let block = format!("{}k", self.block >> 10);
        only.takes(&["fio", kind, self.op, &block, if jobs == 1 { "1-job" } else { "16-jobs" }])
    }

    /// With its jobs, as people say it.
    fn named(self, jobs: usize) -> String {
        format!("{}, {jobs} {}", self.title, if jobs == 1 { "job" } else { "jobs" })
    }

    /// What `bench/nfsload` calls it.
    pub fn op(self) -> &'static str {
        self.op
    }

    /// One run in `directory`, whose files are there; operations a second.
    pub fn run(self, directory: &Path, jobs: usize, effort: &Effort) -> Result<f64> {
        let report = json_of(&mut self.command(directory, jobs, effort))?;
        let side = if self.op.ends_with("read") { "read" } else { "write" };
        let number: Option<&Value> = report.pointer(&format!("/jobs/0/{side}/iops"));
        number.and_then(Value::as_f64).with_context(|| format!("no iops in what fio wrote: {report}"))
    }

    fn command(self, directory: &Path, jobs: usize, effort: &Effort) -> Command {
        let mut command = fio(directory, self.op, self.block, jobs);
        command.args(["--time_based".into(), format!("--runtime={:.0}ms", effort.seconds * PART * 1000.0)]);
        command
    }
}

/// One cell of the table: operations a second by the three data paths.
#[derive(Debug)]
pub struct Cell {
    /// The filesystem.
    pub kind: String,
    /// What was done.
    pub load: Load,
    /// By so many jobs.
    pub jobs: usize,
    /// By [`DataPath::ALL`].
    pub data_paths: [Figure; 3],
}

impl Cell {
    /// As people say it.
    pub fn title(&self) -> String {
        self.load.named(self.jobs)
    }
}

/// Whether any cell on this filesystem is wanted.
pub fn wanted(only: &Only, kind: &str) -> bool {
    JOBS.iter().any(|jobs| LOADS.iter().any(|load| load.is_wanted(only, kind, *jobs)))
}

/// Every wanted cell on one filesystem, measured by `look` in the three directories.
fn each<T>(
    only: &Only,
    kind: &str,
    place: &Path,
    mut look: impl FnMut(Load, usize, [&Path; 3]) -> Result<T>,
) -> Result<Vec<T>> {
    let export = place.join("mount");
    std::fs::create_dir(&export)?;
    let server = Serve::openly(&export).start();
    let reached = DataPath::ALL.map(|data_path| data_path.open(&server, &export));
    let mut all = Vec::new();
    for jobs in JOBS {
        let loads: Vec<Load> = LOADS.into_iter().filter(|load| load.is_wanted(only, kind, jobs)).collect();
        if loads.is_empty() {
            continue;
        }
        lay(&export, jobs)?;
        for load in loads {
            all.push(look(load, jobs, reached.each_ref().map(super::Reached::path))?);
        }
        for entry in std::fs::read_dir(&export)? {
            std::fs::remove_file(entry?.path())?;
        }
    }
    Ok(all)
}

/// The cells of one filesystem.
pub fn cells(effort: &Effort, only: &Only, kind: &str, place: &Path) -> Result<Vec<Cell>> {
    each(only, kind, place, |load, jobs, reached| {
        let mut data_paths: [Figure; 3] = Default::default();
        for _ in 0..effort.runs {
            for (figure, at) in data_paths.iter_mut().zip(reached) {
                figure.add(load.run(at, jobs, effort)?);
            }
        }
        let cell = Cell { kind: kind.to_owned(), load, jobs, data_paths };
        let [raw, lane, wire] = &cell.data_paths;
        eprintln!(
            "bench: mount on {kind}, {}: lane / raw {}, lane / wire {}",
            cell.title(),
            ratio(lane, raw),
            ratio(lane, wire)
        );
        Ok(cell)
    })
}

/// Where their time goes.
pub fn profile(effort: &Effort, only: &Only, kind: &str, place: &Path) -> Result<String> {
    let texts = each(only, kind, place, |load, jobs, reached| {
        let mut text = String::new();
        for (data_path, at) in DataPath::ALL.into_iter().zip(reached) {
            let title = format!("{} on {kind}, {}", load.named(jobs), data_path.name());
            text += &perf::of(&title, &load.command(at, jobs, effort))?;
        }
        Ok(text)
    })?;
    Ok(texts.concat())
}

/// Makes the files of a run, so that none measures how a filesystem finds room.
pub fn lay(directory: &Path, jobs: usize) -> Result<()> {
    json_of(&mut fio(directory, "write", 1 << 20, jobs)).map(drop)
}

/// The file of the only job.
pub const FILE: &str = "job.0";

fn fio(directory: &Path, op: &str, block: usize, jobs: usize) -> Command {
    let mut command = Command::new("fio");
    // fio takes a job's name for a file's if there is a directory of that name where it is started.
    command.arg("--name=samehost-bench").arg(format!("--directory={}", directory.display()));
    command.args(["--ioengine=libaio", "--direct=1", "--iodepth=8", "--group_reporting"]);
    command.args(["--output-format=json", "--fallocate=none", "--randrepeat=0"]);
    command.args([format!("--rw={op}"), format!("--bs={block}"), format!("--numjobs={jobs}")]);
    command.args([format!("--size={}", SIZE / jobs), "--filename_format=job.$jobnum".into()]);
    command
}

/// The cells of one filesystem as a table.
pub fn table(kind: &str, cells: &[Cell]) -> Table {
    let rows = cells.iter().map(|cell| {
        let [raw, lane, wire] = &cell.data_paths;
        vec![
            cell.title(),
            cell.load.show(raw),
            cell.load.show(lane),
            cell.load.show(wire),
            ratio(lane, raw),
            format!("{:.2}", cell.load.goal),
            ratio(lane, wire),
        ]
    });
    Table {
        title: format!("Mount: raw, lane and wire on {kind}"),
        about: "fio with libaio, direct=1, iodepth=8 and 256 MiB in as many files as jobs, on the plain \
                directory, on a mount with lane=required (passed through) and on one with lane=off, in turn, \
                in runs of half the time; the images of ext4 and xfs are in memory, behind a loop device. \
                Goals: the lane at 0.85 of raw at 4 KiB and 0.95 at 128 KiB; at 10 times the wire for 4 KiB \
                reads with 16 jobs, 3 times with one."
            .to_owned(),
        head: vec!["", "raw", "lane", "wire", "lane / raw", "goal", "lane / wire"],
        rows: rows.collect(),
    }
}
