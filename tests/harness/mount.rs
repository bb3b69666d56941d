//! A share mounted by `samehost mount`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::process::{run, run_ok};
use crate::samehost::{Server, binary};
use crate::{Scratch, UringSwitch, wait_for};

/// A mounted share. Unmounted when dropped, in any state.
#[derive(Debug)]
pub struct Mount {
    at: PathBuf,
    run_dir: PathBuf,
    _scratch: Scratch,
}

impl Mount {
    /// Mounts `export` of `server` with `options`, as `-o` takes them.
    ///
    /// # Panics
    /// When it can't be mounted.
    pub fn new(server: &Server, export: &Path, options: &str) -> Self {
        let mount = Self::unmounted(server);
        run_ok(&mut mount.command(&server.url(export), options));
        mount
    }

    /// As [`Mount::new`], with FUSE over io_uring. `None`, with a note, if this kernel doesn't have it.
    ///
    /// # Panics
    /// When it can't be mounted.
    pub fn over_uring(server: &Server, export: &Path, options: &str) -> Option<Self> {
        let _on = UringSwitch::set(true)?;
        Some(Self::new(server, export, &format!("{options},uring=required")))
    }

    /// A mountpoint without a mount, for tests that mount by themselves.
    pub fn unmounted(server: &Server) -> Self {
        Self::unmounted_with(server.run_dir())
    }

    /// As [`Mount::unmounted`], for a foreign server: `run_dir` is that of the mount's process.
    pub fn unmounted_with(run_dir: &Path) -> Self {
        let scratch = Scratch::new();
        Self { at: scratch.mkdir("mnt"), run_dir: run_dir.to_owned(), _scratch: scratch }
    }

    /// The command that mounts `source` here.
    pub fn command(&self, source: &str, options: &str) -> Command {
        let mut command = Command::new(binary());
        command.args(["mount", source]).arg(&self.at).env("SAMEHOST_RUN_DIR", &self.run_dir);
        if !options.is_empty() {
            command.args(["-o", options]);
        }
        command
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.at
    }

    /// A path in it.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.at.join(name)
    }

    /// Its entry in `samehost status --json`; `None` without such a mount.
    pub fn status(&self) -> Option<Value> {
        let mut command = Command::new(binary());
        command.args(["status", "--json"]).env("SAMEHOST_RUN_DIR", &self.run_dir);
        let all: Value = serde_json::from_slice(&run(&mut command).stdout).ok()?;
        let mounts = all["mounts"].as_array()?;
        mounts.iter().find(|mount| mount["mountpoint"].as_str().map(Path::new) == Some(&self.at)).cloned()
    }

    /// The process that serves it.
    ///
    /// # Panics
    /// When there is none.
    pub fn pid(&self) -> u32 {
        let pid = self.status().and_then(|status| status["pid"].as_u64()).expect("a mount with a process");
        u32::try_from(pid).expect("a process id")
    }

    /// Waits until new files use this data path: `lane, passed through`, `lane, served by the mount's
    /// process` or `wire`.
    ///
    /// # Panics
    /// When they don't within the timeout.
    pub fn wait_for_data_path(&self, data_path: &str) {
        wait_for(&format!("the data path {data_path:?}"), || {
            (self.status()?["road"] == data_path).then_some(())
        });
    }

    /// Switches the lane, by `samehost ctl lane`.
    ///
    /// # Panics
    /// When that fails.
    pub fn set_lane(&self, word: &str) {
        let mut command = Command::new(binary());
        command.args(["ctl", "lane", word, "--mount"]).arg(&self.at).env("SAMEHOST_RUN_DIR", &self.run_dir);
        run_ok(&mut command);
    }

    /// Unmounts with `samehost umount`.
    ///
    /// # Panics
    /// When that fails.
    pub fn unmount(&self) {
        run_ok(Command::new(binary()).arg("umount").arg(&self.at));
    }

    /// Whether something is mounted here.
    ///
    /// # Panics
    /// When the mount table can't be read.
    pub fn is_mounted(&self) -> bool {
        let table = std::fs::read_to_string("/proc/self/mounts").expect("a mount table");
        table.lines().any(|line| line.split(' ').nth(1).map(Path::new) == Some(&self.at))
    }

    /// Arguments for a program that needs the run directory.
    pub fn run_dir_option(&self) -> [OsString; 2] {
        ["--run-dir".into(), self.run_dir.clone().into()]
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Lazily and by force, so that the test never hangs; repeatedly, as mounts may be stacked.
        for _ in 0..4 {
            if !self.is_mounted() {
                break;
            }
            let _ = run(Command::new("umount").args(["--force", "--lazy"]).arg(&self.at));
        }
    }
}
