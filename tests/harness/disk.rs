//! Small real filesystems on loop devices.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Scratch;
use crate::process::{run, run_ok};

/// A mounted filesystem in a file. Unmounted when dropped.
#[derive(Debug)]
pub struct Disk {
    mountpoint: PathBuf,
    _scratch: Scratch,
}

impl Disk {
    /// Makes a filesystem of `kind` ("ext4", "xfs") of `megabytes` MiB and mounts it.
    ///
    /// # Panics
    /// When it can't be made or mounted.
    pub fn new(kind: &str, megabytes: u64) -> Self {
        Self::in_directory(kind, megabytes, &std::env::temp_dir())
    }

    /// As [`Disk::new`], with the image in a directory of the caller's choice.
    ///
    /// # Panics
    /// When it can't be made or mounted.
    pub fn in_directory(kind: &str, megabytes: u64, parent: &Path) -> Self {
        let scratch = Scratch::under(parent);
        let image = scratch.join("image");
        File::create(&image).and_then(|f| f.set_len(megabytes << 20)).expect("own directory");
        run_ok(Command::new(format!("mkfs.{kind}")).arg("-q").arg(&image));
        let mountpoint = scratch.mkdir("mounted");
        run_ok(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&mountpoint));
        Self { mountpoint, _scratch: scratch }
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.mountpoint
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = run(Command::new("umount").arg("--lazy").arg(&self.mountpoint));
    }
}
