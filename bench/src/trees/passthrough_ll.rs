//! libfuse's example `passthrough_ll`, a filesystem in user space that does nothing but call the system: the
//! peer of single operations and of trees. The caller builds it; libfuse 3.18 and later have `-o io_uring`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use samehost_tests::{Daemon, Scratch, run};

use super::data_path::through;
use crate::drop_caches;

/// How long it may take to mount.
const MOUNT_TIMEOUT: Duration = Duration::from_secs(30);

/// A way to run it.
#[derive(Debug)]
pub struct Variant {
    /// The column's heading.
    pub heading: &'static str,
    /// Its name in `--paths`.
    pub name: &'static str,
    /// Further options of the mount.
    options: &'static str,
}

/// By io_uring, and by /dev/fuse.
pub const VARIANTS: [Variant; 2] = [
    Variant { heading: "passthrough_ll, io_uring", name: "passthrough-ll-uring", options: ",io_uring" },
    Variant { heading: "passthrough_ll, /dev/fuse", name: "passthrough-ll-fuse", options: "" },
];

/// A directory mounted by it. Unmounted when dropped.
pub struct PassthroughLl {
    variant: &'static Variant,
    /// What starts it.
    command: Command,
    daemon: Daemon,
    at: PathBuf,
    source: PathBuf,
    scratch: Scratch,
}

impl PassthroughLl {
    /// Mounts a new directory in `place`, through the command `prefix`. Without the program, or without
    /// io_uring where the variant is that, the reason.
    pub fn mount(
        program: &Path,
        variant: &'static Variant,
        place: &Path,
        prefix: &[&str],
    ) -> Result<Result<Self, String>> {
        if !program.exists() {
            return Ok(Err(format!("no {}; --passthrough-ll names it", program.display())));
        }
        let scratch = Scratch::new();
        let at = scratch.mkdir("mnt");
        let source = place.join(variant.name);
        fs::create_dir(&source)?;
        let mut command = Command::new("sh");
        // It has a descriptor for every file.
        command
            .args(["-c", "ulimit -Sn \"$(ulimit -Hn)\" && exec \"$@\"", "sh"])
            .arg(program)
            .args(["-f", "-o"]);
        command.arg(format!("source={}{}", source.display(), variant.options)).arg(&at);
        let mut command = through(prefix, &command);
        let daemon = Daemon::start("passthrough_ll", &mut command, &scratch.join("log"))?;
        let mut peer = Self { variant, command, daemon, at, source, scratch };
        match peer.not_mounted() {
            Some(reason) => peer.clear().map(|()| Err(reason)),
            None => Ok(Ok(peer)),
        }
    }

    /// Empties the caches of the kernel and the peer.
    pub fn restart_cold(&mut self) -> Result<()> {
        self.unmount();
        drop_caches()?;
        self.daemon = Daemon::start("passthrough_ll", &mut self.command, &self.scratch.join("log"))?;
        match self.not_mounted() {
            Some(reason) => bail!("{}: {reason}", self.variant.heading),
            None => Ok(()),
        }
    }

    /// Waits for the mount; the reason if there is none, or one without io_uring where the variant is that.
    fn not_mounted(&mut self) -> Option<String> {
        let start = Instant::now();
        while !self.is_mounted() {
            if !self.daemon.alive() || start.elapsed() > MOUNT_TIMEOUT {
                return Some(self.daemon.log().lines().next().unwrap_or("it doesn't mount").to_owned());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // The first request is served after FUSE_INIT, which sets the rings up.
        let _ = fs::metadata(&self.at);
        let has_rings = || descriptors(self.daemon.pid()).any(|target| target.contains("[io_uring]"));
        (self.variant.options.contains("io_uring") && !has_rings())
            .then(|| "it uses no io_uring here".to_owned())
    }

    fn is_mounted(&self) -> bool {
        let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        table.lines().any(|line| line.split(' ').nth(1).map(Path::new) == Some(&self.at))
    }

    fn unmount(&self) {
        if self.is_mounted() {
            let _ = run(Command::new("umount").arg("--lazy").arg(&self.at));
        }
    }

    /// How it runs.
    pub const fn variant(&self) -> &'static Variant {
        self.variant
    }

    /// The mountpoint.
    pub fn path(&self) -> &Path {
        &self.at
    }

    /// Unmounts and removes all files.
    pub fn clear(self) -> Result<()> {
        let source = self.source.clone();
        drop(self);
        Ok(fs::remove_dir_all(source)?)
    }
}

impl Drop for PassthroughLl {
    fn drop(&mut self) {
        self.unmount();
    }
}

/// What the descriptors of a process refer to.
fn descriptors(pid: u32) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some(fs::read_link(entry.path()).ok()?.display().to_string()))
}
