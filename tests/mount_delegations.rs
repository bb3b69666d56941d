//! Delegations of mounts by NFSv4.2, on the wire: files that are read again, or opened for writing and locked
//! again, cause no call, by our server and the kernel's, until a local process of the server's host or
//! another client wants them. nfs-ganesha delegates nothing.

use std::cell::Cell;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;
use samehost_tests::ganesha::Ganesha;
use samehost_tests::knfsd::Knfsd;
use samehost_tests::{Mount, Netns, Scratch, Serve, need_root, run_ok, wait_for};

const FILES: usize = 20;

/// How often a file is opened for writing before that is to cause no call.
const USES: usize = 10;

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

/// Reads all files until that takes no call for a time. What the first readings have opened is closed in the
/// background, and later.
fn wait_for_reading_without_calls(mount: &Mount, expected: impl Fn(usize) -> String) {
    assert!(read_all(mount, &expected) >= FILES as u64, "each file is opened once");
    wait_for("files to be read without a call", || {
        let started = Instant::now();
        while started.elapsed() < LONGER {
            if read_all(mount, &expected) > 0 {
                return None;
            }
        }
        Some(())
    });
}

/// Opens a file for writing and locks it, again and again, and says how many calls that took in the end. What
/// happens beside it, such as a renewal of the lease or the CLOSE of an earlier open, takes some at times.
fn use_for_writing(path: &Path, mount: &Mount) -> u64 {
    let uses = |_| {
        let before = calls(mount);
        for _ in 0..USES {
            let file = fs::File::options().read(true).write(true).open(path).expect("opened");
            fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).expect("locked");
            fcntl_lock(&file, FlockOperation::Unlock).expect("unlocked");
        }
        calls(mount) - before
    };
    (0..4).map(uses).min().unwrap_or_default()
}

