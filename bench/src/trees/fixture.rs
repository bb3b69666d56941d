//! The input of the steps on small files, the same on every machine: a repository, an archive of its files
//! and a crate.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use samehost_tests::{Scratch, run_ok};

/// Number of files in the repository.
pub const FILES: usize = 5000;
/// Number of files in each of its directories.
pub const IN_A_DIRECTORY: usize = 50;
/// Number of modules in the crate.
const MODULES: usize = 100;

/// The input, in memory.
pub struct Fixture {
    scratch: Scratch,
}

impl Fixture {
    /// Creates it.
    pub fn new() -> Result<Self> {
        let fixture = Self { scratch: Scratch::in_memory() };
        fs::write(fixture.git_config(), "[safe]\n\tdirectory = *\n[gc]\n\tauto = 0\n")?;
        fs::create_dir(fixture.cargo_home())?;
        fixture.make_repository()?;
        fixture.make_crate()?;
        Ok(fixture)
    }

    /// The directory with `repository`, `tree.tar` and `crate`.
    pub fn path(&self) -> &Path {
        self.scratch.path()
    }

    /// git's configuration, independent of the machine's own.
    pub fn git_config(&self) -> PathBuf {
        self.scratch.join("gitconfig")
    }

    /// cargo's home, empty.
    pub fn cargo_home(&self) -> PathBuf {
        self.scratch.join("cargo")
    }

    /// The repository, with everything in one pack as after a clone, and the archive.
    fn make_repository(&self) -> Result<()> {
        let tree = self.scratch.mkdir("repository");
        for file in 0..FILES {
            let directory = tree.join(format!("dir{:03}", file / IN_A_DIRECTORY));
            fs::create_dir_all(&directory)?;
            fs::write(directory.join(format!("file{file:05}.txt")), text(file))?;
        }
        run_ok(
            Command::new("tar").arg("-cf").arg(self.scratch.join("tree.tar")).arg("-C").arg(&tree).arg("."),
        );
        for words in [&["init", "-q"][..], &["add", "."], &["commit", "-q", "-m", "all"], &["gc", "-q"]] {
            let mut command = Command::new("git");
            command.arg("-C").arg(&tree).args(words).env("GIT_CONFIG_GLOBAL", self.git_config());
            for role in ["AUTHOR", "COMMITTER"] {
                command
                    .env(format!("GIT_{role}_NAME"), "bench")
                    .env(format!("GIT_{role}_EMAIL"), "bench@localhost");
                command.env(format!("GIT_{role}_DATE"), "2020-01-01T00:00:00Z");
            }
            run_ok(&mut command);
        }
        Ok(())
    }

    /// A crate of many small modules without dependencies.
    fn make_crate(&self) -> Result<()> {
        let at = self.scratch.mkdir("crate");
        let source = at.join("src");
        fs::create_dir(&source)?;
        let manifest =
            "[package]\nname = \"built\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\n[workspace]\n";
        fs::write(at.join("Cargo.toml"), manifest)?;
        let (mut modules, mut calls) = (String::new(), String::new());
        for module in 0..MODULES {
            let _ = writeln!(modules, "mod m{module};");
            let _ = writeln!(calls, "    println!(\"{{:?}}\", m{module}::f(1));");
            let code = format!(
                "#[derive(Debug, Clone, PartialEq)]\npub struct S {{ pub a: u64, pub b: String }}\n\
                 pub fn f(x: u64) -> S {{ S {{ a: x * {module}, b: format!(\"{{x}}\") }} }}\n"
            );
            fs::write(source.join(format!("m{module}.rs")), code)?;
        }
        fs::write(source.join("main.rs"), format!("{modules}fn main() {{\n{calls}}}\n"))?;
        Ok(())
    }
}

/// Some kilobytes that look like text, different for each file.
fn text(number: usize) -> String {
    let mut text = String::new();
    for line in 0..(20 + number % 160) {
        let word = (line + 1).wrapping_mul(number + 7919).wrapping_mul(2_654_435_761);
        let _ = writeln!(text, "line {line} of file {number}: {word:x}");
    }
    text
}
