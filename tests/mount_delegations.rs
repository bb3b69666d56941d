//! Delegations of mounts by NFSv4.2, on the wire: files that are read again cause no call, by our server and
//! the kernel's, until a local process of the server's host changes them.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use samehost_tests::qemu::{self, Job};
use samehost_tests::{Mount, Netns, Scratch, Serve, need_root, run_ok, wait_for};

const FILES: usize = 20;

/// Under emulation a guest boots in some seconds.
const GUEST_TIMEOUT: Duration = Duration::from_secs(180);

/// The kernel breaks a lease that isn't returned after 45 s (`/proc/sys/fs/lease-break-time`).
const LEASE_BREAK_TIME: Duration = Duration::from_secs(45);

/// Attributes are believed for a short time.
const OPTIONS: &str = "vers=4.2,lane=off,acregmin=1,acregmax=1";

/// Longer than attributes are believed.
const LONGER: Duration = Duration::from_secs(2);

fn name(number: usize) -> String {
    format!("file-{number}")
}

fn calls(mount: &Mount) -> u64 {
    let status = mount.status().expect("the mount answers");
    status["wire"]["round_trips"].as_u64().expect("a number")
}

/// Reads all files, and says how many calls that took.
fn read_all(mount: &Mount, expected: impl Fn(usize) -> String) -> u64 {
    let before = calls(mount);
    for number in 0..FILES {
        assert_eq!(fs::read_to_string(mount.join(name(number))).expect("read"), expected(number));
    }
    calls(mount) - before
}

/// Reads all files until that takes no call, because what the first readings have opened is closed in the
/// background, and then for a time.
fn wait_for_reading_without_calls(mount: &Mount, expected: impl Fn(usize) -> String) {
    assert!(read_all(mount, &expected) >= FILES as u64, "each file is opened once");
    wait_for("files to be read without a call", || (read_all(mount, &expected) == 0).then_some(()));
    let started = Instant::now();
    while started.elapsed() < LONGER {
        assert_eq!(read_all(mount, &expected), 0);
    }
}

fn create_files(directory: &Path) {
    for number in 0..FILES {
        fs::write(directory.join(name(number)), name(number)).expect("written");
    }
}

#[test]
fn files_that_are_read_again_cause_no_call() {
    need_root();
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    create_files(&export);
    let server = Serve::openly(&export).start();
    let mount = Mount::new(&server, &export, OPTIONS);
    wait_for_reading_without_calls(&mount, name);
    // A local process recalls one. It is open at the server's, too, while it is read here.
    let reader = fs::File::open(mount.join(name(3))).expect("opened");
    fs::write(export.join(name(3)), "by a local process").expect("written");
    let changed = |number| if number == 3 { "by a local process".to_owned() } else { name(number) };
    assert!(read_all(&mount, changed) > 0, "the changed file is opened at the server");
    fs::remove_file(export.join(name(3))).expect("removed");
    assert_eq!(std::io::read_to_string(reader).expect("the open file is read"), "by a local process");
    // Without delegations each file costs calls.
    let other = Mount::new(&server, &export, &format!("{OPTIONS},nodelegations"));
    fs::write(export.join(name(3)), name(3)).expect("written");
    for _ in 0..3 {
        assert!(read_all(&other, name) >= FILES as u64);
    }
}

/// The kernel's server delegates files to our mount, and a process in the guest changes one of them.
#[test]
fn delegations_of_knfsd_are_used_and_recalled() {
    need_root();
    let scratch = Scratch::new();
    let netns = Netns::new("deleg");
    let mount = Mount::unmounted_with(&scratch.mkdir("empty"));
    let job = Job { nfs_port: 0, mount_port: 0, anon_uid: 0, plan: include_str!("guest/knfsd.sh") };
    let (mut at, mut asked) = (0, Instant::now());
    let report = qemu::boot_knfsd(&job, &netns, GUEST_TIMEOUT, |said| {
        at += 1;
        match at {
            1 => {
                // knfsd delegates nothing until lockd's grace period has ended, too.
                let end_grace = "echo Y >/proc/fs/lockd/nlm_end_grace; echo Y >/proc/fs/nfsd/v4_end_grace";
                let make = "cd /srv/directory && for i in $(seq 0 19); do printf file-$i >file-$i; done";
                return format!("run {end_grace}; {make}");
            }
            2 => {
                assert_eq!(said, "ran");
                let command = mount.command("nfs://127.0.0.1/srv/directory", OPTIONS);
                run_ok(&mut netns.inside(&command));
                wait_for_reading_without_calls(&mount, name);
                asked = Instant::now();
                return "run printf changed >/srv/directory/file-3".to_owned();
            }
            _ => {}
        }
        assert_eq!(said, "ran");
        assert!(asked.elapsed() < LEASE_BREAK_TIME / 2, "the mount has returned the delegation");
        let changed = |number| if number == 3 { "changed".to_owned() } else { name(number) };
        assert!(read_all(&mount, changed) > 0);
        // knfsd recalls delegations for the holder's own removals and renames, too.
        let started = Instant::now();
        fs::rename(mount.join(name(4)), mount.join(name(5))).expect("renamed");
        fs::remove_file(mount.join(name(6))).expect("removed");
        assert!(started.elapsed() < LEASE_BREAK_TIME / 2);
        assert_eq!(fs::read_to_string(mount.join(name(5))).expect("read"), name(4));
        mount.unmount();
        "ok".to_owned()
    });
    println!("knfsd {}", report.kernel);
    report.assert_passed(7);
}