/// A file that one mount writes and locks, under a write delegation, is read, locked and written on
/// another mount. Returns how many calls the first one's uses took.
fn write_on_two_mounts(one: &Mount, two: &Mount, file: &str) -> u64 {
    fs::write(one.join(file), "0123456789").expect("written");
    let calls = use_for_writing(&one.join(file), one);
    let open = |mount: &Mount| {
        fs::File::options().read(true).write(true).open(mount.join(file)).expect("the file is there")
    };
    let mut first = open(one);
    fcntl_lock(&first, FlockOperation::NonBlockingLockExclusive).expect("locked");
    first.write_all(b"one").expect("written");
    // The other's open takes the delegation back, and with it the data. Without one it comes soon.
    let read = || fs::read_to_string(two.join(file)).expect("read");
    let asked = Instant::now();
    if calls == 0 {
        assert_eq!(read(), "one3456789");
    } else {
        wait_for("the data", || (read() == "one3456789").then_some(()));
    }
    let mut second = open(two);
    let locked = fcntl_lock(&second, FlockOperation::NonBlockingLockExclusive);
    assert_eq!(locked, Err(Errno::AGAIN), "the lock is the server's now");
    first.write_all(b"more").expect("written");
    fcntl_lock(&first, FlockOperation::Unlock).expect("unlocked");
    wait_for("the lock", || fcntl_lock(&second, FlockOperation::NonBlockingLockExclusive).ok());
    assert_eq!(read(), "onemore789", "what was written before the lock was given back");
    second.write_all(b"two").expect("written");
    fcntl_lock(&second, FlockOperation::Unlock).expect("unlocked");
    assert!(asked.elapsed() < LEASE_BREAK_TIME / 2, "the mount has returned the delegation");
    drop((first, second));
    for mount in [one, two] {
        assert_eq!(fs::read_to_string(mount.join(file)).expect("read"), "twomore789");
    }
    calls
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

/// The attributes in the reply that delegates a file are true as long as it is delegated.
#[test]
fn a_delegated_file_is_opened_again_without_a_call() {
    need_root();
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    create_files(&export);
    let server = Serve::openly(&export).start();
    let mount = Mount::new(&server, &export, "vers=4.2,lane=off,acregmin=600,acregmax=600");
    // Without fstat(2), which would ask for the time of the first reading.
    let read_all = || {
        for number in 0..FILES {
            let mut buffer = [0; 64];
            let count = fs::File::open(mount.join(name(number))).expect("opened").read(&mut buffer);
            assert_eq!(&buffer[..count.expect("read")], name(number).as_bytes());
        }
        calls(&mount)
    };
    assert!(read_all() >= FILES as u64, "each file is opened once");
    let before = Cell::new(calls(&mount));
    wait_for("the CLOSEs of the first reading", || {
        std::thread::sleep(LONGER / 4);
        (before.replace(calls(&mount)) == calls(&mount)).then_some(())
    });
    let again = read_all() - before.get();
    assert!(again < FILES as u64 / 2, "{again} calls: more than the CLOSEs of the second reading");
}

/// The kernel's server delegates files to our mount, and a process in the guest changes one of them.
#[test]
fn delegations_of_knfsd_are_used_and_recalled() {
    need_root();
    let scratch = Scratch::new();
    let netns = Netns::new("deleg");
    let mount = Mount::unmounted_with(&scratch.mkdir("empty"));
    let other = Mount::unmounted_with(&scratch.mkdir("other"));
    Knfsd::with(&netns, GUEST_TIMEOUT, |knfsd| {
        knfsd.run("cd /srv/directory && for i in $(seq 0 19); do printf file-$i >file-$i; done");
        run_ok(&mut netns.inside(&mount.command(Knfsd::URL, OPTIONS)));
        wait_for_reading_without_calls(&mount, name);
        let asked = Instant::now();
        knfsd.run("printf changed >/srv/directory/file-3");
        assert!(asked.elapsed() < LEASE_BREAK_TIME / 2, "the mount has returned the delegation");
        assert_eq!(use_for_writing(&mount.join(name(7)), &mount), 0, "calls of a writer");
        let mut file = fs::File::options().read(true).write(true).open(mount.join(name(7))).expect("opened");
        fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).expect("locked");
        file.write_all(b"waits").expect("written");
        let asked = Instant::now();
        let wait = "for i in $(seq 100); do grep -q waits $f && exit 0; sleep 0.1; done; false";
        knfsd.run(&format!("f=/srv/directory/{}; {wait}", name(7)));
        assert!(asked.elapsed() < LEASE_BREAK_TIME / 2, "the mount has returned the delegation");
        drop(file);
        let changed = |number| match number {
            3 => "changed".to_owned(),
            7 => "waits7".to_owned(),
            number => name(number),
        };
        assert!(read_all(&mount, changed) > 0);
        // knfsd recalls delegations for the holder's own removals and renames, too.
        let started = Instant::now();
        fs::rename(mount.join(name(4)), mount.join(name(5))).expect("renamed");
        fs::remove_file(mount.join(name(6))).expect("removed");
        assert!(started.elapsed() < LEASE_BREAK_TIME / 2);
        assert_eq!(fs::read_to_string(mount.join(name(5))).expect("read"), name(4));
        run_ok(&mut netns.inside(&other.command(Knfsd::URL, OPTIONS)));
        assert_eq!(write_on_two_mounts(&mount, &other, "of-two"), 0, "calls of a writer");
        other.unmount();
        mount.unmount();
    });
}

/// Our server's write delegation is recalled for another client.
#[test]
fn a_second_mount_recalls_a_write_delegation() {
    need_root();
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    let server = Serve::openly(&export).start();
    let [one, two] = [(); 2].map(|()| Mount::new(&server, &export, OPTIONS));
    assert_eq!(write_on_two_mounts(&one, &two, "of-two"), 0, "a write delegation");
}

/// nfs-ganesha with its filesystem module for local filesystems (FSAL_VFS) delegates nothing, also where the
/// configuration allows it. Every open costs calls, and two mounts see each other's data as by close-to-open
/// consistency and locks.
#[test]
fn ganesha_delegates_nothing() {
    need_root();
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    let netns = Netns::new("gdeleg");
    let _ganesha = Ganesha::start_with_delegations(&netns, &export);
    create_files(&export);
    let url = format!("nfs://127.0.0.1:{}{}", Ganesha::NFS_PORT, Ganesha::PSEUDO);
    let [one, two] = ["one", "two"].map(|name| {
        let mount = Mount::unmounted_with(&scratch.mkdir(name));
        run_ok(&mut netns.inside(&mount.command(&url, OPTIONS)));
        mount
    });
    for _ in 0..3 {
        assert!(read_all(&one, name) >= FILES as u64);
    }
    assert!(write_on_two_mounts(&one, &two, "of-two") > 0);
}
