//! What the steps on small files work with, the same on every machine: a repository, an archive of its files,
//! a crate.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use samehost_tests::{Scratch, run_ok};

/// Files of the repository.
pub const FILES: usize = 5000;
/// Files in one of its directories.
pub const IN_A_DIRECTORY: usize = 50;
/// Modules of the crate.
const MODULES: usize = 100;

/// All of it, in memory.
pub struct Material {
    scratch: Scratch,
}

impl Material {
    /// Makes it.
    pub fn new() -> Result<Self> {
        let material = Self { scratch: Scratch::in_memory() };
        fs::write(material.git_config(), "[safe]\n\tdirectory = *\n[gc]\n\tauto = 0\n")?;
        fs::create_dir(material.cargo_home())?;
        material.make_repository()?;
        material.make_crate()?;
        Ok(material)
    }

    /// The directory with `repository`, `tree.tar` and `crate`.
    pub fn path(&self) -> &Path {
        self.scratch.path()
    }

    /// git's configuration, in which nothing is the machine's own.
    pub fn git_config(&self) -> PathBuf {
        self.scratch.join("gitconfig")
    }

    /// cargo's home, in which nothing is.
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
            for who in ["AUTHOR", "COMMITTER"] {
                command
                    .env(format!("GIT_{who}_NAME"), "bench")
                    .env(format!("GIT_{who}_EMAIL"), "bench@localhost");
                command.env(format!("GIT_{who}_DATE"), "2020-01-01T00:00:00Z");
            }
            run_ok(&mut command);
        }
        Ok(())
    }

    /// A crate of many small modules that needs nothing from elsewhere.
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

/// Some kilobytes that look like text, another for each file.
fn text(number: usize) -> String {
    let mut text = String::new();
    for line in 0..(20 + number % 160) {
        let word = (line + 1).wrapping_mul(number + 7919).wrapping_mul(2_654_435_761);
        let _ = writeln!(text, "line {line} of file {number}: {word:x}");
    }
    text
}
