//! Copies of mounts, when other users change the paths. They need root, and are skipped without.
//!
//! Each test mounts in a mount namespace of a thread of its own, which ends with the thread.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, Result};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change, unmount,
};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use samehost_sys::attached_mount::{attach_copy, below, mount_id, top};

/// A filesystem with mounts below it, and another one with the same directories.
struct Trees(PathBuf);

impl Trees {
    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Mounts a tmpfs that has a file `in`. Returns its number.
    fn mount(&self, name: &str) -> u64 {
        tmpfs(&self.path(name));
        fs::write(self.path(name).join("in"), name).expect("a tmpfs");
        number(&self.path(name))
    }

    /// Mounts what is at a path of `clone` at the same path of `fuse`.
    fn carry_over(&self, id: u64, path: &str) -> Result<bool> {
        let path = Path::new(path);
        attach_copy(id, self.root("clone"), path, below(self.root("fuse"), path)?)
    }

    /// Attaches what is at a path of `clone` at `fuse/place`.
    fn copy(&self, id: u64, path: &str) -> Result<bool> {
        attach_copy(id, self.root("clone"), Path::new(path), self.root("fuse/place"))
    }

    fn root(&self, name: &str) -> OwnedFd {
        top(&self.path(name)).expect("a directory")
    }
}

fn tmpfs(at: &Path) {
    mount(c"tmpfs", at, c"tmpfs", MountFlags::empty(), None).expect("a tmpfs");
}

fn number(at: &Path) -> u64 {
    let file = open(at, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).expect("opens");
    mount_id(file).expect("statx").expect("Linux 5.8")
}

