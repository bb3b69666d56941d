//! NFSv4: READ and WRITE compared with NFSv3, small files with and without delegations, both compared with
//! nfs-ganesha; small files on a mount; and the memory for clients.
//!
//! libnfs speaks NFSv4.0 only, so the load comes from a loop in this program, the same for both versions.

mod load;
mod memory;
mod mounted;
pub mod session;
mod small;
pub mod wire;

use std::path::Path;

use anyhow::{Context, Result};
use samehost_tests::ganesha::Ganesha;
use samehost_tests::scratch::pattern;

pub use load::Load;
pub use small::Small;

use crate::Effort;
use crate::data_paths::json_of;
use crate::figure::{Figure, Table, bytes_per_second, microseconds, per_operation, per_second, ratio};
use crate::server_pair::{ServerPair, Target};

/// Size of the large file.
const SIZE: usize = 256 << 20;
/// Number of small files. The client keeps a delegation of each: with a limit of 20,000 open files the server
/// grants one client some 700 and then recalls some.
const FILES: usize = 500;
/// Size of a small file.
const SMALL: usize = 4096;

/// A load of READ or WRITE.
#[derive(Debug, Clone, Copy)]
pub struct WireLoad {
    /// Its name for `nfs4-load`.
    pub op: &'static str,
    /// The bytes of an operation.
    pub block: u32,
    pub title: &'static str,
}

/// The loads of READ and WRITE, for each server.
pub const WIRE_LOADS: [WireLoad; 4] = [
    WireLoad { op: "randread", block: 4096, title: "4 KiB random read" },
    WireLoad { op: "randwrite", block: 4096, title: "4 KiB random write" },
    WireLoad { op: "read", block: 128 << 10, title: "128 KiB sequential read" },
    WireLoad { op: "write", block: 128 << 10, title: "128 KiB sequential write" },
];

impl WireLoad {
    /// A rate in operations each second: small ones as such, large ones as bytes.
    pub fn show(&self, rate: &Figure) -> String {
        match self.block {
            4096 => rate.show(per_second),
            block => rate.show(|ops| bytes_per_second(ops * f64::from(block))),
        }
    }
}

fn file_name(number: usize) -> String {
    format!("file-{number:05}")
}

fn fill(export: &Path) -> std::io::Result<()> {
    std::fs::write(export.join("file"), pattern(1, SIZE))?;
    (0..FILES)
        .try_for_each(|number| std::fs::write(export.join(file_name(number)), pattern(number as u64, SMALL)))
}

/// This program as a client of `target`, inside the network namespace.
fn child(pair: &ServerPair, part: &str, target: Target) -> Result<std::process::Command> {
    let own = std::env::current_exe()?;
    // The path from NFSv4's root.
    let (mut command, directory) = match target {
        Target::Ours => (pair.netns.command(own), pair.export.display().to_string()),
        Target::Ganesha => (pair.ganesha.command(own), Ganesha::PSEUDO.to_owned()),
    };
    command.args([part, "--port", &pair.port(target).to_string(), "--directory", &directory]);
    Ok(command)
}

/// Measures everything. If `seconds` is below 1, memory is measured with fewer items, too.
pub fn measure(effort: &Effort, kind: &str, place: &Path) -> Result<Vec<Table>> {
    let pair = ServerPair::start(place, "bench4", fill)?;
    let tables = vec![by_version(effort, kind, &pair)?, small_files(effort, kind, &pair)?];
    drop(pair);
    let mounted = mounted::measure(effort, kind, place)?;
    let memory = memory::measure(place, effort.seconds.min(1.0))?;
    Ok(tables.into_iter().chain([mounted, memory]).collect())
}

