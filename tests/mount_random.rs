//! Random sequences of file operations on a mounted share, compared with a local directory: over the wire,
//! over the lane with a tree and without, while the mount is switched between them, and while the server is
//! killed and restarted.
//!
//! `SAMEHOST_RANDOM_OPS` is the total number of operations (8,000 if not set, 100,000 for a release),
//! `SAMEHOST_RANDOM_SEED` the first seed.

mod random;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use samehost_tests::{Mount, Scratch, Serve, Server, need_root};

/// Operations in one sequence: short enough that a failing sequence can be analysed.
const SEQUENCE: usize = 1_000;

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// What happens to the mount during the operations.
#[derive(Clone, Copy, PartialEq)]
enum Disturbance {
    None,
    /// The lane is switched off and on.
    Switches,
    /// The server is killed every second and restarted.
    Kills,
}

/// Runs a fifth of all operations: there are five kinds of mounts.
fn run_sequences(options: &str, lane: &str, disturbance: Disturbance) {
    need_root();
    let all = from_environment("SAMEHOST_RANDOM_OPS", 8_000) as usize;
    let first = from_environment("SAMEHOST_RANDOM_SEED", 1);
    let scratch = Scratch::in_memory();
    let export = scratch.mkdir("export");
    let mut server = Serve::openly(&export).arguments(["--lane", lane]).start();
    let mount = Mount::new(&server, &export, options);
    let has_tree = lane == "on" && options != "lane=off";
    assert_eq!(mount.status().expect("a mount")["tree"], has_tree, "{options}");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        if disturbance == Disturbance::Kills {
            scope.spawn(|| kill_every_second(&mut server, &is_over));
        }
        let _over = SetOnDrop(&is_over);
        compare_all(options, all / 5, first, disturbance, (&scratch, &export, &mount));
    });
}

/// Sets a flag, also when a test fails.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

fn kill_every_second(server: &mut Server, is_over: &AtomicBool) {
    while !is_over.load(SeqCst) {
        std::thread::sleep(Duration::from_secs(1));
        server.kill();
        server.restart();
    }
}

fn compare_all(
    options: &str,
    all: usize,
    first: u64,
    disturbance: Disturbance,
    (scratch, export, mount): (&Scratch, &Path, &Mount),
) {
    let mut done = 0;
    for (number, start) in (0..all).step_by(SEQUENCE).enumerate() {
        let seed = first + number as u64;
        let count = SEQUENCE.min(all - start);
        let name = format!("seed-{seed}");
        let local = scratch.mkdir(&format!("local-{seed}"));
        std::fs::create_dir(mount.join(&name)).expect("a directory on the mount");
        done += random::compare(seed, count, (&mount.join(&name), &export.join(&name), &local), |number| {
            match number % 200 {
                100 if disturbance == Disturbance::Switches => mount.set_lane("off"),
                0 if disturbance == Disturbance::Switches => mount.set_lane("auto"),
                _ => {}
            }
        });
    }
    println!("{options}: {all} operations alike, {done} of them no errors");
    assert!(done * 3 > all, "most operations fail: the comparison proves little");
}

#[test]
fn a_mount_over_the_wire_is_like_a_local_directory() {
    run_sequences("lane=off", "on", Disturbance::None);
}

#[test]
fn a_mount_with_a_tree_is_like_a_local_directory() {
    run_sequences("lane=required", "on", Disturbance::None);
}

#[test]
fn a_mount_over_the_lane_without_passthrough_is_like_a_local_directory() {
    run_sequences("lane=required,nopassthrough", "files", Disturbance::None);
}

#[test]
fn a_mount_that_changes_data_paths_is_like_a_local_directory() {
    run_sequences("lane=auto", "on", Disturbance::Switches);
}

#[test]
fn a_mount_whose_server_is_killed_every_second_is_like_a_local_directory() {
    run_sequences("lane=auto", "on", Disturbance::Kills);
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
