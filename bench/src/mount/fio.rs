//! fio on the plain directory, on the mount with a lane, and on the mount without, in one run, in the form
//! of the figures in the kernel's documentation of LOCALIO.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use samehost_tests::Serve;
use serde_json::Value;

use super::DataPath;
use crate::Effort;
use crate::data_paths::json_of;
use crate::figure::{Figure, Table, bytes_per_second, per_second, ratio};
use crate::perf;
use crate::selection::Selection;

/// Bytes of all files of a run together.
pub const SIZE: usize = 256 << 20;

/// A run's length as a fraction of the other parts' runs: there are more than a hundred cells.
const RUN_FRACTION: f64 = 0.5;

/// The words of a cell; `--only` may give any of them.
pub const WORDS: &str = "fio, tmpfs|ext4|xfs, randread|randwrite|read|write, 4k|128k, 1-job|16-jobs";

/// One workload of fio.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// fio's name of the operation.
    op: &'static str,
    /// Block size in bytes.
    pub block: usize,
    /// The title in tables.
    pub title: &'static str,
    /// The least ratio of lane to raw that is aimed for.
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

/// The loads for the comparison with libnfs: one for each block size and direction.
pub const COMPARED_LOADS: [Load; 4] = [LOADS[0], LOADS[1], LOADS[4], LOADS[5]];

/// Numbers of concurrent jobs.
const JOBS: [usize; 2] = [1, 16];

impl Load {
    /// Formats its rates for a table.
    pub fn show(self, figure: &Figure) -> String {
        if self.block > 4096 {
            figure.show(|ops| bytes_per_second(ops * self.block as f64))
        } else {
            figure.show(per_second)
        }
    }

    fn is_wanted(self, only: &Selection, kind: &str, jobs: usize) -> bool {
        let block = format!("{}k", self.block >> 10);
        only.takes(&["fio", kind, self.op, &block, if jobs == 1 { "1-job" } else { "16-jobs" }])
    }

    /// Its title with the number of jobs.
    fn title_with_jobs(self, jobs: usize) -> String {
        format!("{}, {jobs} {}", self.title, if jobs == 1 { "job" } else { "jobs" })
    }

    /// The operation's name in `bench/nfsload`.
    pub fn op(self) -> &'static str {
        self.op
    }

    /// One run on the existing files of `directory`; operations per second.
    pub fn run(self, directory: &Path, jobs: usize, effort: &Effort) -> Result<f64> {
        let report = json_of(&mut self.command(directory, jobs, effort))?;
        let side = if self.op.ends_with("read") { "read" } else { "write" };
        let number: Option<&Value> = report.pointer(&format!("/jobs/0/{side}/iops"));
        number.and_then(Value::as_f64).with_context(|| format!("no iops in what fio wrote: {report}"))
    }

    fn command(self, directory: &Path, jobs: usize, effort: &Effort) -> Command {
        let mut command = fio(directory, self.op, self.block, jobs);
        let runtime = effort.seconds * RUN_FRACTION * 1000.0;
        command.args(["--time_based".into(), format!("--runtime={runtime:.0}ms")]);
        command
    }
}

/// One cell of the table: operations per second over the data paths.
#[derive(Debug)]
pub struct Cell {
    /// The filesystem.
    pub kind: String,
    /// The workload.
    pub load: Load,
    /// The number of jobs.
    pub jobs: usize,
    /// In the order of [`DataPath::ALL`].
    pub results: [Figure; 4],
}

impl Cell {
    /// The cell's title.
    pub fn title(&self) -> String {
        self.load.title_with_jobs(self.jobs)
    }
}

/// Whether any cell on this filesystem is selected.
pub fn wanted(only: &Selection, kind: &str) -> bool {
    JOBS.iter().any(|jobs| LOADS.iter().any(|load| load.is_wanted(only, kind, *jobs)))
}

