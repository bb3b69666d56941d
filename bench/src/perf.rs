//! Profiles of cells: perf(1) on all processors while the cell runs.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use samehost_tests::{Scratch, run};

/// The most lines of a profile.
const MAX_LINES: usize = 25;

/// Runs `command` under perf; the functions with the most samples by program, in percent of all processors'
/// time.
pub fn profile(title: &str, command: &Command) -> Result<String> {
    let scratch = Scratch::in_memory();
    let data = scratch.join("perf.data");
    // The clock instead of hardware counters, which virtual machines don't have.
    let mut record = Command::new("perf");
    record.args(["record", "--quiet", "--all-cpus", "--event", "cpu-clock", "--freq", "997", "--output"]);
    record.arg(&data).arg("--").arg(command.get_program()).args(command.get_args());
    if let Some(directory) = command.get_current_dir() {
        record.current_dir(directory);
    }
    for (name, value) in command.get_envs() {
        record.env(name, value.context("a variable that is set")?);
    }
    let output = run(&mut record);
    ensure!(output.status.success(), "{record:?}: {}", String::from_utf8_lossy(&output.stderr));
    let mut report = Command::new("perf");
    report
        .args(["report", "--stdio", "--sort", "comm,dso,symbol", "--percent-limit", "0.5", "--input"])
        .arg(&data);
    let output = run(&mut report);
    ensure!(output.status.success(), "{report:?}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()).take(MAX_LINES);
    Ok(format!("## {title}\n\n{}\n\n", lines.map(str::trim_end).collect::<Vec<_>>().join("\n")))
}
