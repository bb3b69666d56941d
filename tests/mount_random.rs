//! Random sequences of file operations on a mounted share, compared with a local directory: by wire, by the
//! lane, and while the mount is switched between them.
//!
//! `SAMEHOST_RANDOM_OPS` operations in all (a seeded few thousand if not set, 100,000 for a release), from
//! `SAMEHOST_RANDOM_SEED` on.

mod random;

use samehost_tests::{Mount, Scratch, Serve, need_root};

/// Operations in one sequence: a sequence that has gone wrong is to be looked at.
const SEQUENCE: usize = 1_000;

fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

/// A quarter of all: there are four kinds of mounts.
fn sequences(options: &str, switching: bool) {
    need_root();
    let all = from_environment("SAMEHOST_RANDOM_OPS", 8_000) as usize;
    let first = from_environment("SAMEHOST_RANDOM_SEED", 1);
    let scratch = Scratch::in_memory();
    let export = scratch.mkdir("export");
    let server = Serve::openly(&export).start();
    let mount = Mount::new(&server, &export, options);
    let mut done = 0;
    for (number, start) in (0..all / 4).step_by(SEQUENCE).enumerate() {
        let seed = first + number as u64;
        let count = SEQUENCE.min(all / 4 - start);
        let name = format!("seed-{seed}");
        let local = scratch.mkdir(&format!("local-{seed}"));
        std::fs::create_dir(mount.join(&name)).expect("a directory on the mount");
        done += random::compare(seed, count, (&mount.join(&name), &export.join(&name), &local), |number| {
            match number % 200 {
                100 if switching => mount.lane("off"),
                0 if switching => mount.lane("auto"),
                _ => {}
            }
        });
    }
    println!("{options}: {} operations alike, {done} of them no errors", all / 4);
    assert!(done * 3 > all / 4, "a sequence of errors tells little");
}

#[test]
fn a_mount_by_wire_is_like_a_local_directory() {
    sequences("lane=off", false);
}

#[test]
fn a_mount_by_lane_is_like_a_local_directory() {
    sequences("lane=required", false);
}

#[test]
fn a_mount_by_lane_without_passthrough_is_like_a_local_directory() {
    sequences("lane=required,nopassthrough", false);
}

#[test]
fn a_mount_that_changes_roads_is_like_a_local_directory() {
    sequences("lane=auto", true);
}

/// What the comparison is worth: two local directories are alike.
#[test]
fn a_local_directory_is_like_another() {
    let scratch = Scratch::in_memory();
    for seed in 1..=5 {
        let (one, two) = (scratch.mkdir(&format!("one-{seed}")), scratch.mkdir(&format!("two-{seed}")));
        random::compare(seed, SEQUENCE, (&one, &one, &two), |_| {});
    }
}
