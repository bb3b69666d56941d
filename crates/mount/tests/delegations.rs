//! Delegations on a mount: what needs no request, and what others' changes do to cached data.

mod support;

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use client::{Operation, Version};
use samehost_mount::{AttributeTimes, MountOptions};
use support::{Served, Transport, wait_for};

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
    // The second fstat(2) asks for the access time that the first read has changed.
    for _ in 0..2 {
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
