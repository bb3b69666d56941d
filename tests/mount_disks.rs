//! A mount of a share on a disk that hangs, and on one that fails: requests to other files don't wait for it,
//! and fsync(2) reports write errors, over any data path.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;
use std::thread;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use samehost_tests::disk::{Disk, Frozen};
use samehost_tests::failing::FailingDisk;
use samehost_tests::scratch::pattern;
use samehost_tests::{DataPath, Mount, Serve, need_root, wait_for};

const SERVED: &str = "lane=required,nopassthrough";

fn writing(path: &Path) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(path).expect("opens")
}

/// Four kinds of changes block on a frozen filesystem in the mount's process. Lookups, reads, listings and
/// the status don't.
#[test]
fn requests_blocked_on_a_disk_do_not_block_others() {
    need_root();
    let disk = Disk::new("ext4", 64);
    let server = Serve::openly(disk.path()).start();
    requests_do_not_wait(&disk, &Mount::new(&server, disk.path(), &format!("{SERVED},uring=off")));
    if let Some(mount) = Mount::over_uring(&server, disk.path(), SERVED) {
        requests_do_not_wait(&disk, &mount);
    }
}

fn requests_do_not_wait(disk: &Disk, mount: &Mount) {
    for name in ["overwritten", "appended", "cut", "allocated", "read"] {
        fs::write(mount.join(name), pattern(1, 10_000)).expect("there is room");
    }
    let overwritten = writing(&mount.join("overwritten"));
    let mut appended = File::options().append(true).open(mount.join("appended")).expect("opens");
    let (cut, allocated) = (writing(&mount.join("cut")), writing(&mount.join("allocated")));
    let read = File::open(mount.join("read")).expect("opens");
    thread::scope(|scope| {
        let frozen = Frozen::new(disk);
        scope.spawn(|| overwritten.write_all_at(b"over", 0).expect("after the thaw"));
        scope.spawn(move || appended.write_all(b"behind").expect("after the thaw"));
        scope.spawn(|| cut.set_len(7).expect("after the thaw"));
        scope.spawn(|| {
            let mode = rustix::fs::FallocateFlags::empty();
            rustix::fs::fallocate(&allocated, mode, 0, 20_000).expect("after the thaw");
        });
        wait_for("four blocked requests", || {
            (mount.status()?["requests_under_way"].as_u64()? >= 4).then_some(())
        });
        let mut there = [0; 100];
        read.read_exact_at(&mut there, 5000).expect("it reads");
        assert_eq!(there, pattern(1, 10_000)[5000..5100]);
        assert_eq!(fs::read_dir(mount.path()).expect("it is listed").count(), 6, "and lost+found");
        assert!(fs::metadata(mount.join("never was")).is_err());
        // The kernel has a reply before the request ceases to be counted.
        wait_for("only the four requests are under way, still blocked", || {
            (mount.status()?["requests_under_way"] == 4).then_some(())
        });
        drop(frozen);
    });
    assert_eq!(
        fs::read(mount.join("overwritten")).expect("there")[..6],
        [b"over", &pattern(1, 6)[4..]].concat()
    );
    assert!(fs::read(mount.join("appended")).expect("there").ends_with(b"behind"));
    assert_eq!(fs::metadata(mount.join("cut")).expect("there").len(), 7);
    assert_eq!(fs::metadata(mount.join("allocated")).expect("there").len(), 20_000);
}

/// Changes of names that block on a frozen filesystem, more than a queue of io_uring has threads for, leave
/// the other requests of their CPU alone. A caller that is killed doesn't wait for the disk.
#[test]
fn names_blocked_on_a_disk_do_not_block_others() {
    need_root();
    let disk = Disk::new("ext4", 64);
    for name in ["tree", "tree_uring"] {
        let path = DataPath::named(name);
        let server = path.serve(disk.path()).start();
        if let Some(mount) = path.mount(&server, disk.path(), "") {
            names_do_not_wait(&disk, &mount, name);
        }
    }
}

