//! Promises that hold: what was acknowledged as stable is on the device, and what was lost is said to be
//! lost, over both data paths, with real errors: a device that fails, a full disk, a quota, a server killed
//! between WRITE and COMMIT.
//!
//! RFC 1813 sections 3.3.7 and 3.3.21, RFC 8881 section 18.32.

use std::fs::{self, File as LocalFile};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use client::blocking::{File, Session};
use client::{DataPath, Error, LaneMode, OpenOptions, Options, Stability, Status, Url};
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use samehost_tests::disk::Disk;
use samehost_tests::failing::FailingDisk;
use samehost_tests::scratch::pattern;
use samehost_tests::{Mount, Serve, Server, need_root, run_ok};

const SIZE: usize = 256 << 10;

fn session(server: &Server, export: &Path, lane: LaneMode) -> Session {
    let url: Url = server.url(export).parse().expect("a URL");
    let options = Options { lane, run_dir: server.run_dir().into(), ..Options::default() };
    Session::connect(&url, options).expect("the server is there")
}

fn open(session: &Session, file: &Path) -> File {
    let options = OpenOptions::new().read(true).write(true);
    session.open(file.file_name().expect("a file").as_encoded_bytes(), &options).expect("opens")
}

fn resent(session: &Session) -> u64 {
    session.session().counters().events.bytes_resent
}

/// A file of [`SIZE`] bytes on the disk, every byte of it on the device.
fn file_on(directory: &Path, name: &str) -> PathBuf {
    let path = directory.join(name);
    fs::write(&path, pattern(1, SIZE)).expect("there is room");
    LocalFile::open(&path).and_then(|file| file.sync_all()).expect("the disk is whole");
    path
}

/// A disk with one file on it, a server of it, and a client with the file open.
struct Rig {
    disk: FailingDisk,
    path: PathBuf,
    server: Server,
    session: Session,
    file: File,
}

impl Rig {
    fn new(kind: &str, lane: LaneMode) -> Self {
        need_root();
        let disk = FailingDisk::new(kind, "");
        let path = file_on(disk.path(), "file");
        let server = Serve::openly(disk.path()).start();
        let session = session(&server, disk.path(), lane);
        let file = open(&session, &path);
        assert_eq!(file.data_path(), if lane == LaneMode::Off { DataPath::Wire } else { DataPath::Lane });
        Self { disk, path, server, session, file }
    }

    fn on_the_device(&self) -> Vec<u8> {
        self.disk.contents(&self.path)
    }
}

fn assert_failed(result: Result<(), Error>, when: &str) {
    let error = result.expect_err(when);
    let told = match &error {
        Error::Status { status, .. } => matches!(status, Status::Io | Status::NoSpace),
        Error::Local { source, .. } => matches!(source.raw_os_error(), Some(5 | 28)),
        _ => false,
    };
    assert!(told, "{when}: {error}");
}

/// The COMMIT fails, and the next one, the device being well again, finds another verifier: the client sends
/// its data again.
fn lost_and_sent_again(kind: &str) {
    let rig = Rig::new(kind, LaneMode::Off);
    let data = pattern(2, SIZE);
    rig.file.write_at(&data, 0).expect("it goes to the page cache");
    rig.disk.fail(&rig.path);
    // What was there before is synced by `fail`: write again, for a device that fails now.
    let data = [&pattern(3, SIZE / 2)[..], &data[SIZE / 2..]].concat();
    rig.file.write_at(&data[..SIZE / 2], 0).expect("it goes to the page cache");
    assert_failed(rig.file.commit(), "a COMMIT of what the device refused");
    assert_eq!(resent(&rig.session), 0);
    rig.disk.heal();
    rig.file.commit().expect("it is well again");
    assert_eq!(resent(&rig.session), SIZE as u64, "everything that was unstable under the old verifier");
    assert!(rig.on_the_device() == data, "what was committed is on the device");
    rig.file.commit().expect("nothing is left to do");
    assert_eq!(resent(&rig.session), SIZE as u64);
}

#[test]
fn a_commit_tells_of_a_failed_device_and_the_next_one_makes_good_on_ext4() {
    lost_and_sent_again("ext4");
}

#[test]
fn a_commit_tells_of_a_failed_device_and_the_next_one_makes_good_on_xfs() {
    lost_and_sent_again("xfs");
}

