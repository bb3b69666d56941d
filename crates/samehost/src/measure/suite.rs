//! All workloads over all data paths, in turns, so that a slowdown of the machine affects all data paths.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use client::{LaneMode, OpenOptions, Session, Url};
use indicatif::{ProgressBar, ProgressStyle};

use super::run::run;
use super::{Figure, MeasureTarget, Raw, Report, Row, Served, WORKLOADS, Workload};
use crate::cli::LoadArgs;
use crate::connect::{Connector, TargetName, child, failure};
use crate::exit::Failure;

/// Uncommitted bytes that the measured client may hold. Here they are references to few buffers and cost no
/// memory. With the default bound only the wire would commit in the middle of a run.
const MAX_UNSTABLE: usize = 1 << 40;

/// The parameters of a measurement.
pub struct Suite<'a> {
    /// Connects over the lane, unless that is disabled.
    pub lane: Option<&'a mut Connector>,
    /// Connects over the wire.
    pub wire: &'a mut Connector,
    /// A directory on the server.
    pub url: &'a Url,
    /// A directory on this machine.
    pub raw: Option<PathBuf>,
    /// The time of a run.
    pub load: &'a LoadArgs,
    /// Bytes of the file.
    pub size: u64,
}

/// The files that are measured.
struct MeasuredFiles {
    raw: Option<Raw>,
    lane: Option<Served>,
    wire: Served,
}

/// The target of a run.
#[derive(Clone, Copy)]
enum Turn {
    Raw,
    Lane,
    Wire,
}

/// The runs of one workload, in operations per second.
#[derive(Default)]
struct Runs {
    raw: Vec<f64>,
    lane: Vec<f64>,
    wire: Vec<f64>,
}

/// Measures everything. Scratch files are made and removed.
pub async fn measure(suite: Suite<'_>) -> Result<Report, Failure> {
    let name = format!(".samehost-bench-{}", random_hex()?);
    let url = child(suite.url, name.as_bytes());
    let raw_dir = suite.raw.clone();
    suite.wire.options_mut().unstable_max = MAX_UNSTABLE;
    suite.wire.options_mut().lane = LaneMode::Off;
    let target = suite.wire.target_name(&url).await?;
    let measured = with_files(suite, &url, &target, raw_dir.map(|dir| dir.join(&name))).await;
    // The scratch file is removed also after a failure.
    if let Err(error) = target.session.remove(&target.directory, &target.name).await {
        tracing::warn!(%error, "the scratch file {url} stays behind");
    }
    measured
}

async fn with_files(
    suite: Suite<'_>,
    url: &Url,
    target: &TargetName,
    raw_path: Option<PathBuf>,
) -> Result<Report, Failure> {
    let size = suite.size;
    let wire = open(&target.session, target, url).await?;
    fill(&wire, size).await?;
    let mut report = Report {
        version: env!("CARGO_PKG_VERSION"),
        kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease")
            .unwrap_or_default()
            .trim_end()
            .to_owned(),
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        target: suite.url.to_string(),
        local: false,
        reasons: Vec::new(),
        depth: suite.load.depth,
        runs: suite.load.runs,
        milliseconds: suite.load.time,
        size,
        rows: Vec::new(),
    };
    let mut lane = None;
    if let Some(connector) = suite.lane {
        connector.options_mut().unstable_max = MAX_UNSTABLE;
        let session = connector.session(suite.url).await?;
        let found = session.probe().await;
        report.local = found.local;
        report.reasons = found.reasons;
        if found.local {
            let target = connector.target_name(url).await?;
            let served = open(&target.session, &target, url).await?;
            if served.file.data_path() == client::DataPath::Lane {
                lane = Some(served);
            } else {
                report
                    .reasons
                    .push("the file was not granted, though there is a lane; see the server's log".into());
            }
        }
    }
    // If the served directory is local, all data paths use the same file: the layout in memory differs
    // between files with the same bytes, and that alone can make a difference of a third.
    let raw = match raw_path {
        Some(path) if path.exists() => Some(Raw::existing(&path)?),
        Some(path) => {
            let raw = Raw::scratch(&path)?;
            fill(&raw, size).await?;
            Some(raw)
        }
        None => None,
    };
    let files = MeasuredFiles { raw, lane, wire };
    report.rows = rows(&files, suite.load, size).await?;
    if let Some(lane) = files.lane {
        lane.file.close().await.map_err(|error| failure(url, error))?;
    }
    files.wire.file.close().await.map_err(|error| failure(url, error))?;
    Ok(report)
}

