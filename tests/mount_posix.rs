//! POSIX rules on a mounted share: over the wire, over the lane with passthrough, and over the lane through
//! the mount's process; with the kernel's requests by /dev/fuse, and over io_uring. The same checks run on
//! local directories first: a rule that the kernel's own filesystems break isn't one.
//!
//! `SAMEHOST_POSIX_ONLY=word` runs only the checks with that word in their names.

mod posix;

use std::path::Path;

use posix::TestDir;
use samehost_tests::{Mount, Scratch, Serve, Server, need_root};

fn check(base: &TestDir, min: usize) {
    let (count, failed) = posix::run_all(base);
    assert!(failed.is_empty(), "{} of {count} rules are broken:\n{}", failed.len(), failed.join("\n"));
    let is_filtered = std::env::var_os("SAMEHOST_POSIX_ONLY").is_some();
    assert!(is_filtered || count >= min, "{count} checks");
}

const CHECKS: usize = 125;

#[test]
fn tmpfs_keeps_the_rules() {
    need_root();
    let scratch = Scratch::in_memory();
    check(&TestDir::new(scratch.path(), true), CHECKS);
}

#[test]
fn the_machines_own_filesystem_keeps_the_rules() {
    need_root();
    let scratch = Scratch::new();
    check(&TestDir::new(scratch.path(), true), CHECKS);
}

fn check_mount(options: &str) {
    check_share(|server, export| Some(Mount::new(server, export, &format!("{options},uring=off"))));
}

fn check_mount_over_uring(options: &str) {
    check_share(|server, export| Mount::over_uring(server, export, options));
}

fn check_share(mount: impl Fn(&Server, &Path) -> Option<Mount>) {
    need_root();
    let scratch = Scratch::in_memory();
    let server = Serve::openly(&scratch.mkdir("export")).start();
    if let Some(mounted) = mount(&server, &scratch.join("export")) {
        check(&TestDir::new(mounted.path(), false), CHECKS);
    }
}

#[test]
fn a_mount_over_the_wire_keeps_the_rules() {
    check_mount("lane=off");
}

#[test]
fn a_mount_by_nfs_4_2_keeps_the_rules() {
    check_mount("lane=off,vers=4.2");
}

#[test]
fn a_mount_by_nfs_4_1_without_caches_keeps_the_rules() {
    check_mount("lane=off,vers=4.1,noac,lookupcache=none");
}

#[test]
fn a_mount_by_nfs_4_2_with_passthrough_keeps_the_rules() {
    check_mount("lane=required,vers=4.2");
}

#[test]
fn a_mount_with_passthrough_keeps_the_rules() {
    check_mount("lane=required");
}

#[test]
fn a_mount_over_the_lane_without_passthrough_keeps_the_rules() {
    check_mount("lane=required,nopassthrough");
}

#[test]
fn a_mount_without_caches_keeps_the_rules() {
    check_mount("lane=off,noac,lookupcache=none");
}

#[test]
fn a_mount_over_io_uring_keeps_the_rules() {
    check_mount_over_uring("lane=required");
}

#[test]
fn a_mount_over_io_uring_without_caches_keeps_the_rules() {
    check_mount_over_uring("lane=off,noac,lookupcache=none");
}
