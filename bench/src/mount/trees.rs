//! Small files and metadata: clone a repository and ask for its status, unpack, search and remove a tree,
//! build a crate; on the plain directory, with a lane, and over the wire.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use samehost_tests::process::run_within;
use samehost_tests::{Serve, Server};

use super::fixture::{FILES, Fixture, IN_A_DIRECTORY};
use super::{DataPath, Directory, drop_caches, perf};
use crate::Effort;
use crate::figure::{Figure, Table, ratio};

/// One measured step.
struct Step {
    title: &'static str,
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
const GREP: &str = "grep -rq no-such-word tree; test $? = 1";

/// The order matters: a step uses the files of the steps before it.
const STEPS: [Step; 9] = [
    Step {
        title: "git clone",
        cold: false,
        times: 1,
        before: "",
        script: "git clone -q --no-hardlinks {}/repository repository",
    },
    // git rereads files whose time stamp is in the same second as its index, and a quick clone leaves more
    // of them. With an index from a later second, git asks for names and attributes only.
    Step {
        title: "git status",
        cold: false,
        times: 10,
        before: "sleep 1.1; git -C repository status --porcelain",
        script: STATUS,
    },
    Step { title: "git status, cold", cold: true, times: 4, before: "", script: STATUS },
    Step {
        title: "tar x",
        cold: false,
        times: 1,
        before: "",
        script: "mkdir tree && tar -xf {}/tree.tar -C tree",
    },
    Step { title: "ls -lR, cold", cold: true, times: 4, before: "", script: "ls -lR tree >/dev/null" },
    Step { title: "grep -r, cold", cold: true, times: 2, before: "", script: GREP },
    Step { title: "grep -r, warm", cold: false, times: 4, before: GREP, script: GREP },
    Step { title: "rm -r", cold: false, times: 1, before: "ls -lR tree >/dev/null", script: "rm -r tree" },
    Step {
        title: "cargo build",
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

/// A server, and its directory opened over one data path.
struct Rig {
    data_path: DataPath,
    server: Server,
    export: PathBuf,
    directory: Directory,
}

impl Rig {
    /// A new server with an empty work directory.
    fn new(place: &Path, data_path: DataPath) -> Result<Self> {
        let export = place.join(format!("trees-{}", data_path.name()));
        std::fs::create_dir(&export)?;
        let server = Serve::openly(&export).start();
        let directory = data_path.open(&server, &export);
        let rig = Self { data_path, server, directory, export };
        std::fs::create_dir(rig.work())?;
        Ok(rig)
    }

    fn work(&self) -> PathBuf {
        self.directory.path().join("work")
    }

    /// Empties the caches of the kernel, the server and the mount.
    fn restart_cold(&mut self) -> Result<()> {
        if let Directory::Mounted(mount) = &self.directory {
            mount.unmount();
        }
        ensure!(self.server.stop().success(), "the server failed at its stop");
        drop_caches()?;
        self.server.restart();
        self.directory = self.data_path.open(&self.server, &self.export);
        Ok(())
    }

    /// Runs the command that precedes a step.
    fn prepare(&self, step: &Step, fixture: &Fixture) -> Result<()> {
        if step.before.is_empty() {
            Ok(())
        } else {
            timed(&mut command(step.before, &self.work(), fixture)).map(drop)
        }
    }

    /// Runs a step once; its duration in seconds, and the mount's calls to the server meanwhile.
    fn run_step(&mut self, step: &Step, fixture: &Fixture) -> Result<(f64, Calls)> {
        if step.cold {
            self.restart_cold()?;
        }
        let before = self.calls()?;
        let seconds = timed(&mut command(step.script, &self.work(), fixture))?;
        let after = self.calls()?;
        Ok((seconds, Calls { lane: after.lane - before.lane, wire: after.wire - before.wire }))
    }

    /// The mount's calls to the server so far.
    fn calls(&self) -> Result<Calls> {
        let Directory::Mounted(mount) = &self.directory else { return Ok(Calls::default()) };
        let status = mount.status().context("the mount's status")?;
        let count = |key: &str| status[key]["round_trips"].as_u64().context("a count of round trips");
        Ok(Calls { lane: count("lane")?, wire: count("wire")? })
    }

    /// Removes all files, directly rather than through the mount: this isn't measured.
    fn clear(self) -> Result<()> {
        drop(self.directory);
        std::fs::remove_dir_all(&self.export).context("the work directory")
    }
}

/// Round trips to the server.
#[derive(Debug, Clone, Copy, Default)]
struct Calls {
    lane: u64,
    wire: u64,
}

impl Calls {
    fn show(self) -> String {
        if self.lane == 0 { self.wire.to_string() } else { format!("{} + {}", self.lane, self.wire) }
    }
}

/// Measures on one filesystem: one table. The three data paths run each step side by side, in this order in
/// one run and in the reverse order in the next, so that a disturbance of the machine affects all of them.
pub fn measure(effort: &Effort, kind: &str, place: &Path) -> Result<Table> {
    let fixture = Fixture::new()?;
    let mut figures: [[Figure; 3]; STEPS.len()] = Default::default();
    let mut calls = [[Calls::default(); 3]; STEPS.len()];
    for run in 1..=effort.runs {
        let mut rigs = DataPath::ALL
            .map(|data_path| Rig::new(place, data_path))
            .into_iter()
            .collect::<Result<Vec<_>>>()?;
        for (number, step) in STEPS.iter().enumerate() {
            rigs.iter().try_for_each(|rig| rig.prepare(step, &fixture))?;
            for time in 0..step.times {
                let ascending = (run + time) % 2 == 0;
                for place in 0..rigs.len() {
                    let index = if ascending { place } else { rigs.len() - 1 - place };
                    let (seconds, asked) = rigs[index].run_step(step, &fixture)?;
                    figures[number][index].add(seconds);
                    calls[number][index] = asked;
                }
            }
        }
        rigs.into_iter().try_for_each(Rig::clear)?;
        eprintln!("bench: mount, trees on {kind}: run {run} of {}", effort.runs);
    }
    let rows =
        STEPS.iter().zip(&figures).zip(&calls).map(|((step, [raw, lane, wire]), [_, by_lane, by_wire])| {
            let shown = |figure: &Figure| figure.show(|seconds| format!("{:.0} ms", seconds * 1000.0));
            let (slower, gain) = (ratio(lane, raw), ratio(wire, lane));
            vec![
                step.title.to_owned(),
                shown(raw),
                shown(lane),
                shown(wire),
                slower,
                gain,
                by_lane.show(),
                by_wire.show(),
            ]
        });
    Ok(Table {
        title: format!("Mount: small files and metadata on {kind}"),
        description: format!(
            "A repository of {FILES} files in {} directories: time of each step on the plain directory, on a \
             mount with lane=required and on one with lane=off, side by side, in this order and in the other \
             by turns; short steps several times in a run. Cold: the server and the mount were started anew, \
             and the kernel's caches dropped (a tmpfs is a cache that can't be). git status is of an index \
             that is younger than all files by a second, since git reads again those that are not. The gain \
             is the wire's time to the lane's. Calls are the mount's questions to the server in the last \
             run, over the lane + over the wire. Goals: 2 (aim 3) for a cold grep -r, and nowhere less than \
             1.",
            FILES / IN_A_DIRECTORY
        ),
        head: vec![
            "",
            "raw",
            "lane",
            "wire",
            "lane / raw (time)",
            "gain of the lane",
            "calls, lane",
            "calls, wire",
        ],
        rows: rows.collect(),
    })
}

/// Profiles each step.
pub fn profile(place: &Path) -> Result<String> {
    let fixture = Fixture::new()?;
    let mut text = String::new();
    for data_path in DataPath::ALL {
        let mut rig = Rig::new(place, data_path)?;
        for step in &STEPS {
            rig.prepare(step, &fixture)?;
            if step.cold {
                rig.restart_cold()?;
            }
            let command = command(step.script, &rig.work(), &fixture);
            text += &perf::profile(&format!("{}, {}", step.title, data_path.name()), &command)?;
        }
        rig.clear()?;
    }
    Ok(text)
}

/// Runs a command; its duration in seconds.
fn timed(command: &mut Command) -> Result<f64> {
    let start = Instant::now();
    let output = run_within(command, Duration::from_secs(600));
    let elapsed = start.elapsed().as_secs_f64();
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(elapsed)
}