async fn rows(files: &MeasuredFiles, load: &LoadArgs, size: u64) -> Result<Vec<Row>, Failure> {
    let data_paths = 1 + u64::from(files.raw.is_some()) + u64::from(files.lane.is_some());
    let bar = ProgressBar::new(data_paths * u64::from(load.runs) * WORKLOADS.len() as u64);
    if let Ok(style) = ProgressStyle::with_template("{msg:40!} {wide_bar} {eta:>4}") {
        bar.set_style(style);
    }
    let mut rows = Vec::new();
    for workload in WORKLOADS {
        let mut runs = Runs::default();
        for round in 0..load.runs {
            // Each run leaves caches, dirty pages and a busy disk to the next. Raw and lane alternate, so
            // that each comes as often after the other and after the wire.
            let turns = if round % 2 == 0 {
                [Turn::Raw, Turn::Lane, Turn::Wire]
            } else {
                [Turn::Lane, Turn::Raw, Turn::Wire]
            };
            for turn in turns {
                let show_data_path = |data_path| bar.set_message(format!("{}, {data_path}", workload.title));
                match (turn, &files.raw, &files.lane) {
                    (Turn::Raw, Some(raw), _) => {
                        show_data_path("raw");
                        runs.raw.push(run_once(raw, workload, load, size, &bar).await?);
                    }
                    (Turn::Lane, _, Some(lane)) => {
                        show_data_path("lane");
                        runs.lane.push(run_once(lane, workload, load, size, &bar).await?);
                    }
                    (Turn::Wire, ..) => {
                        show_data_path("wire");
                        runs.wire.push(run_once(&files.wire, workload, load, size, &bar).await?);
                    }
                    (Turn::Raw | Turn::Lane, ..) => {}
                }
            }
        }
        let figure = |runs: Vec<f64>| (!runs.is_empty()).then(|| Figure::of(runs, workload.block));
        rows.push(Row::new(workload, figure(runs.raw), figure(runs.lane), figure(runs.wire)));
    }
    bar.finish_and_clear();
    Ok(rows)
}

/// One run. Its data is made durable afterwards, outside of the measured time, so that the next run has
/// nothing left to write back.
async fn run_once<T: MeasureTarget>(
    target: &T,
    workload: Workload,
    load: &LoadArgs,
    size: u64,
    bar: &ProgressBar,
) -> Result<f64, Failure> {
    let done = run(target, workload, size, load.depth, Duration::from_millis(load.time.into())).await?;
    if workload.write {
        target.commit().await?;
    }
    bar.inc(1);
    Ok(done.rate())
}

async fn open(session: &Session, target: &TargetName, url: &Url) -> Result<Served, Failure> {
    let options = OpenOptions::new().read(true).write(true).create(true).mode(0o600);
    let file = session
        .open_at(&target.directory, &target.name, &options)
        .await
        .map_err(|error| failure(url, error))?;
    Ok(Served { file, url: url.clone() })
}

/// Fills the file with data, because holes are read faster. It is written in the workloads' larger block:
/// ext4 keeps a file in folios as large as the writes, and a later write of 4 KiB visits every block of its
/// folio. With 1 MiB that would be two thirds of a server's time, and the comparison one of ext4 with itself.
async fn fill<T: MeasureTarget>(target: &T, size: u64) -> Result<(), Failure> {
    let block = Bytes::from(vec![0xa5; 128 << 10]);
    for offset in (0..size).step_by(block.len()) {
        target.write(block.clone(), offset).await?;
    }
    target.commit().await
}

fn random_hex() -> Result<String, Failure> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| Failure::new("random numbers", error))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
