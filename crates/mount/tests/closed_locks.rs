//! A lock ends with the close(2) of its file. The test has a program of its own: a child that another test
//! forks would have the file open until its execve(2).

mod support;

use std::fs::{self, File};

use client::Version;
use rustix::fs::{FlockOperation, flock};
use samehost_mount::MountOptions;
use support::{Served, Transport};

/// The kernel tells of the end of an open after close(2) has returned.
#[test]
fn a_lock_is_free_when_the_file_is_closed() {
    for transport in [Transport::Wire, Transport::Passed] {
        let served = Served::start();
        let mounted = served.mount_by(Version::V4_2, transport, MountOptions::default());
        let lock_by_turns = |file: &str| {
            fs::write(mounted.path(file), b"text").unwrap();
            let open = || File::options().read(true).write(true).open(mounted.path(file)).unwrap();
            let one = open();
            for _ in 0..100 {
                let two = open();
                flock(&two, FlockOperation::NonBlockingLockExclusive).unwrap();
                flock(&one, FlockOperation::NonBlockingLockShared).expect_err("a lock of the other");
                drop(two);
                flock(&one, FlockOperation::NonBlockingLockExclusive).expect("no other lock");
                flock(&one, FlockOperation::Unlock).unwrap();
            }
        };
        let lock_by_turns = &lock_by_turns;
        std::thread::scope(|scope| {
            for file in ["a", "b", "c", "d"] {
                scope.spawn(move || lock_by_turns(file));
            }
        });
    }
}
