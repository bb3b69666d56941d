//! Small files and metadata: clone a repository and ask for its status, unpack, search and remove a tree,
//! build a crate; over every data path.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use samehost_tests::process::run_within;

use super::comparison::{Comparison, Presentation};
use super::data_path::Calls;
use super::fixture::{FILES, Fixture, IN_A_DIRECTORY};
use super::subject::Subject;
use crate::figure::Table;
use crate::{Effort, perf};

/// One measured step.
struct Step {
    title: &'static str,
    /// The most times of raw's time that a tree by io_uring may take.
    goal: &'static str,
    /// Whether server and mount are restarted and caches dropped before each time.
    cold: bool,
    /// Repetitions within a run: short steps are repeated.
    times: usize,
    /// A command run before and not measured; empty for none.
    before: &'static str,
    /// A command for the shell, run in its own directory; `{}` stands for the fixture's directory.
    script: &'static str,
}

const STATUS: &str = "git -C repository status --porcelain";
const LS: &str = "ls -lR tree >/dev/null";
const GREP: &str = "grep -rq no-such-word tree; test $? = 1";

/// The order matters: a step uses the files of the steps before it.
const STEPS: [Step; 10] = [
    Step {
        title: "git clone",
        goal: "4",
        cold: false,
        times: 1,
        before: "",
        script: "git clone -q --no-hardlinks {}/repository repository",
    },
    // git rereads files whose time stamp is in the same second as its index, and a quick clone leaves more
    // of them. With an index from a later second, git asks for names and attributes only.
    Step {
        title: "git status",
        goal: "3",
        cold: false,
        times: 10,
        before: "sleep 1.1; git -C repository status --porcelain",
        script: STATUS,
    },
    Step { title: "git status, cold", goal: "4", cold: true, times: 4, before: "", script: STATUS },
    Step {
        title: "tar x",
        goal: "6",
        cold: false,
        times: 1,
        before: "",
        script: "mkdir tree && tar -xf {}/tree.tar -C tree",
    },
    Step { title: "ls -lR, cold", goal: "3", cold: true, times: 4, before: "", script: LS },
    Step { title: "ls -lR, warm", goal: "3", cold: false, times: 4, before: LS, script: LS },
    Step { title: "grep -r, cold", goal: "8", cold: true, times: 2, before: "", script: GREP },
    Step { title: "grep -r, warm", goal: "8", cold: false, times: 4, before: GREP, script: GREP },
    Step { title: "rm -r", goal: "5", cold: false, times: 1, before: LS, script: "rm -r tree" },
    Step {
        title: "cargo build",
        goal: "1.05",
        cold: false,
        times: 1,
        before: "",
        script: "cp -r {}/crate crate && cd crate && cargo build -q --offline",
    },
];

/// A command of a step, run in the work directory.
fn command(script: &str, work: &Path, fixture: &Fixture) -> Command {
    let mut command = Command::new("sh");
    let script = script.replace("{}", &fixture.path().display().to_string());
    command.args(["-c", &script]).current_dir(work).env("CARGO_TARGET_DIR", "target");
    command.env("GIT_CONFIG_GLOBAL", fixture.git_config()).env("CARGO_HOME", fixture.cargo_home());
    command
}

impl Step {
    /// Runs it after `before`, `time` counting from 0; its duration in seconds, and the calls to the server.
    /// They include those in the background, which follow when a client has found new files.
    fn run(&self, time: usize, subject: &mut Subject, fixture: &Fixture) -> Result<(f64, Calls)> {
        if self.cold {
            subject.restart_cold()?;
        }
        let before = subject.calls();
        let seconds = timed(&mut command(self.script, &subject.work(), fixture))?;
        if self.cold || time == 0 {
            subject.wait_until_quiet()?;
        }
        Ok((seconds, subject.calls().since(before)))
    }

    /// Runs the command that precedes it.
    fn prepare(&self, subject: &Subject, fixture: &Fixture) -> Result<()> {
        if self.before.is_empty() {
            return Ok(());
        }
        timed(&mut command(self.before, &subject.work(), fixture))?;
        subject.wait_until_quiet()
    }
}

/// Measures on one filesystem: one table.
pub fn measure(effort: &Effort, kind: &str, place: &Path) -> Result<Table> {
    let fixture = Fixture::new()?;
    let (mut subjects, left_out) = Subject::open_all(effort, place, &[])?;
    let mut comparisons: Vec<Comparison> =
        STEPS.iter().map(|step| Comparison::new(step.title, step.goal, subjects.len())).collect();
    for run in 1..=effort.runs {
        if run > 1 {
            let reopened = subjects.into_iter().map(|subject| subject.reopen(effort, place));
            subjects = reopened.collect::<Result<_>>()?;
        }
        for (step, comparison) in STEPS.iter().zip(&mut comparisons) {
            subjects.iter().try_for_each(|subject| step.prepare(subject, &fixture))?;
            for time in 0..step.times {
                let ascending = (run + time) % 2 == 0;
                for turn in 0..subjects.len() {
                    let index = if ascending { turn } else { subjects.len() - 1 - turn };
                    let (seconds, calls) = step.run(time, &mut subjects[index], &fixture)?;
                    let column = &mut comparison.columns[index];
                    column.times.add(seconds);
                    column.calls = calls;
                }
            }
        }
        eprintln!("bench: trees on {kind}: run {run} of {}", effort.runs);
    }
    let presentation = Presentation {
        headings: subjects.iter().map(Subject::heading).collect(),
        time: |seconds| format!("{:.0} ms", seconds * 1000.0),
        base: 0,
        gain: false,
        operations: 1,
    };
    subjects.into_iter().try_for_each(Subject::clear)?;
    let description = format!(
        "A repository of {FILES} files in {} directories: time of each step over each data path, side by \
         side, in this order and in the other by turns; short steps several times in a run. Cold: the \
         server and the mount were started anew, and the kernel's caches dropped (a tmpfs is a cache that \
         can't be). git status is of an index that is younger than all files by a second, since git reads \
         again those that are not. Calls are those of the last run: the mount's round trips over the lane \
         + the requests that the server counted over the wire, also those that a client makes in the \
         background afterwards. Requests are the kernel's to the mount. passthrough_ll is libfuse's example, \
         a filesystem in user space that does nothing but call the system (--passthrough-ll names the \
         program): what FUSE itself costs. The goals \
         are for a tree by io_uring; a mount grant's is 1.03 in every row.",
        FILES / IN_A_DIRECTORY
    );
    let title = format!("Mount: small files and metadata on {kind}");
    Ok(presentation.table(title, description, &left_out, &comparisons))
}

/// Profiles each step.
pub fn profile(effort: &Effort, place: &Path) -> Result<String> {
    let fixture = Fixture::new()?;
    let mut text = String::new();
    let (subjects, _) = Subject::open_all(effort, place, &[])?;
    for mut subject in subjects {
        for step in &STEPS {
            step.prepare(&subject, &fixture)?;
            if step.cold {
                subject.restart_cold()?;
            }
            let command = command(step.script, &subject.work(), &fixture);
            text += &perf::profile(&format!("{}, {}", step.title, subject.heading()), &command)?;
        }
        subject.clear()?;
    }
    Ok(text)
}

/// Runs a command; its duration in seconds.
pub fn timed(command: &mut Command) -> Result<f64> {
    let start = Instant::now();
    let output = run_within(command, Duration::from_secs(600));
    let elapsed = start.elapsed().as_secs_f64();
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(elapsed)
}
