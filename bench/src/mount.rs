//! The mount as an application meets it: fio on the plain directory, on the mount with a lane, and on the mount without,
//! in one run, as the kernel's document on LOCALIO shows its figures.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use samehost_tests::process::run_within;
use samehost_tests::{Mount, Serve};
use serde_json::Value;

use crate::Effort;
use crate::figure::{Figure, Table, bytes_per_second, per_second, ratio};
use crate::roads::json_of;

/// Bytes of all files of a run together.
const SIZE: usize = 256 << 20;

/// What fio does: its word, bytes at a time, our title, and the goal for lane to raw.
pub const LOADS: [(&str, usize, &str, f64); 6] = [
    ("randread", 4096, "4 KiB random read", 0.85),
    ("randwrite", 4096, "4 KiB random write", 0.85),
    ("read", 4096, "4 KiB sequential read", 0.85),
    ("write", 4096, "4 KiB sequential write", 0.85),
    ("read", 128 << 10, "128 KiB sequential read", 0.95),
    ("write", 128 << 10, "128 KiB sequential write", 0.95),
];

/// How many jobs at the same time.
const JOBS: [usize; 2] = [1, 16];

/// One cell of the table: operations a second by the three roads.
#[derive(Debug)]
pub struct Cell {
    /// The filesystem.
    pub kind: String,
    /// What was done.
    pub title: &'static str,
    /// By so many jobs.
    pub jobs: usize,
    /// Bytes at a time.
    pub block: usize,
    /// The goal for lane to raw.
    pub goal: f64,
    /// The plain directory, the lane and the wire.
    pub roads: [Figure; 3],
}

/// Every cell on one filesystem.
pub fn cells(effort: &Effort, kind: &str, place: &Path) -> Result<Vec<Cell>> {
    let export = place.join("mount");
    std::fs::create_dir(&export)?;
    let server = Serve::openly(&export).start();
    let lane = Mount::new(&server, &export, "lane=required");
    let wire = Mount::new(&server, &export, "lane=off");
    let mut cells = Vec::new();
    for jobs in JOBS {
        // Made once, so that no run measures how a filesystem finds room.
        fio(&export, "write", 1 << 20, jobs, 0.0)?;
        for (op, block, title, goal) in LOADS {
            let mut roads: [Figure; 3] = Default::default();
            for _ in 0..effort.runs {
                for (figure, at) in roads.iter_mut().zip([export.as_path(), lane.path(), wire.path()]) {
                    figure.add(fio(at, op, block, jobs, effort.seconds)?);
                }
            }
            eprintln!(
                "bench: mount on {kind}, {title}, {jobs} jobs: lane / raw {}, lane / wire {}",
                ratio(&roads[1], &roads[0]),
                ratio(&roads[1], &roads[2])
            );
            cells.push(Cell { kind: kind.to_owned(), title, jobs, block, goal, roads });
        }
        for entry in std::fs::read_dir(&export)? {
            std::fs::remove_file(entry?.path())?;
        }
    }
    Ok(cells)
}

/// One run of fio; operations a second. For 0 seconds it goes over every byte once.
fn fio(directory: &Path, op: &str, block: usize, jobs: usize, seconds: f64) -> Result<f64> {
    let mut command = Command::new("fio");
    command.arg("--name=bench").arg(format!("--directory={}", directory.display()));
    command.args([
        "--ioengine=libaio",
        "--direct=1",
        "--iodepth=8",
        "--group_reporting",
        "--output-format=json",
    ]);
    command.args([format!("--rw={op}"), format!("--bs={block}"), format!("--numjobs={jobs}")]);
    command.args([format!("--size={}", SIZE / jobs), "--fallocate=none".into(), "--randrepeat=0".into()]);
    if seconds > 0.0 {
        command.args(["--time_based".into(), format!("--runtime={}ms", (seconds * 1000.0).round())]);
    }
    let report = json_of(&mut command)?;
    let side = if op.ends_with("read") { "read" } else { "write" };
    let number: Option<&Value> = report.pointer(&format!("/jobs/0/{side}/iops"));
    number.and_then(Value::as_f64).with_context(|| format!("no iops in what fio wrote: {report}"))
}

