//! Random sequences of file operations on a mounted share, compared with a local directory: over each data
//! path, while the lane is switched off and on, and while the server is killed and restarted.
//!
//! `SAMEHOST_RANDOM_OPS` is the total number of operations (20,000 if not set, 400,000 for a release),
//! `SAMEHOST_RANDOM_SEED` the first seed.

mod random;

use rustix::process::{Pid, Signal, kill_process};
use samehost_tests::samehost::status_in;
use samehost_tests::{DataPath, Scratch, Server, need_root, test_each_data_path, wait_for};
use std::path::Path;

/// Operations in one sequence: short enough that a failing sequence can be analysed.
const SEQUENCE: usize = 1_000;

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// What happens to the mount in every 200 operations.
#[derive(Clone, Copy, PartialEq)]
enum Disturbance {
    None,
    /// The lane is switched off, and on again 100 operations later.
    Switches,
    /// The server is killed, and started again while the operations continue.
    Kills,
}

/// The disturbances that each of [`disturbed_paths`] is tested with.
const DISTURBANCES: [Disturbance; 2] = [Disturbance::Switches, Disturbance::Kills];

/// All data paths but the export's own mount: a file that is open on the FUSE filesystem when that mount is
/// attached, and then removed through it, is lost with the lane (docs/mount.md). tests/mount_grants.rs has
/// the changes of that one.
fn disturbed_paths() -> impl Iterator<Item = DataPath> {
    DataPath::all().filter(|path| !path.is_local_filesystem())
}

/// The number of data paths, with a disturbance and without, that share the operations.
fn runs() -> usize {
    DataPath::all().count() + DISTURBANCES.len() * disturbed_paths().count()
}

fn run_sequences(path: &DataPath, disturbance: Disturbance) {
    need_root();
    let all = from_environment("SAMEHOST_RANDOM_OPS", 20_000) as usize;
    let first = from_environment("SAMEHOST_RANDOM_SEED", 1);
    let scratch = Scratch::in_memory();
    let export = scratch.mkdir("export");
    let mut serve = path.serve(&export);
    if disturbance == Disturbance::Kills {
        serve = serve.through(SUPERVISOR);
    }
    let mut server = serve.start();
    if disturbance == Disturbance::Kills {
        // From now on it has a fixed port.
        server.restart();
    }
    let Some(mount) = path.mount(&server, &export, "") else { return };
    if disturbance != Disturbance::None && path.has_lane() {
        // With `required` opens fail while there is no lane.
        mount.set_lane("auto");
    }
    let disturb = |number| match (disturbance, number % 200) {
        (Disturbance::Switches, 100) => mount.set_lane("off"),
        (Disturbance::Switches, 0) => mount.set_lane("auto"),
        (Disturbance::Kills, 100) => kill_supervised(&server),
        _ => {}
    };
    compare_all(path.name, all / runs(), first, disturb, (&scratch, &export, mount.path()));
}

/// Starts a server again whenever it ends. This process can't: a child has its open files until it executes
/// its program. Then it closes those on the mounts, and waits for their servers, one of which it is to
/// become.
const SUPERVISOR: [&str; 4] = ["sh", "-c", "while :; do setpriv --pdeathsig KILL \"$@\"; done", "sh"];

/// Waits until the server is up, and kills it.
fn kill_supervised(server: &Server) {
    let status = wait_for("the server", || status_in(server.run_dir()));
    let pid = status.json()["pid"].as_i64().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    kill_process(pid.expect("a process id"), Signal::KILL).expect("it runs");
}

fn compare_all(
    path: &str,
    all: usize,
    first: u64,
    disturb: impl Fn(usize),
    (scratch, export, mount): (&Scratch, &Path, &Path),
) {
    let mut done = 0;
    for (number, start) in (0..all).step_by(SEQUENCE).enumerate() {
        let seed = first + number as u64;
        let count = SEQUENCE.min(all - start);
        let name = format!("seed-{seed}");
        let local = scratch.mkdir(&format!("local-{seed}"));
        std::fs::create_dir(mount.join(&name)).expect("a directory on the mount");
        done += random::compare(seed, count, (&mount.join(&name), &export.join(&name), &local), &disturb);
    }
    println!("{path}: {all} operations alike, {done} of them no errors");
    assert!(done * 3 > all, "most operations fail: the comparison proves little");
}

fn a_mount_is_like_a_local_directory(path: &DataPath) {
    run_sequences(path, Disturbance::None);
}

test_each_data_path!(over, a_mount_is_like_a_local_directory);

fn run_all_disturbed(disturbance: Disturbance) {
    assert!(DISTURBANCES.contains(&disturbance));
    for path in disturbed_paths() {
        run_sequences(&path, disturbance);
    }
}

#[test]
fn mounts_whose_lane_is_switched_off_and_on_are_like_a_local_directory() {
    run_all_disturbed(Disturbance::Switches);
}

#[test]
fn mounts_whose_server_is_killed_and_restarted_are_like_a_local_directory() {
    run_all_disturbed(Disturbance::Kills);
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