/// Runs `test` in a mount namespace of its own, where this process may make one.
fn in_own_namespace(test: impl FnOnce(&Trees) + Send) {
    let run = || {
        // SAFETY: the table of descriptors isn't unshared.
        match unsafe { unshare_unsafe(UnshareFlags::NEWNS) } {
            Ok(()) => {}
            Err(Errno::PERM) => return eprintln!("skipped: not root"),
            Err(error) => panic!("{error}"),
        }
        mount_change(c"/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).expect("private");
        let dir = tempfile::tempdir().expect("a directory");
        let trees = Trees(dir.path().to_owned());
        tmpfs(dir.path());
        for tree in ["clone", "fuse"] {
            fs::create_dir(trees.path(tree)).expect("makes");
            tmpfs(&trees.path(tree));
            for name in ["a/mnt", "b/mnt", "mnt", "place"] {
                fs::create_dir_all(trees.path(tree).join(name)).expect("makes");
            }
            fs::write(trees.path(tree).join("file"), tree).expect("writes");
        }
        test(&trees);
        unmount(dir.path(), UnmountFlags::DETACH).expect("unmounts");
    };
    std::thread::scope(|scope| scope.spawn(run).join().expect("the test passes"));
}

#[test]
fn a_mount_is_copied_to_the_same_path() {
    in_own_namespace(|trees| {
        for path in ["mnt", "a/mnt"] {
            let id = trees.mount(&format!("clone/{path}"));
            trees.mount(&format!("clone/{path}/"));
            let id_on_top = number(&trees.path("clone").join(path));
            assert_eq!(trees.carry_over(id, path), Ok(false), "it is covered");
            assert_eq!(trees.carry_over(id_on_top, path), Ok(true));
            assert!(trees.path("fuse").join(path).join("in").exists());
            // There is something now.
            assert_eq!(trees.carry_over(id_on_top, path), Err(Errno::XDEV));
        }
        // What is mounted below a mount is copied with it.
        fs::create_dir(trees.path("clone/mnt/deep")).expect("makes");
        trees.mount("clone/mnt/deep");
        assert_eq!(trees.copy(number(&trees.path("clone/mnt")), "mnt"), Ok(true));
        assert!(trees.path("fuse/place/deep/in").exists());

        // A mountpoint may be a file.
        mount_bind(trees.path("clone/mnt/in"), trees.path("clone/file")).expect("mounts");
        assert_eq!(trees.carry_over(number(&trees.path("clone/file")), "file"), Ok(true));
        assert_eq!(fs::read_to_string(trees.path("fuse/file")).expect("there"), "clone/mnt/");
    });
}

#[test]
fn no_link_and_no_other_mount_is_followed_to_a_mount() {
    in_own_namespace(|trees| {
        let id = trees.mount("clone/a/mnt");
        fs::rename(trees.path("clone/a"), trees.path("clone/renamed")).expect("renames");
        assert_eq!(trees.copy(id, "a/mnt"), Err(Errno::NOENT));
        symlink("renamed", trees.path("clone/a")).expect("a link");
        symlink("renamed/mnt", trees.path("clone/link")).expect("a link");
        for path in ["a/mnt", "link"] {
            assert_eq!(trees.copy(id, path), Err(Errno::LOOP), "{path}");
        }
        for path in ["../clone/renamed/mnt", "/renamed/mnt"] {
            assert_eq!(trees.copy(id, path), Err(Errno::XDEV), "{path}");
        }
        for path in ["", "..", "renamed/mnt/.."] {
            assert_eq!(trees.copy(id, path), Err(Errno::INVAL), "{path}");
        }
        // Another mount, and none.
        let other = trees.mount("clone/b/mnt");
        for path in ["b/mnt", "mnt"] {
            assert_eq!(trees.copy(id, path), Ok(false), "{path}");
        }
        // A mount that is on another one.
        trees.mount("clone/b");
        fs::create_dir(trees.path("clone/b/mnt")).expect("makes");
        let below_other = trees.mount("clone/b/mnt");
        for id in [other, below_other] {
            assert_eq!(trees.copy(id, "b/mnt"), Err(Errno::XDEV));
        }
        assert_eq!(fs::read_dir(trees.path("fuse/place")).expect("there").count(), 0);
        assert_eq!(trees.copy(id, "renamed/mnt"), Ok(true));
    });
}

#[test]
fn no_link_and_no_other_mount_is_followed_to_the_place() {
    in_own_namespace(|trees| {
        let id = trees.mount("clone/a/mnt");
        // An absolute link and a relative one, out of the filesystem.
        fs::create_dir_all(trees.path("outside/mnt")).expect("makes");
        for target in [trees.path("outside"), PathBuf::from("../outside")] {
            fs::remove_dir_all(trees.path("fuse/a")).expect("removes");
            symlink(target, trees.path("fuse/a")).expect("a link");
            assert_eq!(trees.carry_over(id, "a/mnt"), Err(Errno::LOOP));
            fs::remove_file(trees.path("fuse/a")).expect("removes");
            fs::create_dir(trees.path("fuse/a")).expect("makes");
        }
        symlink(trees.path("outside/mnt"), trees.path("fuse/a/mnt")).expect("a link");
        assert_eq!(trees.carry_over(id, "a/mnt"), Err(Errno::LOOP));
        fs::remove_file(trees.path("fuse/a/mnt")).expect("removes");
        mount_bind(trees.path("outside"), trees.path("fuse/a")).expect("mounts");
        assert_eq!(trees.carry_over(id, "a/mnt"), Err(Errno::XDEV));
        for path in ["../outside/mnt", "a/../../outside/mnt", "/a/mnt"] {
            assert_eq!(below(trees.root("fuse"), Path::new(path)).err(), Some(Errno::XDEV), "{path}");
        }
        assert_eq!(fs::read_dir(trees.path("outside/mnt")).expect("there").count(), 0);
    });
}

#[test]
fn a_place_that_was_found_stays_the_place() {
    in_own_namespace(|trees| {
        let id = trees.mount("clone/a/mnt");
        fs::create_dir_all(trees.path("outside/mnt")).expect("makes");
        let place = below(trees.root("fuse"), Path::new("a/mnt")).expect("a directory");
        fs::rename(trees.path("fuse/a"), trees.path("fuse/renamed")).expect("renames");
        symlink(trees.path("outside"), trees.path("fuse/a")).expect("a link");
        assert_eq!(attach_copy(id, trees.root("clone"), Path::new("a/mnt"), place), Ok(true));
        assert!(trees.path("fuse/renamed/mnt/in").exists());
        assert!(!trees.path("outside/mnt/in").exists());
    });
}

#[test]
fn a_fuse_filesystem_of_a_user_is_copied_without_access_to_it() {
    in_own_namespace(|trees| {
        let device = match open(c"/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
            Ok(device) => device,
            Err(error) => return eprintln!("skipped: no /dev/fuse here ({error})"),
        };
        // Nobody serves it, and without allow_other it isn't root's.
        let options = format!("fd={},rootmode=40000,user_id=1000,group_id=1000\0", device.as_raw_fd());
        let options = std::ffi::CStr::from_bytes_with_nul(options.as_bytes()).expect("one NUL");
        let at = trees.path("clone/a/mnt");
        mount(c"user", &at, c"fuse", MountFlags::NOSUID | MountFlags::NODEV, Some(options)).expect("mounts");
        assert_eq!(fs::metadata(&at).expect_err("refused").raw_os_error(), Some(libc::EACCES));
        assert_eq!(trees.carry_over(number(&at), "a/mnt"), Ok(true));
        let refused = fs::metadata(trees.path("fuse/a/mnt")).expect_err("refused");
        assert_eq!(refused.raw_os_error(), Some(libc::EACCES));
    });
}
