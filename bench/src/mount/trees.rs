//! Small files and metadata: a repository cloned and looked at, a tree unpacked, searched and removed, a crate built; on the
//! plain directory, with a lane, and over the wire.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use samehost_tests::process::run_within;
use samehost_tests::{Serve, Server};

use super::material::{FILES, IN_A_DIRECTORY, Material};
use super::{Reached, Road, drop_caches, perf};
use crate::Effort;
use crate::figure::{Figure, Table, ratio};

/// What is done.
struct Step {
    title: &'static str,
    /// After everything that remembers anything was started anew.
    cold: bool,
    /// For the shell, in a directory of its own; `{}` is where the material is.
    script: &'static str,
}

/// In this order: one has what those before it made.
const STEPS: [Step; 9] = [
    Step { title: "git clone", cold: false, script: "git clone -q --no-hardlinks {}/repository repository" },
    Step { title: "git status", cold: false, script: "git -C repository status --porcelain" },
    Step { title: "git status, cold", cold: true, script: "git -C repository status --porcelain" },
    Step { title: "tar x", cold: false, script: "mkdir tree && tar -xf {}/tree.tar -C tree" },
    Step { title: "ls -lR, cold", cold: true, script: "ls -lR tree >/dev/null" },
    Step { title: "grep -r, cold", cold: true, script: "grep -rq no-such-word tree; test $? = 1" },
    Step { title: "grep -r, warm", cold: false, script: "grep -rq no-such-word tree; test $? = 1" },
    Step { title: "rm -r", cold: false, script: "rm -r tree" },
    Step {
        title: "cargo build",
        cold: false,
        script: "cp -r {}/crate crate && cd crate && cargo build -q --offline",
    },
];

impl Step {
    fn command(&self, work: &Path, material: &Material) -> Command {
        let mut command = Command::new("sh");
        let script = self.script.replace("{}", &material.path().display().to_string());
        command.args(["-c", &script]).current_dir(work).env("CARGO_TARGET_DIR", "target");
        command.env("GIT_CONFIG_GLOBAL", material.git_config()).env("CARGO_HOME", material.cargo_home());
        command
    }
}

/// A server, and its directory reached by a road.
struct Rig {
    server: Server,
    export: std::path::PathBuf,
    reached: Reached,
}

impl Rig {
    fn new(place: &Path) -> Result<Self> {
        let export = place.join("trees");
        std::fs::create_dir(&export)?;
        let server = Serve::openly(&export).start();
        Ok(Self { server, reached: Reached::Plain(export.clone()), export })
    }

    /// Nothing is remembered: not by the kernel, not by the server, not by the mount.
    fn anew(&mut self, road: Road) -> Result<()> {
        if let Reached::Mounted(mount) = &self.reached {
            mount.unmount();
        }
        ensure!(self.server.stop().success(), "the server didn't stop as it should");
        drop_caches()?;
        self.server.restart();
        self.reached = road.open(&self.server, &self.export);
        Ok(())
    }

    /// Does every step by one road; `look` sees each.
    fn round(
        &mut self,
        road: Road,
        material: &Material,
        mut look: impl FnMut(usize, Command) -> Result<()>,
    ) -> Result<()> {
        self.anew(road)?;
        std::fs::create_dir(self.reached.path().join("work"))?;
        for (number, step) in STEPS.iter().enumerate() {
            if step.cold {
                self.anew(road)?;
            }
            look(number, step.command(&self.reached.path().join("work"), material))?;
        }
        // Not through the mount: nobody measures it.
        std::fs::remove_dir_all(self.export.join("work")).context("what was worked on")
    }
}

/// One table.
pub fn measure(effort: &Effort, kind: &str, place: &Path) -> Result<Table> {
    let material = Material::new()?;
    let mut rig = Rig::new(place)?;
    let mut figures: [[Figure; 3]; STEPS.len()] = Default::default();
    for run in 1..=effort.runs {
        for (index, road) in Road::ALL.into_iter().enumerate() {
            rig.round(road, &material, |step, mut command| {
                figures[step][index].add(timed(&mut command)?);
                Ok(())
            })?;
        }
        eprintln!("bench: mount, trees on {kind}: run {run} of {}", effort.runs);
    }
    let rows = STEPS.iter().zip(&figures).map(|(step, [raw, lane, wire])| {
        let shown = |figure: &Figure| figure.show(|seconds| format!("{:.0} ms", seconds * 1000.0));
        vec![step.title.to_owned(), shown(raw), shown(lane), shown(wire), ratio(lane, raw), ratio(wire, lane)]
    });
    Ok(Table {
        title: format!("Mount: small files and metadata on {kind}"),
        about: format!(
            "A repository of {FILES} files in {} directories: time of each step on the plain directory, on a mount with \
             lane=required and on one with lane=off, in turn. Cold: the server and the mount were started anew, and the kernel's \
             caches dropped (a tmpfs is a cache that can't be). The gain is the wire's time to the lane's. Goals: 2 (aim 3) for a \
             cold grep -r, and nowhere less than 1.",
            FILES / IN_A_DIRECTORY
        ),
        head: vec!["", "raw", "lane", "wire", "lane / raw (time)", "gain of the lane"],
        rows: rows.collect(),
    })
}

/// Where the time of each step goes.
pub fn profile(place: &Path) -> Result<String> {
    let material = Material::new()?;
    let mut rig = Rig::new(place)?;
    let mut text = String::new();
    for road in Road::ALL {
        rig.round(road, &material, |step, command| {
            text += &perf::of(&format!("{}, {}", STEPS[step].title, road.name()), &command)?;
            Ok(())
        })?;
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
