//! `make bench`: measures the tables of docs/benchmarks.md.
//!
//! Results are ratios of things measured side by side in one run on one machine. The compared things take
//! turns (A B A B ...), so that a disturbance of the machine affects both; shown are medians and spreads.
//! Servers, disks and networks come from the harness of the whole-system tests. Needs root, and takes some
//! minutes.

mod cluster;
mod data_paths;
mod enable_uring;
mod figure;
mod io_modes;
mod metrics;
mod mount;
mod mount_memory;
mod network;
mod nfs4;
mod peers;
mod perf;
mod report;
mod selection;
mod server_pair;
mod small;
mod start;
mod steal_time;
mod trees;

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
    /// What to measure: parts, or the cells of a part that have all of the given words (trees:ext4,
    /// mount:tmpfs:randread:16-jobs)
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "data-paths,small,mount,trees,operations,commands,peers,network,nfs4,io-modes,\
                         metrics,mount-memory,start"
    )]
    only: Vec<Selection>,
    /// Profile the cells of mount or trees with perf(1) instead of measuring them
    #[arg(long)]
    profile: bool,
    /// Filesystems: tmpfs, ext4, xfs (default: all for trees, operations and commands, otherwise tmpfs and
    /// ext4)
    #[arg(long, value_delimiter = ',')]
    on: Vec<String>,
    /// Columns of trees, operations and commands: raw, mount-grant, tree-uring, tree-uring-3, tree-fuse,
    /// tree, files, files-4.2, wire, wire-4.2, passthrough-ll-uring, passthrough-ll-fuse (default: all)
    #[arg(long, value_delimiter = ',')]
    paths: Vec<String>,
    /// Runs of each measurement; the result is their median
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Seconds per run
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// The load generator (make nfsload)
    #[arg(long, default_value = "target/bench/nfsload")]
    nfsload: PathBuf,
    /// libfuse's example passthrough_ll, the peer of operations; without it its columns are left out
    #[arg(long, default_value = "target/bench/passthrough_ll")]
    passthrough_ll: PathBuf,
    /// A build of the command that counts no calls, the base of metrics; without it that row is left out
    #[arg(long)]
    uncounted: Option<PathBuf>,
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
    /// Do one operation on every file of a directory; prints JSON
    #[command(hide = true)]
    Operation(trees::Timed),
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
    /// The columns of trees, operations and commands to measure; all if empty.
    paths: Vec<String>,
    passthrough_ll: PathBuf,
    uncounted: Option<PathBuf>,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    match cli.part {
        Some(Part::SmallFiles(reader)) => return reader.run(),
        Some(Part::Nfs4Load(load)) => return load.run(),
        Some(Part::Nfs4Small(small)) => return small.run(),
        Some(Part::IoWorker(worker)) => return worker.run(),
        Some(Part::Operation(operation)) => return operation.run(),
        None => {}
    }
    samehost_tests::need_root();
    let nfsload =
        cli.nfsload.canonicalize().with_context(|| format!("{}: make nfsload", cli.nfsload.display()))?;
    let effort = Effort {
        runs: cli.runs.max(1),
        seconds: cli.seconds,
        nfsload,
        paths: cli.paths,
        passthrough_ll: cli.passthrough_ll,
        uncounted: cli.uncounted,
    };
    let begun = steal_time::CpuTime::now();
    let mut tables: Vec<Table> = Vec::new();
    let mut plot = None;
    for only in &cli.only {
        eprintln!("bench: {only}");
        let of_trees = trees::PARTS.contains(&only.part.as_str());
        let mut on: Vec<&str> = match (cli.on.is_empty(), of_trees) {
            (false, _) => cli.on.iter().map(String::as_str).collect(),
            (true, true) => trees::FILESYSTEMS.to_vec(),
            (true, false) => vec!["tmpfs", "ext4"],
        };
        on.retain(|kind| only.takes(&[kind]));
        match only.part.as_str() {
            "mount" if cli.profile => print!("{}", mount::profile(&effort, only)?),
            "trees" if cli.profile => print!("{}", trees::profile(&effort, &on)?),
            part if cli.profile => bail!("--only {part}: only mount and trees have profiles"),
            "mount" => {
                let found = mount::measure(&effort, only, PLOT)?;
                tables.extend(found.tables);
                plot = found.plot;
            }
            _ if on.is_empty() => bail!("--only {only}: the cells of this part are filesystems"),
            part if of_trees => tables.extend(trees::measure(&effort, part, &on)?),
            _ => tables.extend(measure(&effort, only, &on)?),
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

/// Measures one of the other parts, on the filesystems `on` if it isn't bound to others.
fn measure(effort: &Effort, only: &Selection, on: &[&str]) -> Result<Vec<Table>> {
    let mut tables = Vec::new();
    match only.part.as_str() {
        "start" | "network" | "nfs4" | "cluster" | "io-modes" | "metrics" | "mount-memory"
            if !only.is_whole() =>
        {
            bail!("--only {only}: has no cells")
        }
        "start" => tables.push(start::measure(effort)?),
        "metrics" => tables.push(metrics::measure(effort)?),
        "mount-memory" => tables.push(mount_memory::measure(Place::new("tmpfs")?.path())?),
        "cluster" => tables.extend(cluster::measure(effort)?),
        "network" => tables.push(network::measure(effort)?),
        "nfs4" => tables.extend(nfs4::measure(effort, "tmpfs", Place::new("tmpfs")?.path())?),
        "io-modes" => {
            for kind in ["ext4", "xfs"] {
                eprintln!("bench: io-modes on {kind}");
                tables.push(io_modes::measure(effort, kind)?);
            }
        }
        part @ ("data-paths" | "small" | "peers") => {
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
                "--only {other}: there are data-paths, small, mount, trees, operations, commands, peers, \
                 network, nfs4, io-modes, metrics, mount-memory, start and, with a Ceph, cluster"
            )
        }
    }
    Ok(tables)
}

/// Drops the kernel's caches, so that the next read comes from the disk or the server.
fn drop_caches() -> Result<()> {
    samehost_tests::run_ok(&mut std::process::Command::new("sync"));
    std::fs::write("/proc/sys/vm/drop_caches", "3").context("/proc/sys/vm/drop_caches")
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

    /// The same with the disk's image of this size in memory, so that the disk's own speed isn't measured.
    fn in_memory(kind: &str, mebibytes: u64) -> Result<Self> {
        let parent = std::path::Path::new("/dev/shm");
        Ok(match kind {
            "ext4" | "xfs" => Self::Disk(Disk::in_directory(kind, mebibytes, parent)),
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
