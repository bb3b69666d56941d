//! libfuse's example `passthrough_ll`, a filesystem in user space that does nothing but call the system: the
//! peer of single operations. The caller builds it; libfuse 3.18 and later have `-o io_uring`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;
use samehost_tests::{Daemon, Scratch, run};

use super::data_path::through;

/// How long it may take to mount.
const MOUNT_TIMEOUT: Duration = Duration::from_secs(30);

/// Its variants: heading, name in `--paths`, further options.
pub const VARIANTS: [(&str, &str, &str); 2] = [
    ("passthrough_ll, io_uring", "passthrough-ll-uring", ",io_uring"),
    ("passthrough_ll, /dev/fuse", "passthrough-ll-fuse", ""),
];

/// A directory mounted by it. Unmounted when dropped.
pub struct PassthroughLl {
    daemon: Daemon,
    at: PathBuf,
    source: PathBuf,
    _scratch: Scratch,
}

impl PassthroughLl {
    /// Mounts a new directory in `place` with further options, through the command `prefix`. Without the
    /// program, or without io_uring where the options ask for it, the reason.
    pub fn mount(
        program: &Path,
        options: &str,
        place: &Path,
        prefix: &[&str],
    ) -> Result<Result<Self, String>> {
        if !program.exists() {
            return Ok(Err(format!("no {}; --passthrough-ll names it", program.display())));
        }
        let scratch = Scratch::new();
        let (at, log) = (scratch.mkdir("mnt"), scratch.join("log"));
        let source = place.join("passthrough_ll");
        fs::create_dir(&source)?;
        let mut command = Command::new("sh");
        // It has a descriptor for every file.
        command
            .args(["-c", "ulimit -Sn \"$(ulimit -Hn)\" && exec \"$@\"", "sh"])
            .arg(program)
            .args(["-f", "-o"]);
        command.arg(format!("source={}{options}", source.display())).arg(&at);
        let daemon = Daemon::start("passthrough_ll", &mut through(prefix, &command), &log)?;
        let mut peer = Self { daemon, at, source, _scratch: scratch };
        let reason = peer.not_mounted(options);
        match reason {
            Some(reason) => peer.clear().map(|()| Err(reason)),
            None => Ok(Ok(peer)),
        }
    }

    /// Waits for the mount; the reason if there is none, or one without io_uring where `options` ask for it.
    fn not_mounted(&mut self, options: &str) -> Option<String> {
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
        (options.contains("io_uring") && !has_rings()).then(|| "it uses no io_uring here".to_owned())
    }

    fn is_mounted(&self) -> bool {
        let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        table.lines().any(|line| line.split(' ').nth(1).map(Path::new) == Some(&self.at))
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
        if self.is_mounted() {
            let _ = run(Command::new("umount").arg("--lazy").arg(&self.at));
        }
    }
}

/// What the descriptors of a process refer to.
fn descriptors(pid: u32) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some(fs::read_link(entry.path()).ok()?.display().to_string()))
}
