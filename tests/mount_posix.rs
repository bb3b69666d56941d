//! POSIX rules on a mounted share, over each data path, by NFSv4, and without the mount's caches. The same
//! checks run on local directories first: a rule that the kernel's own filesystems break isn't one.
//!
//! `SAMEHOST_POSIX_ONLY=word` runs only the checks with that word in their names.

mod posix;

use posix::TestDir;
use samehost_tests::{DataPath, Mount, Scratch, Serve, need_root, test_each_data_path};

fn check(base: &TestDir) {
    const CHECKS: usize = 125;
    let (count, failed) = posix::run_all(base);
    assert!(failed.is_empty(), "{} of {count} rules are broken:\n{}", failed.len(), failed.join("\n"));
    let is_filtered = std::env::var_os("SAMEHOST_POSIX_ONLY").is_some();
    assert!(is_filtered || count >= CHECKS, "{count} checks");
}

#[test]
fn tmpfs_keeps_the_rules() {
    need_root();
    let scratch = Scratch::in_memory();
    check(&TestDir::new(scratch.path(), true));
}

#[test]
fn the_machines_own_filesystem_keeps_the_rules() {
    need_root();
    let scratch = Scratch::new();
    check(&TestDir::new(scratch.path(), true));
}

fn a_mount_keeps_the_rules(path: &DataPath) {
    need_root();
    let scratch = Scratch::in_memory();
    let export = scratch.mkdir("export");
    let server = path.serve(&export).start();
    if let Some(mount) = path.mount(&server, &export, "") {
        check(&TestDir::new(mount.path(), path.is_local_filesystem()));
    }
}

test_each_data_path!(over, a_mount_keeps_the_rules);

/// Checks mounts with other options, by /dev/fuse and, if `uring`, over io_uring.
fn check_options(options: &str, uring: bool) {
    need_root();
    let scratch = Scratch::in_memory();
    let export = scratch.mkdir("export");
    let server = Serve::openly(&export).start();
    let mount = Mount::new(&server, &export, &format!("{options},uring=off"));
    check(&TestDir::new(mount.path(), false).own("dev-fuse"));
    if uring && let Some(mount) = Mount::over_uring(&server, &export, options) {
        check(&TestDir::new(mount.path(), false).own("io-uring"));
    }
}

#[test]
fn a_mount_without_caches_keeps_the_rules() {
    check_options("lane=off,noac,lookupcache=none", true);
}

#[test]
fn a_mount_by_nfs_4_1_without_caches_keeps_the_rules() {
    check_options("lane=off,vers=4.1,noac,lookupcache=none", false);
}
