//! The commands on whole trees (`samehost cp -r`, `ls -lR`, `rm -r`) beside cp(1), ls(1) and rm(1) on the
//! directory itself.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use samehost_tests::samehost::binary;
use samehost_tests::{Scratch, scratch::pattern};

use super::comparison::{Comparison, Presentation};
use super::data_path::{COMMANDS, Calls, Site, open_all};
use super::steps::timed;
use crate::Effort;
use crate::figure::Table;

/// Number of files in the tree.
const FILES: usize = 5000;
/// Number of files in each of its directories.
const IN_A_DIRECTORY: usize = 50;
/// Size of a file in bytes.
const SIZE: usize = 4096;

/// One measured command.
struct Step {
    title: &'static str,
    goal: &'static str,
    /// An option that only `samehost` has, or none.
    option: &'static str,
    /// The words of the command; `LOCAL` stands for a directory of this machine, `WORK` for the one over the
    /// data path.
    words: &'static [&'static str],
    /// What is removed behind it, not measured: a path below `LOCAL` or `WORK`.
    removed: Option<&'static str>,
}

/// The order matters: a step uses the files of the first.
const STEPS: [Step; 5] = [
    Step {
        title: "cp -r to it",
        goal: "1.5",
        option: "--no-commit",
        words: &["cp", "-r", "LOCAL/tree", "WORK/tree"],
        removed: None,
    },
    Step {
        title: "cp -r to it, committed",
        goal: "",
        option: "",
        words: &["cp", "-r", "LOCAL/tree", "WORK/committed"],
        removed: Some("WORK/committed"),
    },
    Step {
        title: "cp -r from it",
        goal: "1.5",
        option: "",
        words: &["cp", "-r", "WORK/tree", "LOCAL/copy"],
        removed: Some("LOCAL/copy"),
    },
    Step { title: "ls -lR", goal: "1.5", option: "", words: &["ls", "-lR", "WORK/tree"], removed: None },
    Step { title: "rm -r", goal: "1.5", option: "", words: &["rm", "-r", "WORK/tree"], removed: None },
];

impl Step {
    /// Runs it once; its duration in seconds, and the calls to the server meanwhile.
    fn run(&self, site: &Site, local: &Path) -> Result<(f64, Calls)> {
        let work = site.work();
        let reached = site.reached_by_command("work");
        let place = |word: &str, work: &str| {
            word.replace("LOCAL", &local.display().to_string()).replace("WORK", work)
        };
        // The output is as long as the tree: /dev/null takes it.
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$@\" >/dev/null", "sh"]).env("LC_ALL", "C");
        match reached {
            None => {
                command.args(self.words.iter().map(|word| place(word, &work.display().to_string())));
            }
            Some(reached) => {
                command.arg(binary()).args(self.words.iter().map(|word| place(word, &reached.url)));
                command
                    .args(["--vers", "3", "--lane", reached.lane])
                    .env("SAMEHOST_RUN_DIR", reached.run_dir);
                if !self.option.is_empty() {
                    command.arg(self.option);
                }
            }
        }
        let before = site.calls();
        let seconds = timed(&mut command)?;
        let calls = site.calls().since(before);
        if let Some(removed) = self.removed {
            fs::remove_dir_all(place(removed, &work.display().to_string()))?;
        }
        Ok((seconds, calls))
    }
}

/// Measures on one filesystem: one table.
pub fn measure(effort: &Effort, kind: &str, place: &Path) -> Result<Table> {
    let local = Scratch::in_memory();
    for file in 0..FILES {
        let directory = local.join(format!("tree/dir{:03}", file / IN_A_DIRECTORY));
        fs::create_dir_all(&directory)?;
        fs::write(directory.join(format!("file{file:05}")), pattern(file as u64, SIZE))?;
    }
    let (sites, left_out) = open_all(&COMMANDS, &effort.paths, place, &[])?;
    let mut comparisons: Vec<Comparison> =
        STEPS.iter().map(|step| Comparison::new(step.title, step.goal, sites.len())).collect();
    for run in 1..=effort.runs {
        for (step, comparison) in STEPS.iter().zip(&mut comparisons) {
            for turn in 0..sites.len() {
                let index = if run % 2 == 0 { turn } else { sites.len() - 1 - turn };
                let (seconds, calls) = step.run(&sites[index], local.path())?;
                let column = &mut comparison.columns[index];
                column.times.add(seconds);
                column.calls = calls;
            }
        }
        eprintln!("bench: commands on {kind}: run {run} of {}", effort.runs);
    }
    let presentation = Presentation {
        headings: sites.iter().map(|site| site.data_path.heading).collect(),
        time: |seconds| format!("{:.0} ms", seconds * 1000.0),
        base: 0,
        gain: false,
        operations: FILES as u64,
    };
    sites.into_iter().try_for_each(Site::clear)?;
    let description = format!(
        "{FILES} files of {SIZE} bytes in {} directories, by the commands `samehost cp -r`, `ls -lR` and \
         `rm -r`, and by cp(1), ls(1) and rm(1) on the directory itself (raw), side by side, in this order \
         and in the other by turns. The other end of a copy is a tmpfs. cp(1) doesn't sync, so the first \
         row is with --no-commit; in the second row `samehost cp` commits each file to stable storage, as \
         it does by default. Calls are those that the server counted for a file in the last run, over the \
         lane + over the wire. The goals are for a tree, whose calls should be 0.",
        FILES / IN_A_DIRECTORY
    );
    Ok(presentation.table(format!("Commands: whole trees on {kind}"), description, &left_out, &comparisons))
}