/// A local process is told of the error first. The server's descriptor has been open since before, and is
/// told, too.
#[test]
fn an_error_that_somebody_else_has_seen_is_still_told() {
    let rig = Rig::new("ext4", LaneMode::Off);
    let local = LocalFile::options().write(true).open(&rig.path).expect("opens");
    rig.disk.fail(&rig.path);
    let data = pattern(2, SIZE);
    rig.file.write_at(&data, 0).expect("it goes to the page cache");
    local.sync_all().expect_err("the device refuses");
    rig.disk.heal();
    local.sync_all().expect("once");
    assert_failed(rig.file.commit(), "the server knows");
    rig.file.commit().expect("sent again");
    assert_eq!(resent(&rig.session), SIZE as u64);
    assert!(rig.on_the_device() == data);
}

/// One client's COMMIT meets the error; another's data, written to the same file, was lost with it.
#[test]
fn an_error_that_one_client_is_told_makes_the_others_send_again() {
    let rig = Rig::new("ext4", LaneMode::Off);
    let bystander = file_on(rig.disk.path(), "bystander");
    let other = session(&rig.server, rig.disk.path(), LaneMode::Off);
    let (others, unconcerned) = (open(&other, &rig.path), open(&other, &bystander));
    rig.disk.fail(&rig.path);
    let (first, second) = (pattern(2, SIZE / 2), pattern(3, SIZE / 2));
    rig.file.write_at(&first, 0).expect("it goes to the page cache");
    others.write_at(&second, (SIZE / 2) as u64).expect("it goes to the page cache");
    unconcerned.write_at(&first, 0).expect("it goes to the page cache");
    assert_failed(rig.file.commit(), "a COMMIT of what the device refused");
    rig.disk.heal();
    others.commit().expect("it is well again");
    assert_eq!(resent(&other), (SIZE / 2) as u64, "the half that was the other's");
    unconcerned.commit().expect("that device never failed");
    assert_eq!(
        resent(&other),
        SIZE as u64,
        "one verifier for the whole server: what wasn't lost is sent again, too"
    );
    rig.file.commit().expect("it is well again");
    assert!(rig.on_the_device() == [first, second].concat());
}

#[test]
fn a_stable_write_tells_itself() {
    let rig = Rig::new("ext4", LaneMode::Off);
    rig.disk.fail(&rig.path);
    for stability in [Stability::DataSync, Stability::FileSync] {
        let data = pattern(4, SIZE).into();
        assert_failed(rig.file.write_stable(data, 0, stability), "a stable write to a device that refuses");
    }
    rig.disk.heal();
    let data = pattern(5, SIZE);
    rig.file.write_stable(data.clone().into(), 0, Stability::DataSync).expect("it is well again");
    assert!(rig.on_the_device() == data);
}

/// Over the lane: the application is told by the commit that meets the error, once, as by a local fsync.
fn lost_over_the_lane(write: impl Fn(&Rig, Vec<u8>) -> Result<(), Error>) {
    let rig = Rig::new("ext4", LaneMode::Required);
    rig.disk.fail(&rig.path);
    assert_failed(write(&rig, pattern(2, SIZE)), "a commit of what the device refused");
    rig.file.commit().expect("told once");
    rig.disk.heal();
    let data = pattern(3, SIZE);
    write(&rig, data.clone()).expect("it is well again");
    assert!(rig.on_the_device() == data);
    assert_eq!(rig.server.status().bytes_moving_calls(), 0, "all of it went over the lane");
}

#[test]
fn a_commit_over_the_lane_tells_of_a_failed_device() {
    lost_over_the_lane(|rig, data| rig.file.write_at(&data, 0).and_then(|()| rig.file.commit()));
}

#[test]
fn a_stable_write_over_the_lane_tells_itself() {
    lost_over_the_lane(|rig, data| rig.file.write_stable(data.into(), 0, Stability::FileSync));
}

/// The data was in the page cache when the server died, and went with it: here it is cut off by hand.
#[test]
fn a_server_killed_between_write_and_commit() {
    let mut rig = Rig::new("ext4", LaneMode::Off);
    let data = pattern(2, SIZE);
    rig.file.write_at(&data, 0).expect("it goes to the page cache");
    rig.server.kill();
    LocalFile::options().write(true).open(&rig.path).and_then(|file| file.set_len(0)).expect("own file");
    rig.server.restart();
    rig.file.commit().expect("another verifier: sent again");
    assert_eq!(resent(&rig.session), SIZE as u64);
    assert!(rig.on_the_device() == data);
}

