//! A mount whose process has too few descriptors left for the threads that read /dev/fuse.

mod support;

use std::fs::{self, File};

use client::LaneMode;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use samehost_mount::{MountOptions, UringMode};

use support::{Served, Transport, wait_for};

/// Descriptors that this process may have besides those that it has.
const ROOM: u64 = 64;

/// Descriptors that are left to the mount: fewer than it has threads, each of which needs one.
const LEFT: usize = 5;

/// The descriptors of this process.
fn descriptors() -> u64 {
    fs::read_dir("/proc/self/fd").unwrap().count() as u64
}

/// The threads of this process that read /dev/fuse.
fn readers() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("comm")).ok());
    names.filter(|name| name.starts_with("fuse-device-")).count()
}

/// Whether this process may open no further file.
fn has_no_descriptors() -> bool {
    File::open("/dev/null").is_err_and(|error| Errno::from_io_error(&error) == Some(Errno::MFILE))
}

/// Opens files until there are no more descriptors.
fn take_all_descriptors() -> Vec<File> {
    let taken = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    assert!(has_no_descriptors());
    taken
}

#[test]
fn a_mount_without_descriptors_for_its_threads_reads_in_its_task() {
    let served = Served::start();
    for number in 0..20 {
        fs::write(served.export().join(number.to_string()), b"content").unwrap();
    }
    // Before there is a tree, the task reads, and no thread has been started.
    let options = MountOptions { uring: UringMode::Off, ..MountOptions::default() };
    let mounted = served.mount_with(Transport::Wire, options);
    assert_eq!(readers(), 0);
    mounted.mount.session().set_lane_mode(LaneMode::Auto);
    wait_for("a tree", || mounted.mount.session().has_tree());

    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(descriptors() + ROOM), ..limit }).unwrap();
    let mut taken = take_all_descriptors();
    taken.truncate(taken.len() - LEFT);
    // The task notices the tree with this request.
    assert_eq!(fs::metadata(mounted.path("0")).unwrap().len(), 7);
    wait_for("the threads", has_no_descriptors);
    for number in 1..10 {
        assert_eq!(fs::metadata(mounted.path(&number.to_string())).unwrap().len(), 7);
    }
    drop(taken);
    setrlimit(Resource::Nofile, limit).unwrap();
    for number in 0..20 {
        assert_eq!(fs::read(mounted.path(&number.to_string())).unwrap(), b"content");
    }
    assert!((1..8).contains(&readers()), "{}", readers());
}