/// The cells of one filesystem as a table.
pub fn table(kind: &str, cells: &[Cell]) -> Table {
    let rows = cells.iter().map(|cell| {
        let shown = |figure: &Figure| {
            if cell.block > 4096 {
                figure.show(|ops| bytes_per_second(ops * cell.block as f64))
            } else {
                figure.show(per_second)
            }
        };
        let [raw, lane, wire] = &cell.roads;
        vec![
            format!("{}, {} {}", cell.title, cell.jobs, if cell.jobs == 1 { "job" } else { "jobs" }),
            shown(raw),
            shown(lane),
            shown(wire),
            ratio(lane, raw),
            format!("{:.2}", cell.goal),
            ratio(lane, wire),
        ]
    });
    Table {
        title: format!("Mount: raw, lane and wire on {kind}"),
        about: "fio with libaio, direct=1, iodepth=8 and 256 MiB in as many files as jobs, on the plain directory, on a mount with \
                lane=required (passed through) and on one with lane=off, in turn; the images of ext4 and xfs are in memory, behind a \
                loop device. Goals: the lane at 0.85 of raw at 4 KiB and 0.95 at \
                128 KiB; at 10 times the wire for 4 KiB reads with 16 jobs, 3 times with one."
            .to_owned(),
        head: vec!["", "raw", "lane", "wire", "lane / raw", "goal", "lane / wire"],
        rows: rows.collect(),
    }
}

/// The wire road of the mount beside `nfs-cp`: a file of 256 MiB read from the server into nothing.
pub fn beside_nfs_cp(effort: &Effort, kind: &str, place: &Path) -> Result<Table> {
    let export = place.join("nfs-cp");
    std::fs::create_dir(&export)?;
    std::fs::write(export.join("file"), samehost_tests::scratch::pattern(1, SIZE))?;
    let server = Serve::openly(&export).start();
    let wire = Mount::new(&server, &export, "lane=off");
    let url = server.libnfs_url(export.join("file"));
    let mut figures: [[Figure; 2]; 2] = Default::default();
    let copy = place.join("copy");
    for _ in 0..effort.runs {
        // What is read must come from the server, not from this mount's cache.
        drop_caches()?;
        figures[0][0].add(timed(Command::new("cp").arg(wire.join("file")).arg(&copy))?);
        figures[0][1].add(timed(Command::new("nfs-cp").arg(&url).arg(&copy))?);
        figures[1][0].add(timed(Command::new("cp").arg(&copy).arg(wire.join("back")))?);
        figures[1][1]
            .add(timed(Command::new("nfs-cp").arg(&copy).arg(server.libnfs_url(export.join("back"))))?);
    }
    std::fs::remove_file(&copy)?;
    let rows = [("read", &figures[0]), ("written", &figures[1])].map(|(what, [ours, theirs])| {
        vec![
            format!("256 MiB {what}"),
            ours.show(bytes_per_second),
            theirs.show(bytes_per_second),
            ratio(ours, theirs),
        ]
    });
    Ok(Table {
        title: format!("Mount: the wire beside nfs-cp on {kind}"),
        about: "One file of 256 MiB copied by cp(1) from and to a mount with lane=off, and by libnfs's nfs-cp, which needs no \
                mount, from and to the same server in turn."
            .to_owned(),
        head: vec!["", "mount, lane=off", "nfs-cp", "ratio"],
        rows: rows.to_vec(),
    })
}

/// Bytes a second that a copy of the file took.
fn timed(command: &mut Command) -> Result<f64> {
    let start = std::time::Instant::now();
    let output = run_within(command, Duration::from_secs(300));
    anyhow::ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(SIZE as f64 / start.elapsed().as_secs_f64())
}

/// Makes what is read next come from where it is kept.
pub fn drop_caches() -> Result<()> {
    samehost_tests::run_ok(&mut Command::new("sync"));
    std::fs::write("/proc/sys/vm/drop_caches", "3").context("/proc/sys/vm/drop_caches")
}