/// Runs `measure` on the four directories for every selected cell on one filesystem.
fn for_each_cell<T>(
    only: &Selection,
    kind: &str,
    place: &Path,
    mut measure: impl FnMut(Load, usize, [&Path; 4]) -> Result<T>,
) -> Result<Vec<T>> {
    let export = place.join("mount");
    std::fs::create_dir(&export)?;
    let server = Serve::openly(&export).start();
    let directories = DataPath::ALL.map(|data_path| data_path.open(&server, &export));
    let mut all = Vec::new();
    for jobs in JOBS {
        let loads: Vec<Load> = LOADS.into_iter().filter(|load| load.is_wanted(only, kind, jobs)).collect();
        if loads.is_empty() {
            continue;
        }
        create_files(&export, jobs)?;
        for load in loads {
            all.push(measure(load, jobs, directories.each_ref().map(super::Directory::path))?);
        }
        for entry in std::fs::read_dir(&export)? {
            std::fs::remove_file(entry?.path())?;
        }
    }
    Ok(all)
}

/// The cells of one filesystem.
pub fn cells(effort: &Effort, only: &Selection, kind: &str, place: &Path) -> Result<Vec<Cell>> {
    for_each_cell(only, kind, place, |load, jobs, directories| {
        let mut results: [Figure; 4] = Default::default();
        for _ in 0..effort.runs {
            for (figure, directory) in results.iter_mut().zip(directories) {
                figure.add(load.run(directory, jobs, effort)?);
            }
        }
        let cell = Cell { kind: kind.to_owned(), load, jobs, results };
        let [raw, lane, wire, _] = &cell.results;
        eprintln!(
            "bench: mount on {kind}, {}: lane / raw {}, lane / wire {}",
            cell.title(),
            ratio(lane, raw),
            ratio(lane, wire)
        );
        Ok(cell)
    })
}

/// Profiles the selected cells on one filesystem.
pub fn profile(effort: &Effort, only: &Selection, kind: &str, place: &Path) -> Result<String> {
    let texts = for_each_cell(only, kind, place, |load, jobs, directories| {
        let mut text = String::new();
        for (data_path, directory) in DataPath::ALL.into_iter().zip(directories) {
            let title = format!("{} on {kind}, {}", load.title_with_jobs(jobs), data_path.name());
            text += &perf::profile(&title, &load.command(directory, jobs, effort))?;
        }
        Ok(text)
    })?;
    Ok(texts.concat())
}

/// Creates the files of a run, so that no measurement includes block allocation.
pub fn create_files(directory: &Path, jobs: usize) -> Result<()> {
    json_of(&mut fio(directory, "write", 1 << 20, jobs)).map(drop)
}

/// The file of a run with one job.
pub const FILE: &str = "job.0";

fn fio(directory: &Path, op: &str, block: usize, jobs: usize) -> Command {
    let mut command = Command::new("fio");
    // fio takes a job's name for a file's if a directory of that name exists in the current directory.
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
        let [raw, lane, wire, wire_4] = &cell.results;
        vec![
            cell.title(),
            cell.load.show(raw),
            cell.load.show(lane),
            cell.load.show(wire),
            cell.load.show(wire_4),
            ratio(lane, raw),
            format!("{:.2}", cell.load.goal),
            ratio(lane, wire),
            ratio(wire_4, wire),
        ]
    });
    Table {
        title: format!("Mount: raw, lane and wire on {kind}"),
        description: "fio with libaio, direct=1, iodepth=8 and 256 MiB in as many files as jobs, on \
                      the plain directory, on a mount with lane=required (passed through) and on two \
                      with lane=off, by NFSv3 (wire) and by NFSv4.2, in turn, in runs of half the \
                      time; the images of ext4 and xfs are in memory, behind a loop device. Goals: the \
                      lane at 0.85 of raw at 4 KiB and 0.95 at 128 KiB; at 10 times the wire for 4 KiB \
                      reads with 16 jobs, 3 times with one."
            .to_owned(),
        head: vec!["", "raw", "lane", "wire", "wire, 4.2", "lane / raw", "goal", "lane / wire", "4.2 / 3"],
        rows: rows.collect(),
    }
}
