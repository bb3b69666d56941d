//! Raw filesystem, lane and wire: the same loop of the same client on all three, by `samehost bench`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use samehost_tests::Serve;
use samehost_tests::process::run_within;
use samehost_tests::samehost::binary;
use serde_json::Value;

use crate::Effort;
use crate::figure::{Figure, Table, bytes_per_second, per_second};

/// The workloads by their names in `samehost bench --json`, with their titles.
pub const WORKLOADS: [(&str, &str); 4] = [
    ("random-read-4k", "4 KiB random read"),
    ("random-write-4k", "4 KiB random write"),
    ("sequential-read-128k", "128 KiB sequential read"),
    ("sequential-write-128k", "128 KiB sequential write"),
];

/// The longest time that a command may take in addition to the measuring itself.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(900);

/// One table.
pub fn measure(effort: &Effort, kind: &str, place: &Path) -> Result<Table> {
    let export = place.join("data-paths");
    std::fs::create_dir(&export)?;
    let server = Serve::openly(&export).start();
    let mut command = Command::new(binary());
    command
        .args(["bench", &server.url(&export), "--lane", "required", "--json", "--size", "256"])
        .args(["--runs", &effort.runs.to_string(), "--time", &format!("{:.0}", effort.seconds * 1000.0)])
        .arg("--raw")
        .arg(&export)
        .arg("--run-dir")
        .arg(server.run_dir());
    // One run of each workload over each data path; syncing between them takes time, too.
    let measuring = (effort.runs * WORKLOADS.len() * 3) as f64 * effort.seconds;
    let report = json_within(&mut command, COMMAND_TIMEOUT + Duration::from_secs_f64(measuring * 4.0))?;
    let mut rows = Vec::new();
    for (name, title) in WORKLOADS {
        let row = row(&report, name)?;
        let result = |data_path: &str| figure(&row[data_path]);
        let (raw, lane, wire) = (result("raw"), result("lane"), result("wire"));
        let shown = |f: &Figure| show(name, f);
        rows.push(vec![
            title.to_owned(),
            shown(&raw),
            shown(&lane),
            shown(&wire),
            crate::figure::ratio(&lane, &raw),
            crate::figure::ratio(&wire, &raw),
        ]);
    }
    Ok(Table {
        title: format!("Raw, lane and wire on {kind}"),
        description:
            "One thread, queue depth 8, a file of 256 MiB; the loop is the same on the plain file, over \
                the lane and over the wire (`samehost bench --raw`). The goal is 0.97 of raw for the lane."
                .to_owned(),
        head: vec!["", "raw", "lane", "wire", "lane / raw", "wire / raw"],
        rows,
    })
}

/// Formats a result of `samehost bench` in operations per second in the unit of its table.
pub fn show(workload: &str, figure: &Figure) -> String {
    let block = if workload.ends_with("128k") { 128 << 10 } else { 4 << 10 };
    if workload.starts_with("sequential") {
        figure.show(|ops| bytes_per_second(ops * f64::from(block)))
    } else {
        figure.show(per_second)
    }
}

/// The row of a workload in a report of `samehost bench`.
pub fn row<'a>(report: &'a Value, workload: &str) -> Result<&'a Value> {
    report["rows"]
        .as_array()
        .and_then(|rows| rows.iter().find(|r| r["workload"] == workload))
        .with_context(|| format!("no {workload} in the report of samehost bench: {report}"))
}

/// The runs of one result of `samehost bench`.
pub fn figure(value: &Value) -> Figure {
    Figure::of(value["runs"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect())
}

/// Runs a command that prints JSON.
pub fn json_of(command: &mut Command) -> Result<Value> {
    json_within(command, COMMAND_TIMEOUT)
}

fn json_within(command: &mut Command, timeout: Duration) -> Result<Value> {
    let output = run_within(command, timeout);
    ensure!(
        output.status.success(),
        "{command:?} failed:\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).with_context(|| format!("{command:?} printed no JSON"))
}
