//! Random sequences of file operations on a mounted share, compared with a local directory: over the wire,
//! over the lane, and while the mount is switched between them.
//!
//! `SAMEHOST_RANDOM_OPS` is the total number of operations (8,000 if not set, 100,000 for a release),
//! `SAMEHOST_RANDOM_SEED` the first seed.

mod random;

use samehost_tests::{Mount, Scratch, Serve, need_root};

/// Operations in one sequence: short enough that a failing sequence can be analysed.
const SEQUENCE: usize = 1_000;

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Runs a quarter of all operations: there are four kinds of mounts.
fn run_sequences(options: &str, switching: bool) {
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
                100 if switching => mount.set_lane("off"),
                0 if switching => mount.set_lane("auto"),
                _ => {}
            }
        });
    }
    println!("{options}: {} operations alike, {done} of them no errors", all / 4);
    assert!(done * 3 > all / 4, "most operations fail: the comparison proves little");
}

#[test]
fn a_mount_over_the_wire_is_like_a_local_directory() {
    run_sequences("lane=off", false);
}

#[test]
fn a_mount_over_the_lane_is_like_a_local_directory() {
    run_sequences("lane=required", false);
}

#[test]
fn a_mount_over_the_lane_without_passthrough_is_like_a_local_directory() {
    run_sequences("lane=required,nopassthrough", false);
}

#[test]
fn a_mount_that_changes_data_paths_is_like_a_local_directory() {
    run_sequences("lane=auto", true);
}

/// Validates the comparison itself with two local directories.
#[test]
fn two_local_directories_are_alike() {
    let scratch = Scratch::in_memory();
    for seed in 1..=5 {
        let (one, two) = (scratch.mkdir(&format!("one-{seed}")), scratch.mkdir(&format!("two-{seed}")));
        random::compare(seed, SEQUENCE, (&one, &one, &two), |_| {});
    }
}
