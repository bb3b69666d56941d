//! A mount over the wire opens, reads and closes small files in turn, and then all of them again.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use samehost_tests::{Mount, Serve};

use super::{FILES, SMALL, file_name};
use crate::Effort;
use crate::figure::{Figure, Table, microseconds, ratio};

/// The mounts, by their headings and options.
const MOUNTS: [(&str, &str); 3] = [
    ("NFSv4.2", "lane=off,vers=4.2"),
    ("NFSv4.2, nodelegations", "lane=off,vers=4.2,nodelegations"),
    ("NFSv3", "lane=off,vers=3"),
];

/// What one mount needs for a file, the first time and again.
#[derive(Default)]
struct Rounds {
    times: [Figure; 2],
    calls: [f64; 2],
}

/// Measures on one filesystem: one table. Each run has new mounts.
pub fn measure(effort: &Effort, kind: &str, place: &Path) -> Result<Table> {
    let export = place.join("mounted");
    std::fs::create_dir(&export)?;
    for number in 0..FILES {
        std::fs::write(export.join(file_name(number)), vec![7; SMALL])?;
    }
    let server = Serve::openly(&export).start();
    let mut all: [Rounds; MOUNTS.len()] = Default::default();
    for _ in 0..effort.runs {
        for ((_, options), rounds) in MOUNTS.iter().zip(&mut all) {
            let mount = Mount::new(&server, &export, options);
            let mut before = calls(&mount)?;
            for round in 0..2 {
                rounds.times[round].add(read_all(mount.path())?);
                let after = calls(&mount)?;
                rounds.calls[round] = (after - before) / FILES as f64;
                before = after;
            }
        }
    }
    let rows = MOUNTS.iter().zip(&all).map(|((heading, _), Rounds { times, calls })| {
        vec![
            (*heading).to_owned(),
            times[0].show(microseconds),
            times[1].show(microseconds),
            ratio(&times[0], &times[1]),
            format!("{:.2}", calls[0]),
            format!("{:.2}", calls[1]),
        ]
    });
    Ok(Table {
        title: format!("Mount: small files again over the wire on {kind}"),
        description: format!(
            "A mount with lane=off opens, reads and closes {FILES} files of 4 KiB one after another, and \
             then all of them again. By NFSv4.2 the server delegates the files to it. Time and calls are for \
             one file. The goal for NFSv4.2 is that a file takes at most half the time again."
        ),
        head: vec!["", "first time", "again", "first / again", "calls, first time", "calls, again"],
        rows: rows.collect(),
    })
}

/// Opens, reads and closes all files. Returns the time for one, in microseconds.
fn read_all(directory: &Path) -> Result<f64> {
    let mut buffer = vec![0; SMALL];
    let start = Instant::now();
    for number in 0..FILES {
        let read = File::open(directory.join(file_name(number)))?.read(&mut buffer)?;
        ensure!(read == SMALL, "a short read");
    }
    Ok(start.elapsed().as_secs_f64() * 1e6 / FILES as f64)
}

/// The mount's calls to the server so far.
fn calls(mount: &Mount) -> Result<f64> {
    let status = mount.status().context("the mount answers")?;
    status["wire"]["round_trips"].as_f64().context("a number")
}
