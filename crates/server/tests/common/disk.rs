//! Small filesystems on loop devices, for tests that depend on the filesystem or on its mount. They need
//! root.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An ext4 filesystem in a file, unmounted when dropped.
pub struct Disk {
    dir: tempfile::TempDir,
    mountpoint: PathBuf,
}

impl Disk {
    /// Creates and mounts one; `options` are mkfs.ext4's.
    pub fn ext4(options: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mountpoint = dir.path().join("mounted");
        std::fs::create_dir(&mountpoint).unwrap();
        let open_to_all = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(dir.path(), open_to_all).unwrap();
        let disk = Self { dir, mountpoint };
        std::fs::File::create(disk.image()).and_then(|image| image.set_len(8 << 20)).unwrap();
        run(Command::new("mkfs.ext4").arg("-q").args(options).arg(disk.image()));
        disk.mount_at(disk.path());
        disk
    }

    fn image(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.mountpoint
    }

    /// Mounts it at `path`.
    pub fn mount_at(&self, path: &Path) {
        run(Command::new("mount").args(["-o", "loop"]).arg(self.image()).arg(path));
    }

    /// Whether the kernel still has it mounted, even invisibly: otherwise its loop device is gone.
    pub fn is_in_use(&self) -> bool {
        let found = Command::new("losetup").arg("--associated").arg(self.image()).output().unwrap();
        !found.stdout.is_empty()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        while Command::new("umount")
            .args(["--lazy", "--quiet"])
            .arg(&self.mountpoint)
            .status()
            .is_ok_and(|status| status.success())
        {}
    }
}

/// Runs a command that must succeed.
pub fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
