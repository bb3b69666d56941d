//! `make bench`: what docs/benchmarks.md says, measured.
//!
//! Figures are ratios of things measured side by side in one run on one machine. What is compared takes turns (A B A B ...),
//! so that whatever else the machine does meets both; shown are medians and spreads. Servers, disks and networks come
//! from the harness of the whole-system tests. Needs root, and takes some minutes.

mod figure;
mod io_modes;
mod mount;
mod network;
mod nfs4;
mod peers;
mod plot;
mod report;
mod roads;
mod small;
mod start;
mod trees;

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};

use figure::Table;
use samehost_tests::Scratch;
use samehost_tests::disk::Disk;

/// The picture of the mount's figures, beside the file that `--write` names.
const PLOT: &str = "benchmarks-mount.svg";

/// Measures Samehost: its roads, and its server beside nfs-ganesha.
#[derive(Debug, Parser)]
struct Cli {
    /// What to measure
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "roads,small,mount,peers,network,nfs4,io-modes,start"
    )]
    only: Vec<String>,
    /// On which filesystems: tmpfs, ext4, xfs
    #[arg(long, value_delimiter = ',', default_value = "tmpfs,ext4")]
    on: Vec<String>,
    /// Runs of each measurement, of which the median counts
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Seconds a run
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// The load generator (make nfsload)
    #[arg(long, default_value = "target/bench/nfsload")]
    nfsload: PathBuf,
    /// Write the tables into this file as well
    #[arg(long)]
    write: Option<PathBuf>,
    #[command(subcommand)]
    part: Option<Part>,
}

/// What the driver starts itself for.
#[derive(Debug, Subcommand)]
enum Part {
    /// Open, read and close every file of a directory, one after another; prints JSON
    #[command(hide = true)]
    SmallFiles(small::Reader),
    /// Keep so many READs or WRITEs under way, by NFSv3 or NFSv4; prints JSON
    #[command(hide = true)]
    Nfs4Load(nfs4::Load),
    /// Open, read and close every file of a directory by NFSv4, twice; prints JSON
    #[command(hide = true)]
    Nfs4Small(nfs4::Small),
    /// Stream a file, or read here and there meanwhile; prints JSON
    #[command(hide = true)]
    IoWorker(io_modes::Worker),
}

/// How much of everything.
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
    let mut tables: Vec<Table> = Vec::new();
    let mut cells: Vec<mount::Cell> = Vec::new();
    for part in &cli.only {
        eprintln!("bench: {part}");
        match part.as_str() {
            "start" => tables.push(start::measure(&effort)?),
            "network" => tables.push(network::measure(&effort)?),
            "mount" => {
                for kind in ["tmpfs", "ext4", "xfs"] {
                    let place = Place::in_memory(kind)?;
                    let found = mount::cells(&effort, kind, place.path())?;
                    let mut table = mount::table(kind, &found);
                    if cells.is_empty() {
                        let _ = write!(table.about, "\n\n![All of the mount's figures]({PLOT})");
                    }
                    tables.push(table);
                    cells.extend(found);
                }
                let place = Place::new("tmpfs")?;
                tables.push(mount::beside_nfs_cp(&effort, "tmpfs", place.path())?);
                for kind in &cli.on {
                    tables.push(trees::measure(&effort, kind, Place::new(kind)?.path())?);
                }
            }
            "nfs4" => tables.extend(nfs4::measure(&effort, "tmpfs", Place::new("tmpfs")?.path())?),
            "io-modes" => {
                for kind in ["ext4", "xfs"] {
                    eprintln!("bench: {part} on {kind}");
                    tables.push(io_modes::measure(&effort, kind)?);
                }
            }
            "roads" | "small" | "peers" => {
                for kind in &cli.on {
                    eprintln!("bench: {part} on {kind}");
                    let place = Place::new(kind)?;
                    match part.as_str() {
                        "roads" => tables.push(roads::measure(&effort, kind, place.path())?),
                        "small" => tables.push(small::measure(&effort, kind, place.path())?),
                        _ => tables.extend(peers::measure(&effort, kind, place.path())?),
                    }
                }
            }
            other => {
                bail!(
                    "--only {other}: there are roads, small, mount, peers, network, nfs4, io-modes and start"
                )
            }
        }
    }
    let plot = cli.write.as_ref().filter(|_| !cells.is_empty()).map(|path| path.with_file_name(PLOT));
    let text = report::markdown(&tables, &effort, &std::env::args().skip(1).collect::<Vec<_>>());
    print!("{text}");
    if let Some(path) = plot {
        std::fs::write(&path, plot::svg(&cells)).with_context(|| path.display().to_string())?;
    }
    if let Some(path) = cli.write {
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// A directory on a filesystem of some kind.
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

    /// The same with the disk's image in memory, where the disk itself isn't what is to be measured.
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
