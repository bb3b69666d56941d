//! FUSE over io_uring: the requests of one process that moves between CPUs keep their order.
//!
//! The only test in this file: a process that another test of the same program forks would hold the
//! descriptors that are closed here, until it executes its command.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::thread::available_parallelism;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use samehost_tests::{Mount, Scratch, Serve, need_root};

/// close(2) doesn't wait for RELEASE, which goes through the queue of the CPU that closes. The next request,
/// from another CPU, must find the file closed all the same: a closed file that is removed gets no hidden
/// name, the hidden name of a file that was open is gone, and the attributes aren't those from before.
#[test]
fn a_close_on_one_cpu_comes_before_a_removal_on_another() {
    need_root();
    let allowed = sched_getaffinity(None).expect("an affinity");
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    if available_parallelism().map_or(1, |count| count.get()) < 2 || cpus.len() < 2 {
        return eprintln!("not tested: there is one CPU");
    }
    let scratch = Scratch::in_memory();
    let export = scratch.mkdir("export");
    let server = Serve::openly(&export).start();
    let Some(mount) = Mount::over_uring(&server, &export, "lane=required") else { return };
    for round in 0..500 {
        run_on(cpus[round % 2]);
        let directory = mount.join(format!("directory-{round}"));
        fs::create_dir(&directory).expect("a directory");
        let (name, link) = (directory.join("name"), mount.join(format!("link-{round}")));
        let file = File::create(&name).expect("a file");
        fs::hard_link(&name, &link).expect("a link");
        let open = File::create(directory.join("open")).expect("a file");
        fs::remove_file(directory.join("open")).expect("it gets a hidden name");
        drop(file);
        run_on(cpus[(round + 1) % 2]);
        fs::remove_file(&name).expect("it is closed");
        assert_eq!(fs::metadata(&link).expect("the other link").nlink(), 1, "round {round}");
        drop(open);
        run_on(cpus[round % 2]);
        assert_eq!(fs::read_dir(&directory).expect("a listing").count(), 0, "round {round}");
        fs::remove_dir(&directory).expect("it is empty");
    }
}

fn run_on(cpu: usize) {
    let mut only = CpuSet::new();
    only.set(cpu);
    sched_setaffinity(None, &only).expect("a CPU of this process");
}