/// The server goes while a grant has unsynced writes on a device that fails: nobody waits for that sync, and
/// the next commit tells of it, once.
#[test]
fn an_error_of_a_grant_given_up_reaches_the_next_commit_once() {
    let mut rig = Rig::new("ext4", LaneMode::Auto);
    rig.disk.fail(&rig.path);
    rig.file.write_at(&pattern(2, SIZE), 0).expect("it goes to the page cache");
    rig.server.kill();
    rig.server.restart();
    assert_failed(rig.file.commit(), "what the grant's sync was told");
    rig.disk.heal();
    rig.file.commit().expect("told once");
    let data = pattern(3, SIZE);
    rig.file.write_at(&data, 0).and_then(|()| rig.file.commit()).expect("it is well again");
    assert!(rig.on_the_device() == data);
}

/// Everything that was written to the filesystem and acknowledged before it was full is kept, and who writes
/// more is told so: by the WRITE or by the COMMIT, and without a word to the others.
fn full(disk: &Path, expected: Status, fill: impl FnOnce(), make_room: impl FnOnce()) {
    let (safe, grows) = (file_on(disk, "safe"), file_on(disk, "grows"));
    let server = Serve::openly(disk).start();
    let (one, other) = (session(&server, disk, LaneMode::Off), session(&server, disk, LaneMode::Off));
    let (safe_file, grows_file) = (open(&one, &safe), open(&other, &grows));
    safe_file.write_at(&pattern(2, SIZE), 0).expect("it goes to the page cache");
    fill();
    let more = pattern(3, 8 << 20);
    let result = grows_file.write_at(&more, SIZE as u64).and_then(|()| grows_file.commit());
    // A part of it may have landed before the disk was full; the refusal is the same.
    let error = result.expect_err("there is no room");
    assert_eq!(error.status(), Some(expected), "{error}");
    safe_file.commit().expect("what was accepted has its room");
    assert_eq!(resent(&one), 0, "nothing was lost");
    make_room();
    grows_file.write_at(&more, SIZE as u64).and_then(|()| grows_file.commit()).expect("there is room now");
    assert!(
        fs::read(&grows).expect("there")[SIZE..] == more
            && fs::read(&safe).expect("there") == pattern(2, SIZE)
    );
}

fn full_disk(kind: &str, megabytes: u64) {
    need_root();
    let disk = Disk::new(kind, megabytes);
    let filler = disk.path().join("filler");
    let fill = || {
        let file = LocalFile::create(&filler).expect("own disk");
        let free = statvfs(disk.path()).map(|now| now.f_bavail * now.f_frsize).expect("mounted");
        // 4 MiB are left, or what the filesystem says is left without meaning it.
        let length = free - (4 << 20);
        let room =
            (0..16).find_map(|i| fallocate(&file, FallocateFlags::empty(), 0, length - (i << 20)).ok());
        room.expect("some of it can be had");
    };
    full(disk.path(), Status::NoSpace, fill, || fs::remove_file(&filler).expect("own file"));
}

#[test]
fn a_full_disk_is_told_on_ext4() {
    full_disk("ext4", 64);
}

#[test]
fn a_full_disk_is_told_on_xfs() {
    full_disk("xfs", 320);
}

/// btrfs's qgroups: of the filesystems here the one whose quota every kernel has.
#[test]
fn a_quota_is_told() {
    need_root();
    let disk = Disk::new("btrfs", 256);
    let limited = disk.path().join("limited");
    let btrfs = |words: &[&str]| run_ok(Command::new("btrfs").args(words).arg(disk.path()));
    btrfs(&["quota", "enable"]);
    run_ok(Command::new("btrfs").args(["subvolume", "create"]).arg(&limited));
    let limit = |bytes: &str| {
        run_ok(Command::new("btrfs").args(["qgroup", "limit", bytes]).arg(&limited));
        run_ok(Command::new("sync").arg("-f").arg(&limited));
    };
    full(&limited, Status::Quota, || limit("4M"), || limit("none"));
}