/// Compares Samehost's version 3, Samehost's version 4.2 and ganesha's version 4.2.
fn by_version(effort: &Effort, kind: &str, pair: &ServerPair) -> Result<Table> {
    const RUNNERS: [(Target, &str); 3] = [(Target::Ours, "3"), (Target::Ours, "4"), (Target::Ganesha, "4")];
    let mut rows = Vec::new();
    for load in WIRE_LOADS {
        let WireLoad { op, block, title } = load;
        let mut rates: [Figure; 3] = Default::default();
        let mut costs: [Figure; 3] = Default::default();
        for _ in 0..effort.runs {
            for (runner, (target, vers)) in RUNNERS.into_iter().enumerate() {
                let mut command = child(pair, "nfs4-load", target)?;
                command
                    .args(["--vers", vers, "--op", op, "--bs", &block.to_string()])
                    .args(["--url", &pair.ours.url(pair.export.join("file")), "--size", &SIZE.to_string()])
                    .args(["--seconds", &effort.seconds.to_string()]);
                let before = pair.daemon(target).cpu_time().context("the server runs")?;
                let run = json_of(&mut command)?;
                let used = pair.daemon(target).cpu_time().context("the server runs")? - before;
                let number = |key: &str| run[key].as_f64().context("a number");
                rates[runner].add(number("ops_per_s")?);
                costs[runner].add(per_operation(used, number("ops")?));
            }
        }
        let shown = |rate: &Figure| load.show(rate);
        rows.push(vec![
            title.to_owned(),
            shown(&rates[0]),
            shown(&rates[1]),
            ratio(&rates[1], &rates[0]),
            shown(&rates[2]),
            ratio(&rates[1], &rates[2]),
            costs[0].show(microseconds),
            costs[1].show(microseconds),
            costs[2].show(microseconds),
        ]);
    }
    Ok(Table {
        title: format!("NFSv4.2 beside NFSv3 on {kind}"),
        description:
            "READ and WRITE (unstable) by the same loop, one thread and connection, queue depth 8: NFSv3, \
                and NFSv4.2 as SEQUENCE, PUTFH, READ in slots of one session (libnfs speaks NFSv4.0 only). \
                CPU is the server's processor time an operation. The goal is 0.9 of NFSv3."
                .to_owned(),
        head: vec![
            "",
            "NFSv3",
            "NFSv4.2",
            "4.2 / 3",
            "ganesha, 4.2",
            "ours / ganesha",
            "CPU, v3",
            "CPU, v4.2",
            "CPU, ganesha",
        ],
        rows,
    })
}

fn small_files(effort: &Effort, kind: &str, pair: &ServerPair) -> Result<Table> {
    const RUNNERS: [(&str, Target, bool); 3] = [
        ("Samehost", Target::Ours, false),
        ("Samehost, delegations", Target::Ours, true),
        ("ganesha", Target::Ganesha, false),
    ];
    let (mut first, mut again): ([Figure; 3], [Figure; 3]) = Default::default();
    let mut delegated = [0.0; 3];
    for _ in 0..effort.runs {
        for (runner, (_, target, delegations)) in RUNNERS.into_iter().enumerate() {
            let mut command = child(pair, "nfs4-small", target)?;
            command.args(["--files", &FILES.to_string()]);
            if delegations {
                command.arg("--delegations");
            }
            let run = json_of(&mut command)?;
            let number = |key: &str| run[key].as_f64().context("a number");
            first[runner].add(number("first")?);
            again[runner].add(number("again")?);
            delegated[runner] = number("delegated")?;
        }
    }
    let rows = RUNNERS.iter().enumerate().map(|(runner, (title, ..))| {
        vec![
            (*title).to_owned(),
            first[runner].show(microseconds),
            again[runner].show(microseconds),
            format!("{:.0} %", delegated[runner] / FILES as f64 * 100.0),
        ]
    });
    let rows = rows.collect();
    Ok(Table {
        title: format!("NFSv4.2: small files on {kind}"),
        description: format!(
            "Open, read and close {FILES} cached files of 4 KiB one after another, an OPEN, a READ and a \
             CLOSE each; then all of them again. With delegations a client that comes back sends only the \
             READ. Time a file."
        ),
        head: vec!["", "first time", "again", "delegated"],
        rows,
    })
}
