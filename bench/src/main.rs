//! `make bench`: measures the tables of docs/benchmarks.md.
//!
//! Results are ratios of things measured side by side in one run on one machine. The compared things take
//! turns (A B A B ...), so that a disturbance of the machine affects both; shown are medians and spreads.
//! Servers, disks and networks come from the harness of the whole-system tests. Needs root, and takes some
//! minutes.

mod data_paths;
mod figure;
mod io_modes;
mod mount;
mod network;
mod nfs4;
mod peers;
mod report;
mod selection;
mod server_pair;
mod small;
mod start;
mod steal_time;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};

use figure::Table;
use samehost_tests::Scratch;
use samehost_tests::disk::Disk;
use selection::Selection;

/// The plot of the mount's results, in the directory of the file that `--write` names.
const PLOT: &str = "benchmarks-mount.svg";

/// Measures Samehost: raw filesystem, lane and wire, and its server beside nfs-ganesha.
#[derive(Debug, Parser)]
struct Cli {
    /// What to measure: parts, or the cells of the part mount that have all of the given words
    /// (mount:tmpfs:randread:16-jobs)
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "data-paths,small,mount,peers,network,nfs4,io-modes,start"
    )]
    only: Vec<Selection>,
    /// Profile the mount's cells with perf(1) instead of measuring them
    #[arg(long)]
    profile: bool,
    /// Filesystems: tmpfs, ext4, xfs
    #[arg(long, value_delimiter = ',', default_value = "tmpfs,ext4")]
    on: Vec<String>,
    /// Runs of each measurement; the result is their median
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Seconds per run
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// The load generator (make nfsload)
    #[arg(long, default_value = "target/bench/nfsload")]
    nfsload: PathBuf,
    /// Put the tables into this file, replacing those of the same titles
    #[arg(long)]
    write: Option<PathBuf>,
    #[command(subcommand)]
    part: Option<Part>,
}

/// The child processes that the benchmark starts of itself.
#[derive(Debug, Subcommand)]
enum Part {
    /// Open, read and close every file of a directory in turn; prints JSON
    #[command(hide = true)]
    SmallFiles(small::Reader),
    /// Keep a fixed number of READs or WRITEs in flight by NFSv3 or NFSv4; prints JSON
    #[command(hide = true)]
    Nfs4Load(nfs4::Load),
    /// Open, read and close every file of a directory by NFSv4, twice; prints JSON
    #[command(hide = true)]
    Nfs4Small(nfs4::Small),
    /// Stream a file, or read random blocks until standard input ends; prints JSON
    #[command(hide = true)]
    IoWorker(io_modes::Worker),
}

/// How many runs to make, and how long each takes.
#[derive(Debug, Clone)]
struct Effort {
    runs: usize,
    seconds: f64,
    nfsload: PathBuf,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    match cli.part {
        Some(Part::SmallFiles(reader)) => return reader.run(),
        Some(Part::Nfs4Load(load)) => return load.run(),
        Some(Part::Nfs4Small(small)) => return small.run(),
        Some(Part::IoWorker(worker)) => return worker.run(),
        None => {}
    }
    samehost_tests::need_root();
    let nfsload =
        cli.nfsload.canonicalize().with_context(|| format!("{}: make nfsload", cli.nfsload.display()))?;
    let effort = Effort { runs: cli.runs.max(1), seconds: cli.seconds, nfsload };
    let begun = steal_time::CpuTime::now();
    let mut tables: Vec<Table> = Vec::new();
    let mut plot = None;
    for only in &cli.only {
        eprintln!("bench: {only}");
        if only.part != "mount" && (cli.profile || !only.is_whole()) {
            bail!("--only {only}: only mount has cells, and profiles");
        }
        match only.part.as_str() {
            "mount" if cli.profile => print!("{}", mount::profile(&effort, only, &cli.on)?),
            "mount" => {
                let found = mount::measure(&effort, only, &cli.on, PLOT)?;
                tables.extend(found.tables);
                plot = found.plot;
            }
            part => tables.extend(measure(&effort, part, &cli.on)?),
        }
    }
    if cli.profile {
        return Ok(());
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let stolen = steal_time::CpuTime::now().stolen_since(begun);
    print!("{}", report::merged("", &tables, &effort, stolen, &arguments));
    if let Some(path) = cli.write {
        let old = match std::fs::read_to_string(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
            old => old.with_context(|| path.display().to_string())?,
        };
        let text = report::merged(&old, &tables, &effort, stolen, &arguments);
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
        if let Some(svg) = plot {
            let path = path.with_file_name(PLOT);
            std::fs::write(&path, svg).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

/// Measures a part that isn't divided into cells.
fn measure(effort: &Effort, part: &str, on: &[String]) -> Result<Vec<Table>> {
    let mut tables = Vec::new();
    match part {
        "start" => tables.push(start::measure(effort)?),
        "network" => tables.push(network::measure(effort)?),
        "nfs4" => tables.extend(nfs4::measure(effort, "tmpfs", Place::new("tmpfs")?.path())?),
        "io-modes" => {
            for kind in ["ext4", "xfs"] {
                eprintln!("bench: {part} on {kind}");
                tables.push(io_modes::measure(effort, kind)?);
            }
        }
        "data-paths" | "small" | "peers" => {
            for kind in on {
                eprintln!("bench: {part} on {kind}");
                let place = Place::new(kind)?;
                match part {
                    "data-paths" => tables.push(data_paths::measure(effort, kind, place.path())?),
                    "small" => tables.push(small::measure(effort, kind, place.path())?),
                    _ => tables.extend(peers::measure(effort, kind, place.path())?),
                }
            }
        }
        other => {
            bail!(
                "--only {other}: there are data-paths, small, mount, peers, network, nfs4, io-modes and start"
            )
        }
    }
    Ok(tables)
}

/// A directory on a filesystem of a given kind.
enum Place {
    Memory(Scratch),
    Disk(Disk),
}

impl Place {
    fn new(kind: &str) -> Result<Self> {
        Ok(match kind {
            "tmpfs" => Self::Memory(Scratch::in_memory()),
            "ext4" | "xfs" => Self::Disk(Disk::new(kind, 2048)),
            other => bail!("--on {other}: there are tmpfs, ext4 and xfs"),
        })
    }

    /// The same with the disk's image in memory, so that the disk's own speed isn't measured.
    fn in_memory(kind: &str) -> Result<Self> {
        Ok(match kind {
            "ext4" | "xfs" => Self::Disk(Disk::in_directory(kind, 1024, std::path::Path::new("/dev/shm"))),
            other => Self::new(other)?,
        })
    }

    fn path(&self) -> &std::path::Path {
        match self {
            Self::Memory(scratch) => scratch.path(),
            Self::Disk(disk) => disk.path(),
        }
    }
}
