//! Delegations on a mount: what needs no request, and what others' changes do to cached data.

mod support;

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::time::Duration;

use client::{Operation, Version};
use rustix::fs::FlockOperation;
use samehost_mount::{AttributeTimes, MountOptions};
use support::{Mounted, Served, Transport, wait_for};

/// Reads a file, and its attributes without the birth time, which std::fs asks for.
fn read(path: &Path) -> Vec<u8> {
    let mut file = fs::File::open(path).unwrap();
    let mut data = vec![0; 64];
    let length = file.read(&mut data).unwrap();
    assert_eq!(rustix::fs::fstat(&file).unwrap().st_size, i64::try_from(length).unwrap());
    data.truncate(length);
    data
}

#[test]
fn a_delegated_file_is_read_again_without_a_request() {
    let served = Served::start();
    fs::write(served.export().join("file"), b"first").unwrap();
    // The names stay valid, and the attributes by the delegation only.
    let long = Duration::from_secs(3600);
    let attributes = AttributeTimes {
        on: true,
        file_min: Duration::from_millis(1),
        file_max: Duration::from_millis(1),
        directory_min: long,
        directory_max: long,
    };
    let options = MountOptions { attributes, ..MountOptions::default() };
    let by_v4 = |session: client::Options| session.version(Version::V4_2).delegations(true);
    let mounted = served.mount_adjusted(Transport::Wire, by_v4, options);
    let path = mounted.path("file");
    // The second fstat(2) asks for the access time that the first read has changed. The third LOOKUP asks for
    // the directory's list, and the kernel caches the name of the fourth.
    for _ in 0..4 {
        assert_eq!(read(&path), b"first");
    }
    let counters = || mounted.mount.session().counters();
    wait_for("the CLOSE", || counters().calls(Operation::Close) == counters().calls(Operation::Open));
    let before = Operation::ALL.iter().map(|operation| counters().calls(*operation)).sum::<u64>();
    for _ in 0..20 {
        assert_eq!(read(&path), b"first");
    }
    let after = Operation::ALL.iter().map(|operation| counters().calls(*operation)).sum::<u64>();
    assert_eq!(after, before);
    // A local process writes as soon as the delegation is returned.
    fs::write(served.export().join("file"), b"second").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"second");
    // The mount's own changes.
    fs::write(&path, b"third, and longer").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"third, and longer");
    assert_eq!(fs::read(served.export().join("file")).unwrap(), b"third, and longer");
}

/// A mount by NFSv4.2 on the wire, with or without delegations.
fn mount(served: &Served, delegations: bool) -> Mounted {
    let by_v4 = |session: client::Options| session.version(Version::V4_2).delegations(delegations);
    served.mount_adjusted(Transport::Wire, by_v4, MountOptions::default())
}

/// All requests of a mount.
fn requests(mounted: &Mounted) -> u64 {
    mounted.mount.session().counters().wire.round_trips
}

fn open(path: &Path) -> fs::File {
    fs::File::options().read(true).write(true).open(path).unwrap()
}

/// Opens the file for writing until that takes no request.
fn until_delegated(mounted: &Mounted, path: &Path) {
    wait_for("opens without a request", || {
        let before = requests(mounted);
        drop(open(path));
        requests(mounted) == before
    });
}

