//! Small files and metadata on the mount: a repository cloned and looked at, a tree unpacked, searched and removed, a crate
//! built; on the plain directory, with a lane, and over the wire.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use samehost_tests::process::run_within;
use samehost_tests::{Mount, Scratch, Serve, run_ok};

use crate::Effort;
use crate::figure::{Figure, Table, ratio};
use crate::mount::drop_caches;

/// Files of the repository.
const FILES: usize = 5000;
/// Files in one of its directories.
const IN_A_DIRECTORY: usize = 50;

/// What is done, in this order, in a directory of its own; `{}` is where the material is.
const STEPS: &[(&str, bool, &str)] = &[
    ("git clone", false, "git clone -q --no-hardlinks {}/repository repository"),
    ("git status", false, "git -C repository status --porcelain"),
    ("tar x", false, "mkdir tree && tar -xf {}/tree.tar -C tree"),
    ("grep -r, cold", true, "grep -rq no-such-word tree; test $? = 1"),
    ("grep -r, warm", false, "grep -rq no-such-word tree; test $? = 1"),
    ("find, cold", true, "find tree -newer /proc/1 | wc -l"),
    ("rm -r", false, "rm -r tree"),
    ("cargo build", false, "cp -r {}/crate crate && cd crate && cargo build -q --offline"),
];

/// One table.
pub fn measure(effort: &Effort, kind: &str, place: &Path) -> Result<Table> {
    let material = Scratch::in_memory();
    make(&material)?;
    let export = place.join("trees");
    std::fs::create_dir(&export)?;
    let server = Serve::openly(&export).start();
    let lane = Mount::new(&server, &export, "lane=required");
    let wire = Mount::new(&server, &export, "lane=off");
    let mut figures: Vec<[Figure; 3]> = vec![Default::default(); STEPS.len()];
    for _ in 0..effort.runs {
        for (road, at) in [export.as_path(), lane.path(), wire.path()].into_iter().enumerate() {
            let work = at.join(format!("work{road}"));
            std::fs::create_dir(&work)?;
            for ((_, cold, step), figure) in STEPS.iter().zip(&mut figures) {
                if *cold {
                    drop_caches()?;
                }
                figure[road].add(timed(step, &work, &material)?);
            }
            // Not through the mount: its time isn't measured.
            std::fs::remove_dir_all(export.join(format!("work{road}")))?;
        }
    }
    let rows = STEPS.iter().zip(&figures).map(|((title, _, _), [raw, lane, wire])| {
        let shown = |figure: &Figure| figure.show(|seconds| format!("{:.0} ms", seconds * 1000.0));
        vec![(*title).to_owned(), shown(raw), shown(lane), shown(wire), ratio(lane, raw), ratio(wire, lane)]
    });
    Ok(Table {
        title: format!("Mount: small files and metadata on {kind}"),
        about: format!(
            "A repository of {FILES} files in {} directories: time of each step on the plain directory, on a mount with \
             lane=required and on one with lane=off, in turn. Cold: the kernel's caches were dropped before. The goal for \
             a cold grep -r is a gain of 2 (aim 3), and nowhere less than 1.",
            FILES / IN_A_DIRECTORY
        ),
        head: vec!["", "raw", "lane", "wire", "lane / raw (time)", "gain of the lane"],
        rows: rows.collect(),
    })
}

/// Seconds that a step took.
fn timed(step: &str, work: &Path, material: &Scratch) -> Result<f64> {
    let line = step.replace("{}", &material.path().display().to_string());
    let mut command = Command::new("sh");
    command.args(["-c", &line]).current_dir(work).env("CARGO_TARGET_DIR", "target");
    command.env("GIT_CONFIG_GLOBAL", material.join("gitconfig")).env("CARGO_HOME", material.join("cargo"));
    let start = Instant::now();
    let output = run_within(&mut command, Duration::from_secs(600));
    let elapsed = start.elapsed().as_secs_f64();
    ensure!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(elapsed)
}

/// The repository, the archive and the crate.
fn make(material: &Scratch) -> Result<()> {
    std::fs::write(material.join("gitconfig"), "[safe]\n\tdirectory = *\n[gc]\n\tauto = 0\n")?;
    material.mkdir("cargo");
    let tree = material.mkdir("repository");
    for file in 0..FILES {
        let directory = tree.join(format!("dir{:03}", file / IN_A_DIRECTORY));
        std::fs::create_dir_all(&directory)?;
        std::fs::write(directory.join(format!("file{file:05}.txt")), text(file))?;
    }
    run_ok(Command::new("tar").arg("-cf").arg(material.join("tree.tar")).arg("-C").arg(&tree).arg("."));
    for words in [
        &["init", "-q"][..],
        &["add", "."],
        &["-c", "user.name=bench", "-c", "user.email=bench@localhost", "commit", "-q", "-m", "all"],
    ] {
        let mut command = Command::new("git");
        command.arg("-C").arg(&tree).args(words).env("GIT_CONFIG_GLOBAL", material.join("gitconfig"));
        run_ok(&mut command);
    }
    make_crate(&material.mkdir("crate"))
}

/// A crate of many small modules that needs nothing from elsewhere.
fn make_crate(at: &Path) -> Result<()> {
    let source: PathBuf = at.join("src");
    std::fs::create_dir(&source)?;
    std::fs::write(
        at.join("Cargo.toml"),
        "[package]\nname = \"built\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\n[workspace]\n",
    )?;
    let mut main = String::new();
    for module in 0..100 {
        let _ = writeln!(main, "mod m{module};");
        let code = format!(
            "#[derive(Debug, Clone, PartialEq)]\npub struct S {{ pub a: u64, pub b: String }}\n\
             pub fn f(x: u64) -> S {{ S {{ a: x * {module}, b: format!(\"{{x}}\") }} }}\n"
        );
        std::fs::write(source.join(format!("m{module}.rs")), code)?;
    }
    main.push_str("fn main() {\n");
    for module in 0..100 {
        let _ = writeln!(main, "    println!(\"{{:?}}\", m{module}::f(1));");
    }
    main.push_str("}\n");
    std::fs::write(source.join("main.rs"), main)?;
    Ok(())
}

/// Some kilobytes that look like text, another for each file.
fn text(number: usize) -> String {
    let mut text = String::new();
    for line in 0..(20 + number % 160) {
        let _ = writeln!(
            text,
            "line {line} of file {number}: {:x}",
            (line + 1).wrapping_mul(number + 7919) * 2_654_435_761
        );
    }
    text
}