/// What a machine finds that lost its power right after the reply: the bytes of a DATA_SYNC write, and of a
/// FILE_SYNC one the time stamps, too. With `lazytime` nothing but a sync writes those.
fn survives_a_crash(kind: &str, options: &str, mode: &str, lane: LaneMode) {
    need_root();
    let disk = FailingDisk::new(kind, options);
    let server = Serve::openly(disk.path()).arguments(["--write-io", mode]).start();
    let session = session(&server, disk.path(), lane);
    let paths = [("in-place", 0), ("longer", SIZE)].map(|(name, at)| (file_on(disk.path(), name), at as u64));
    for (round, stability) in [Stability::DataSync, Stability::FileSync].into_iter().enumerate() {
        for (path, offset) in &paths {
            let file = open(&session, path);
            let data = pattern(7 + round as u64, SIZE / 2);
            file.write_stable(data.clone().into(), *offset, stability).expect("writes");
            let crashed = disk.after_a_crash();
            let (now, then) = (path, crashed.path().join(path.file_name().expect("a file")));
            let mut found = vec![0; data.len()];
            let read = LocalFile::open(&then).and_then(|file| file.read_exact_at(&mut found, *offset));
            read.unwrap_or_else(|e| panic!("{kind} {options} {stability:?} {}: {e}", path.display()));
            assert!(found == data, "{kind} {options} {stability:?} {}: the bytes", path.display());
            if stability == Stability::FileSync {
                let [now, then] = [now, &then].map(|path| fs::metadata(path).expect("there"));
                let facts =
                    |of: &fs::Metadata| (of.len(), of.mtime(), of.mtime_nsec(), of.ctime(), of.ctime_nsec());
                assert_eq!(facts(&then), facts(&now), "{kind} {options} {}", path.display());
            }
        }
    }
}

#[test]
fn time_stamps_survive_a_crash_on_ext4() {
    survives_a_crash("ext4", "", "buffered", LaneMode::Off);
    for mode in ["buffered", "dontcache", "direct"] {
        survives_a_crash("ext4", "lazytime", mode, LaneMode::Off);
        survives_a_crash("ext4", "lazytime", mode, LaneMode::Required);
    }
}

#[test]
fn time_stamps_survive_a_crash_on_xfs() {
    survives_a_crash("xfs", "", "buffered", LaneMode::Off);
    for mode in ["buffered", "dontcache", "direct"] {
        survives_a_crash("xfs", "lazytime", mode, LaneMode::Off);
        survives_a_crash("xfs", "lazytime", mode, LaneMode::Required);
    }
}

/// What fsync(2) has acknowledged on a mount is there after a crash of the machine, names and attributes
/// included: over the wire they were durable before, by lane the fsync does it.
fn synced_in_a_mount_survives_a_crash(kind: &str, options: &str) {
    need_root();
    let disk = FailingDisk::new(kind, "");
    let server = Serve::openly(disk.path()).start();
    let mount = Mount::new(&server, disk.path(), options);
    let sync = |path: &Path| LocalFile::open(path).and_then(|file| file.sync_all()).expect("syncs");
    let tree = mount.join("tree");
    for name in ["", "kept", "renamed", "removed"] {
        fs::create_dir_all(tree.join(name)).expect("there is room");
    }
    fs::write(tree.join("file"), pattern(9, SIZE)).expect("there is room");
    fs::set_permissions(tree.join("file"), fs::Permissions::from_mode(0o640)).expect("its owner may");
    sync(&tree.join("file"));
    sync(&tree);
    sync(mount.path());
    let crashed = disk.after_a_crash();
    let then = crashed.path().join("tree");
    assert!(fs::read(then.join("file")).expect("there") == pattern(9, SIZE), "{kind} {options}");
    assert_eq!(fs::metadata(then.join("file")).expect("there").mode() & 0o7777, 0o640, "{kind} {options}");
    drop(crashed);
    fs::rename(tree.join("renamed"), tree.join("other")).expect("renames");
    fs::remove_dir(tree.join("removed")).expect("removes");
    fs::set_permissions(tree.join("file"), fs::Permissions::from_mode(0o604)).expect("its owner may");
    sync(&tree.join("file"));
    sync(&tree);
    let crashed = disk.after_a_crash();
    let then = crashed.path().join("tree");
    let mut names: Vec<_> =
        fs::read_dir(&then).expect("there").map(|entry| entry.expect("reads").file_name()).collect();
    names.sort();
    assert_eq!(names, ["file", "kept", "other"], "{kind} {options}");
    assert_eq!(fs::metadata(then.join("file")).expect("there").mode() & 0o7777, 0o604, "{kind} {options}");
}

#[test]
fn what_is_synced_in_a_mount_survives_a_crash() {
    for (kind, options) in [("ext4", "lane=off"), ("ext4", "lane=required"), ("xfs", "lane=required")] {
        synced_in_a_mount_survives_a_crash(kind, options);
    }
}
