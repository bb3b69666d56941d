//! Where the time of a cell goes: what perf(1) sees on all processors while it runs.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use samehost_tests::{Scratch, run};

/// Lines of a profile.
const LINES: usize = 25;

/// Runs `command` under perf; the heaviest functions by program, in percent of all processors' time.
pub fn of(title: &str, command: &Command) -> Result<String> {
    let scratch = Scratch::in_memory();
    let data = scratch.join("perf.data");
    // A clock and no hardware counters, which virtual machines don't have.
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
    let said = String::from_utf8_lossy(&output.stdout);
    let lines = said.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()).take(LINES);
    Ok(format!("## {title}\n\n{}\n\n", lines.map(str::trim_end).collect::<Vec<_>>().join("\n")))
}