#[test]
fn a_file_that_is_written_again_is_opened_locked_and_told_without_a_request() {
    let served = Served::start();
    fs::write(served.export().join("file"), b"first").unwrap();
    let mounted = mount(&served, true);
    let path = mounted.path("file");
    until_delegated(&mounted, &path);
    wait_for("the CLOSEs", || {
        let before = requests(&mounted);
        std::thread::sleep(Duration::from_millis(100));
        requests(&mounted) == before
    });
    let mut before = requests(&mounted);
    for round in 0..20 {
        if round == 1 {
            // The first lock expired the attributes from before the delegation.
            before = requests(&mounted);
        }
        let (one, two) = (open(&path), open(&path));
        rustix::fs::flock(&one, FlockOperation::NonBlockingLockExclusive).unwrap();
        rustix::fs::flock(&two, FlockOperation::NonBlockingLockShared).unwrap_err();
        rustix::fs::flock(&one, FlockOperation::Unlock).unwrap();
        rustix::fs::flock(&two, FlockOperation::NonBlockingLockShared).unwrap();
        rustix::fs::flock(&two, FlockOperation::Unlock).unwrap();
        rustix::fs::fcntl_lock(&two, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert_eq!(rustix::fs::fstat(&two).unwrap().st_size, 5);
    }
    assert_eq!(requests(&mounted), before);
    // What is written is shown at once, and durable with close(2).
    let mut file = open(&path);
    file.write_all(b"second").unwrap();
    assert_eq!(rustix::fs::fstat(&file).unwrap().st_size, 6);
    drop(file);
    until_delegated(&mounted, &path);
    assert_eq!(fs::read(served.export().join("file")).unwrap(), b"second");
}

/// Another mount and a local process of the server's host want what this mount has written and locked.
#[test]
fn others_get_waiting_data_and_are_excluded_by_locks() {
    let served = Served::start();
    let (mounted, other) = (mount(&served, true), mount(&served, true));
    for (name, theirs) in [("local", served.export().join("local")), ("mount", other.path("mount"))] {
        let path = mounted.path(name);
        fs::write(&path, b"first").unwrap();
        until_delegated(&mounted, &path);
        let mut file = open(&path);
        rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        file.write_all(b"waiting data").unwrap();
        assert_eq!(fs::metadata(&theirs).unwrap().len(), if name == "mount" { 12 } else { 5 }, "{name}");
        let theirs = open(&theirs);
        assert_eq!(std::io::read_to_string(&theirs).unwrap(), "waiting data");
        rustix::fs::fcntl_lock(&theirs, FlockOperation::NonBlockingLockShared).unwrap_err();
        let waits = std::thread::spawn(move || {
            rustix::fs::fcntl_lock(&theirs, FlockOperation::LockExclusive).unwrap();
            theirs
        });
        file.write_all(b" and more").unwrap();
        rustix::fs::fcntl_lock(&file, FlockOperation::Unlock).unwrap();
        let mut theirs = waits.join().unwrap();
        let mut data = String::new();
        theirs.seek(SeekFrom::Start(0)).unwrap();
        theirs.read_to_string(&mut data).unwrap();
        assert_eq!(data, "waiting data and more");
        // And in the other direction.
        theirs.seek(SeekFrom::Start(0)).unwrap();
        theirs.write_all(b"theirs").unwrap();
        rustix::fs::fcntl_lock(&theirs, FlockOperation::Unlock).unwrap();
        rustix::fs::fcntl_lock(&file, FlockOperation::LockExclusive).unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        data.clear();
        file.read_to_string(&mut data).unwrap();
        assert_eq!(data, "theirsg data and more");
    }
}

/// A database that one mount uses.
#[test]
fn sqlite_on_one_mount_needs_few_requests() {
    let used = |delegations| {
        let served = Served::start();
        let mounted = mount(&served, delegations);
        let before = requests(&mounted);
        let script = "import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute('PRAGMA journal_mode=PERSIST')
db.execute('CREATE TABLE t (n INTEGER)')
for n in range(40):
    db.execute('INSERT INTO t VALUES (?)', (n,))
    assert db.execute('SELECT count(*) FROM t').fetchone() == (n + 1,)";
        let path = mounted.path("database");
        let ran = std::process::Command::new("python3").args(["-c", script]).arg(&path).status().unwrap();
        assert!(ran.success());
        let requests = requests(&mounted) - before;
        let counters = mounted.mount.session().counters();
        let calls = Operation::ALL.iter().map(|operation| (operation, counters.calls(*operation)));
        println!("{requests} requests: {:?}", calls.filter(|(_, calls)| *calls > 0).collect::<Vec<_>>());
        requests
    };
    let (with, without) = (used(true), used(false));
    assert!(with * 2 < without, "{with} {without}");
}

/// Files that are made, written, changed and removed, as programs do that unpack or compile: a delegation
/// would cost a request more for each.
#[test]
fn files_that_are_written_once_cost_the_same_with_delegations() {
    let calls = |delegations| {
        let served = Served::start();
        let mounted = mount(&served, delegations);
        for number in 0..20 {
            let (path, moved) =
                (mounted.path(&format!("{number}")), mounted.path(&format!("moved {number}")));
            fs::write(&path, b"first").unwrap();
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
            fs::File::options().append(true).open(&path).unwrap().write_all(b" and second").unwrap();
            fs::rename(&path, &moved).unwrap();
            if number % 2 == 0 {
                fs::remove_file(&moved).unwrap();
            }
        }
        let counters = mounted.mount.session().counters();
        let counted = Operation::ALL.iter().map(|operation| counters.calls(*operation)).sum::<u64>();
        // Those that aren't operations of the mount: the session's, and DELEGRETURN.
        let others = counters.wire.round_trips - counted;
        // How much COMMITs and CLOSEs have to do depends on the time.
        [Operation::Open, Operation::Create, Operation::Getattr, Operation::Setattr, Operation::Lookup]
            .map(|operation| counters.calls(operation))
            .into_iter()
            .chain([others])
            .collect::<Vec<_>>()
    };
    assert_eq!(calls(true), calls(false));
}