fn names_do_not_wait(disk: &Disk, mount: &Mount, name: &str) {
    const BLOCKED: usize = 80;
    const BATCH: usize = 8;
    let base = mount.join(name);
    fs::create_dir(&base).expect("there is room");
    fs::write(base.join("file"), "there").expect("there is room");
    // The kernel makes one change of a directory at a time.
    let directories: Vec<_> = (0..=BLOCKED).map(|number| base.join(number.to_string())).collect();
    directories.iter().for_each(|directory| fs::create_dir(directory).expect("there is room"));
    let killed_makes = directories[0].join("by the killed");
    thread::scope(|scope| {
        let frozen = Frozen::new(disk);
        let wait_for_blocked = |count: usize| {
            wait_for("the blocked requests", || {
                (mount.status()?["requests_under_way"].as_u64()? >= count as u64).then_some(())
            });
        };
        // Of many at once some would wait in the kernel for an entry of the queue.
        for (blocked, directories) in (1..).zip(directories[1..].chunks(BATCH)) {
            for directory in directories {
                scope.spawn(|| {
                    run_on_first_cpu();
                    fs::create_dir(directory.join("new")).expect("after the thaw");
                });
            }
            wait_for_blocked(blocked * BATCH);
        }
        let mut command = Command::new("mkdir");
        let mut killed = command.arg(&killed_makes).spawn().expect("mkdir(1) starts");
        wait_for_blocked(BLOCKED + 1);
        let others = scope.spawn(|| {
            run_on_first_cpu();
            assert_eq!(fs::read_to_string(base.join("file")).expect("it is read"), "there");
            assert_eq!(fs::read_dir(&base).expect("it is listed").count(), directories.len() + 1);
            assert!(fs::metadata(base.join("never was")).is_err());
        });
        others.join().expect("no request waits for others");
        killed.kill().expect("it runs");
        killed.wait().expect("it ends");
        drop(frozen);
    });
    assert!(directories[1..].iter().all(|directory| directory.join("new").is_dir()));
    wait_for("the change by the killed process", || killed_makes.is_dir().then_some(()));
}

fn run_on_first_cpu() {
    let allowed = sched_getaffinity(None).expect("own affinity");
    let mut first = CpuSet::new();
    first.set((0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).expect("a CPU"));
    sched_setaffinity(None, &first).expect("an allowed CPU");
}

/// When the device refuses written data, fsync(2) fails, by any data path and version of NFS; after a repair
/// newly written data is synced.
#[test]
fn fsync_reports_write_errors_of_the_device() {
    need_root();
    for version in ["3", "4.2"] {
        for lane in ["lane=required", SERVED, "lane=off"] {
            fsync_reports_errors(&format!("{lane},vers={version}"), |_| ());
        }
    }
}

/// So it does when the mount has given up the file's grant, and has found the error while it synced that.
#[test]
fn fsync_reports_write_errors_of_a_grant_given_up() {
    need_root();
    for version in ["3", "4.2"] {
        fsync_reports_errors(&format!("nopassthrough,vers={version}"), |mount| {
            mount.set_lane("off");
            wait_for("the end of the granted descriptor", || {
                let open = fs::read_dir(format!("/proc/{}/fd", mount.pid())).ok()?;
                let mut targets = open.flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
                (!targets.any(|target| target.ends_with("file"))).then_some(())
            });
        });
    }
}

/// `meanwhile` happens after the write that the device will refuse.
fn fsync_reports_errors(options: &str, meanwhile: impl FnOnce(&Mount)) {
    let disk = FailingDisk::new("ext4", "");
    let server = Serve::openly(disk.path()).start();
    let mount = Mount::new(&server, disk.path(), options);
    let (here, there) = (mount.join("file"), disk.path().join("file"));
    let size = 256 << 10;
    fs::write(&here, pattern(1, size)).expect("there is room");
    let file = writing(&here);
    file.sync_all().expect("the disk works");
    disk.fail(&there);
    file.write_all_at(&pattern(2, size), 0).expect("it goes to the page cache");
    meanwhile(&mount);
    // As a child process does that begins another program. Nobody learns what this close(2) says.
    drop(file.try_clone().expect("a second descriptor"));
    let Err(refused) = file.sync_all() else {
        let is_there = disk.contents(&there) == pattern(2, size);
        panic!("{options}: fsync(2) succeeds, and that the data is on the device is {is_there}");
    };
    assert!(matches!(refused.raw_os_error(), Some(5 | 28)), "{options}: {refused}");
    disk.heal();
    file.write_all_at(&pattern(3, size), 0).expect("it goes to the page cache");
    file.sync_all().expect("it is repaired");
    assert!(disk.contents(&there) == pattern(3, size), "{options}: synced data is on the device");
}
