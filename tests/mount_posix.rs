//! POSIX rules on a mounted share: by wire, by the lane with passthrough, and by the lane with the mount
//! process in between. The same checks are run on local directories first: a rule that the kernel's own
//! filesystems don't keep is no rule.
//!
//! `SAMEHOST_POSIX_ONLY=word` runs only the checks with that word in their names.

mod posix;

use posix::Place;
use samehost_tests::{Mount, Scratch, Serve, need_root};

fn check(place: &Place, at_least: usize) {
    let (count, failed) = posix::run_all(place);
    assert!(failed.is_empty(), "{} of {count} rules are broken:\n{}", failed.len(), failed.join("\n"));
    let partly = std::env::var_os("SAMEHOST_POSIX_ONLY").is_some();
    assert!(partly || count >= at_least, "{count} checks");
}

const ALL: usize = 125;

#[test]
fn rules_are_kept_by_tmpfs() {
    need_root();
    let scratch = Scratch::in_memory();
    check(&Place::new(scratch.path(), true), ALL);
}

#[test]
fn rules_are_kept_by_the_machines_own_filesystem() {
    need_root();
    let scratch = Scratch::new();
    check(&Place::new(scratch.path(), true), ALL);
}

fn on_a_mount(options: &str) {
    need_root();
    let scratch = Scratch::in_memory();
    let server = Serve::openly(&scratch.mkdir("export")).start();
    let mounted = Mount::new(&server, &scratch.join("export"), options);
    check(&Place::new(mounted.path(), false), ALL);
}

#[test]
fn rules_are_kept_over_the_wire() {
    on_a_mount("lane=off");
}

#[test]
fn rules_are_kept_over_the_lane_with_passthrough() {
    on_a_mount("lane=required");
}

#[test]
fn rules_are_kept_over_the_lane_by_the_mount_process() {
    on_a_mount("lane=required,nopassthrough");
}

#[test]
fn rules_are_kept_without_caches() {
    on_a_mount("lane=off,noac,lookupcache=none");
}
