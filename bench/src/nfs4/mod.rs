//! NFSv4: its READs and WRITEs beside NFSv3's, small files with and without delegations, both beside
//! nfs-ganesha; and what clients cost in memory.
//!
//! libnfs speaks NFSv4.0 only, so the load comes from a loop of our own, the same for both versions.

mod load;
mod memory;
mod session;
mod small;
mod wire;

use std::path::Path;

use anyhow::{Context, Result};
use samehost_tests::ganesha::Ganesha;
use samehost_tests::scratch::pattern;

pub use load::Load;
pub use small::Small;

use crate::Effort;
use crate::both::{Both, Who};
use crate::data_paths::json_of;
use crate::figure::{Figure, Table, bytes_per_second, microseconds, per_operation, per_second, ratio};

/// Bytes of the large file.
const SIZE: usize = 256 << 20;
/// Small files. The client keeps a delegation of each: with a limit of 20,000 open files the server lets one
/// client have some 700, and then asks for some back.
const FILES: usize = 500;
/// Bytes of a small file.
const SMALL: usize = 4096;

fn file_name(number: usize) -> String {
    format!("file-{number:05}")
}

fn fill(export: &Path) -> std::io::Result<()> {
    std::fs::write(export.join("file"), pattern(1, SIZE))?;
    (0..FILES)
        .try_for_each(|number| std::fs::write(export.join(file_name(number)), pattern(number as u64, SMALL)))
}

/// This program as a client of `who`, inside the network.
fn child(both: &Both, part: &str, who: Who) -> Result<std::process::Command> {
    let own = std::env::current_exe()?;
    // The directory, from NFSv4's root.
    let (mut command, directory) = match who {
        Who::Ours => (both.netns.command(own), both.export.display().to_string()),
        Who::Ganesha => (both.ganesha.command(own), Ganesha::PSEUDO.to_owned()),
    };
    command.args([part, "--port", &both.port(who).to_string(), "--directory", &directory]);
    Ok(command)
}

/// All of it. Without `seconds` to speak of, memory is measured of fewer items, too.
pub fn measure(effort: &Effort, kind: &str, place: &Path) -> Result<Vec<Table>> {
    let both = Both::start(place, "bench4", fill)?;
    let tables = vec![by_version(effort, kind, &both)?, small_files(effort, kind, &both)?];
    drop(both);
    let memory = memory::measure(place, effort.seconds.min(1.0))?;
    Ok(tables.into_iter().chain([memory]).collect())
}

/// Our version 3, our version 4.2, ganesha's version 4.2.
fn by_version(effort: &Effort, kind: &str, both: &Both) -> Result<Table> {
    const RUNNERS: [(Who, &str); 3] = [(Who::Ours, "3"), (Who::Ours, "4"), (Who::Ganesha, "4")];
    let mut rows = Vec::new();
    for (op, block, title) in [
        ("randread", 4096, "4 KiB random read"),
        ("randwrite", 4096, "4 KiB random write"),
        ("read", 128 << 10, "128 KiB sequential read"),
        ("write", 128 << 10, "128 KiB sequential write"),
    ] {
        let mut rates: [Figure; 3] = Default::default();
        let mut costs: [Figure; 3] = Default::default();
        for _ in 0..effort.runs {
            for (runner, (who, vers)) in RUNNERS.into_iter().enumerate() {
                let mut command = child(both, "nfs4-load", who)?;
                command
                    .args(["--vers", vers, "--op", op, "--bs", &block.to_string()])
                    .args(["--url", &both.ours.url(both.export.join("file")), "--size", &SIZE.to_string()])
                    .args(["--seconds", &effort.seconds.to_string()]);
                let before = both.daemon(who).cpu_time().context("the server runs")?;
                let run = json_of(&mut command)?;
                let used = both.daemon(who).cpu_time().context("the server runs")? - before;
                let number = |key: &str| run[key].as_f64().context("a number");
                rates[runner].add(number("ops_per_s")?);
                costs[runner].add(per_operation(used, number("ops")?));
            }
        }
        let shown = |f: &Figure| match block {
            4096 => f.show(per_second),
            _ => f.show(|ops| bytes_per_second(ops * f64::from(block))),
        };
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
        about:
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

fn small_files(effort: &Effort, kind: &str, both: &Both) -> Result<Table> {
    const RUNNERS: [(&str, Who, bool); 3] = [
        ("Samehost", Who::Ours, false),
        ("Samehost, delegations", Who::Ours, true),
        ("ganesha", Who::Ganesha, false),
    ];
    let (mut first, mut again): ([Figure; 3], [Figure; 3]) = Default::default();
    let mut delegated = [0.0; 3];
    for _ in 0..effort.runs {
        for (runner, (_, who, delegations)) in RUNNERS.into_iter().enumerate() {
            let mut command = child(both, "nfs4-small", who)?;
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
        about: format!(
            "Open, read and close {FILES} cached files of 4 KiB one after another, an OPEN, a READ and a \
             CLOSE each; then all of them again. With delegations a client that comes back sends only the \
             READ. Time a file."
        ),
        head: vec!["", "first time", "again", "delegated"],
        rows,
    })
}
