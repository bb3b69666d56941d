//! Inode numbers where the server shows several filesystems below the mounted directory (`crossmnt`).

mod support;

use std::fs;
use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use client::Version;
use samehost_mount::MountOptions;
use support::{Served, TRANSPORTS, wait_for};

/// A tmpfs with a file, unmounted when dropped. All have the same file ids.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn at(path: PathBuf) -> Self {
        fs::create_dir(&path).unwrap();
        let mut mount = Command::new("mount");
        let mount = mount.args(["-t", "tmpfs", "-o", "mode=755,size=1m", "none"]).arg(&path).status();
        assert!(mount.unwrap().success());
        fs::write(path.join("f"), "data").unwrap();
        Self(path)
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

fn ino(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}

fn listed_ino(directory: &Path, name: &str) -> u64 {
    let entry = fs::read_dir(directory).unwrap().map(Result::unwrap).find(|entry| entry.file_name() == name);
    entry.unwrap().ino()
}

#[test]
fn files_of_crossed_filesystems_have_numbers_of_their_own() {
    let served = Served::with("no_root_squash,crossmnt");
    let _filesystems = ["a", "b"].map(|name| Tmpfs::at(served.export().join(name)));
    let root = ino(&served.export());
    for (version, transport) in TRANSPORTS
        .map(|transport| (Version::V3, transport))
        .into_iter()
        .chain([(Version::V4_2, TRANSPORTS[2])])
    {
        let mounted = served.mount_by(version, transport, MountOptions::default());
        // The server sees the mounts a moment after they were made.
        wait_for("both filesystems", || ["a/f", "b/f"].iter().all(|file| mounted.path(file).exists()));
        let paths = ["", "a", "b", "a/f", "b/f"].map(|path| mounted.path(path));
        let mut numbers = paths.each_ref().map(|path| ino(path));
        assert_eq!(numbers[0], root, "the mounted directory's filesystem keeps its file ids");
        for (directory, file) in [(1, 3), (2, 4)] {
            assert_eq!(listed_ino(&paths[directory], "f"), numbers[file], "{version:?}, {transport:?}");
            // From the open file.
            let open = fs::File::options().write(true).open(&paths[file]).unwrap();
            open.set_len(numbers[file] % 100).unwrap();
            assert_eq!(open.metadata().unwrap().ino(), numbers[file]);
        }
        numbers.sort_unstable();
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{version:?}, {transport:?}: {numbers:?}");
        let find = Command::new("find").arg(mounted.root()).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&find.stderr), "", "no directory looks like one above it");
        assert_eq!(find.stdout.iter().filter(|byte| **byte == b'\n').count(), 5);
    }
}
