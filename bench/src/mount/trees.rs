//! Small files and metadata: a repository cloned and looked at, a tree unpacked, searched and removed, a
//! crate built; on the plain directory, with a lane, and over the wire.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use samehost_tests::process::run_within;
use samehost_tests::{Serve, Server};

use super::material::{FILES, IN_A_DIRECTORY, Material};
use super::{DataPath, Reached, drop_caches, perf};
use crate::Effort;
use crate::figure::{Figure, Table, ratio};

/// What is done.
struct Step {
    title: &'static str,
    /// Each time after everything that remembers anything was started anew.
    cold: bool,
    /// How often in one run: what is short is done more often.
    times: usize,
    /// Done before, and not measured; nothing if empty.
    before: &'static str,
    /// For the shell, in a directory of its own; `{}` is where the material is.
    script: &'static str,
}

const STATUS: &str = "git -C repository status --porcelain";
const GREP: &str = "grep -rq no-such-word tree; test $? = 1";

/// In this order: one has what those before it made.
const STEPS: [Step; 9] = [
    Step {
        title: "git clone",
        cold: false,
        times: 1,
        before: "",
        script: "git clone -q --no-hardlinks {}/repository repository",
    },
    // git reads again every file that is of the same second as its index, and a clone that is quick leaves it
    // more of them: an index of a later second than all files has it ask for names and attributes only.
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

/// A command of a step, in the directory that is worked in.
fn command(script: &str, work: &Path, material: &Material) -> Command {
    let mut command = Command::new("sh");
    let script = script.replace("{}", &material.path().display().to_string());
    command.args(["-c", &script]).current_dir(work).env("CARGO_TARGET_DIR", "target");
    command.env("GIT_CONFIG_GLOBAL", material.git_config()).env("CARGO_HOME", material.cargo_home());
    command
}

/// A server, and its directory reached by a data path.
struct Rig {
    data_path: DataPath,
    server: Server,
    export: PathBuf,
    reached: Reached,
}

impl Rig {
    /// All of it new, with an empty directory to work in.
    fn new(place: &Path, data_path: DataPath) -> Result<Self> {
        let export = place.join(format!("trees-{}", data_path.name()));
        std::fs::create_dir(&export)?;
        let server = Serve::openly(&export).start();
        let reached = data_path.open(&server, &export);
        let rig = Self { data_path, server, reached, export };
        std::fs::create_dir(rig.work())?;
        Ok(rig)
    }

    fn work(&self) -> PathBuf {
        self.reached.path().join("work")
    }

    /// Nothing is remembered: not by the kernel, not by the server, not by the mount.
    fn anew(&mut self) -> Result<()> {
        if let Reached::Mounted(mount) = &self.reached {
            mount.unmount();
        }
        ensure!(self.server.stop().success(), "the server didn't stop as it should");
        drop_caches()?;
        self.server.restart();
        self.reached = self.data_path.open(&self.server, &self.export);
        Ok(())
    }

    /// Does what comes before a step.
    fn prepare(&self, step: &Step, material: &Material) -> Result<()> {
        if step.before.is_empty() {
            Ok(())
        } else {
            timed(&mut command(step.before, &self.work(), material)).map(drop)
        }
    }

    /// Does a step once; the seconds that it took, and what the mount asked the server meanwhile.
    fn once(&mut self, step: &Step, material: &Material) -> Result<(f64, Calls)> {
        if step.cold {
            self.anew()?;
        }
        let before = self.calls()?;
        let seconds = timed(&mut command(step.script, &self.work(), material))?;
        let after = self.calls()?;
        Ok((seconds, Calls { lane: after.lane - before.lane, wire: after.wire - before.wire }))
    }

    /// What the mount has asked the server so far.
    fn calls(&self) -> Result<Calls> {
        let Reached::Mounted(mount) = &self.reached else { return Ok(Calls::default()) };
        let status = mount.status().context("the mount's status")?;
        let of =
            |data_path: &str| status[data_path]["round_trips"].as_u64().context("a count of round trips");
        Ok(Calls { lane: of("lane")?, wire: of("wire")? })
    }

    /// Takes away what was made. Not through the mount: nobody measures it.
    fn clear(self) -> Result<()> {
        drop(self.reached);
        std::fs::remove_dir_all(&self.export).context("what was worked on")
    }
}

/// Questions to the server.
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

/// One table. The three data paths take each step side by side, one run in this order and the next in the
/// other, so that what the machine does meanwhile meets all of them.
pub fn measure(effort: &Effort, kind: &str, place: &Path) -> Result<Table> {
    let material = Material::new()?;
    let mut figures: [[Figure; 3]; STEPS.len()] = Default::default();
    let mut calls = [[Calls::default(); 3]; STEPS.len()];
    for run in 1..=effort.runs {
        let mut rigs = DataPath::ALL
            .map(|data_path| Rig::new(place, data_path))
            .into_iter()
            .collect::<Result<Vec<_>>>()?;
        for (number, step) in STEPS.iter().enumerate() {
            rigs.iter().try_for_each(|rig| rig.prepare(step, &material))?;
            for time in 0..step.times {
                let forth = (run + time) % 2 == 0;
                for place in 0..rigs.len() {
                    let index = if forth { place } else { rigs.len() - 1 - place };
                    let (seconds, asked) = rigs[index].once(step, &material)?;
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
        about: format!(
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

/// Where the time of each step goes.
pub fn profile(place: &Path) -> Result<String> {
    let material = Material::new()?;
    let mut text = String::new();
    for data_path in DataPath::ALL {
        let mut rig = Rig::new(place, data_path)?;
        for step in &STEPS {
            rig.prepare(step, &material)?;
            if step.cold {
                rig.anew()?;
            }
            let command = command(step.script, &rig.work(), &material);
            text += &perf::of(&format!("{}, {}", step.title, data_path.name()), &command)?;
        }
        rig.clear()?;
    }
    Ok(text)
}

/// Seconds that a step took.
fn timed(command: &mut Command) -> Result<f64> {
    let start = Instant::now();
    let output = run_within(command, Duration::from_secs(600));
    let elapsed = start.elapsed().as_secs_f64();
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(elapsed)
}
