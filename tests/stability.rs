//! Guarantees of stable storage: acknowledged data is on the device, and lost data is reported, over both
//! data paths, with real errors: a device that fails, a full disk, a quota, a server killed between WRITE and
//! COMMIT.
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
    let options = Options::new().lane(lane).run_dir(server.run_dir());
    Session::connect(&url, options).expect("the server is there")
}

fn open(session: &Session, file: &Path) -> File {
    let options = OpenOptions::new().read(true).write(true);
    session.open(file.file_name().expect("a file").as_encoded_bytes(), &options).expect("opens")
}

fn resent(session: &Session) -> u64 {
    session.session().counters().events.bytes_resent
}

/// A file of [`SIZE`] bytes, all of them synced.
fn file_on(directory: &Path, name: &str) -> PathBuf {
    let path = directory.join(name);
    fs::write(&path, pattern(1, SIZE)).expect("there is room");
    LocalFile::open(&path).and_then(|file| file.sync_all()).expect("the disk works");
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

    fn contents_on_device(&self) -> Vec<u8> {
        self.disk.contents(&self.path)
    }
}

fn assert_failed(result: Result<(), Error>, when: &str) {
    let error = result.expect_err(when);
    let is_write_error = match &error {
        Error::Status { status, .. } => matches!(status, Status::Io | Status::NoSpace),
        Error::Local { source, .. } => matches!(source.raw_os_error(), Some(5 | 28)),
        _ => false,
    };
    assert!(is_write_error, "{when}: {error}");
}

/// The COMMIT fails. After the device's repair the next COMMIT returns another verifier, and the client sends
/// its data again.
fn check_lost_data_is_resent(kind: &str) {
    let rig = Rig::new(kind, LaneMode::Off);
    let data = pattern(2, SIZE);
    rig.file.write_at(&data, 0).expect("it goes to the page cache");
    rig.disk.fail(&rig.path);
    // `fail` syncs the data written before, so another write must fail now.
    let data = [&pattern(3, SIZE / 2)[..], &data[SIZE / 2..]].concat();
    rig.file.write_at(&data[..SIZE / 2], 0).expect("it goes to the page cache");
    assert_failed(rig.file.commit(), "a COMMIT after a write error");
    assert_eq!(resent(&rig.session), 0);
    rig.disk.heal();
    rig.file.commit().expect("the device works again");
    assert_eq!(resent(&rig.session), SIZE as u64, "all data that was unstable under the old verifier");
    assert!(rig.contents_on_device() == data, "committed data is on the device");
    rig.file.commit().expect("nothing is uncommitted");
    assert_eq!(resent(&rig.session), SIZE as u64);
}

#[test]
fn a_commit_reports_a_failed_device_and_the_data_is_resent_on_ext4() {
    check_lost_data_is_resent("ext4");
}

#[test]
fn a_commit_reports_a_failed_device_and_the_data_is_resent_on_xfs() {
    check_lost_data_is_resent("xfs");
}

/// A local process sees the error first. The server's descriptor was open before the write, so it gets the
/// error, too.
#[test]
fn an_error_reported_to_a_local_process_is_reported_to_the_client_too() {
    let rig = Rig::new("ext4", LaneMode::Off);
    let local = LocalFile::options().write(true).open(&rig.path).expect("opens");
    rig.disk.fail(&rig.path);
    let data = pattern(2, SIZE);
    rig.file.write_at(&data, 0).expect("it goes to the page cache");
    local.sync_all().expect_err("the device fails");
    rig.disk.heal();
    local.sync_all().expect("the error is reported once");
    assert_failed(rig.file.commit(), "the server has seen the error");
    rig.file.commit().expect("the data is resent");
    assert_eq!(resent(&rig.session), SIZE as u64);
    assert!(rig.contents_on_device() == data);
}

/// One client's COMMIT gets the error; another client's data in the same file is lost, too.
#[test]
fn an_error_reported_to_one_client_makes_others_resend() {
    let rig = Rig::new("ext4", LaneMode::Off);
    let bystander = file_on(rig.disk.path(), "bystander");
    let other = session(&rig.server, rig.disk.path(), LaneMode::Off);
    let (others, unconcerned) = (open(&other, &rig.path), open(&other, &bystander));
    rig.disk.fail(&rig.path);
    let (first, second) = (pattern(2, SIZE / 2), pattern(3, SIZE / 2));
    rig.file.write_at(&first, 0).expect("it goes to the page cache");
    others.write_at(&second, (SIZE / 2) as u64).expect("it goes to the page cache");
    unconcerned.write_at(&first, 0).expect("it goes to the page cache");
    assert_failed(rig.file.commit(), "a COMMIT after a write error");
    rig.disk.heal();
    others.commit().expect("the device works again");
    assert_eq!(resent(&other), (SIZE / 2) as u64, "the other client's half");
    unconcerned.commit().expect("this file had no error");
    assert_eq!(
        resent(&other),
        SIZE as u64,
        "one verifier for the whole server: data that wasn't lost is resent, too"
    );
    rig.file.commit().expect("the device works again");
    assert!(rig.contents_on_device() == [first, second].concat());
}

#[test]
fn a_stable_write_reports_its_own_error() {
    let rig = Rig::new("ext4", LaneMode::Off);
    rig.disk.fail(&rig.path);
    for stability in [Stability::DataSync, Stability::FileSync] {
        let data = pattern(4, SIZE).into();
        assert_failed(rig.file.write_stable(data, 0, stability), "a stable write to a failing device");
    }
    rig.disk.heal();
    let data = pattern(5, SIZE);
    rig.file.write_stable(data.clone().into(), 0, Stability::DataSync).expect("the device works again");
    assert!(rig.contents_on_device() == data);
}

/// Over the lane the commit that meets the error reports it, once, as a local fsync does.
fn check_lost_data_over_the_lane(write: impl Fn(&Rig, Vec<u8>) -> Result<(), Error>) {
    let rig = Rig::new("ext4", LaneMode::Required);
    rig.disk.fail(&rig.path);
    assert_failed(write(&rig, pattern(2, SIZE)), "a commit after a write error");
    rig.file.commit().expect("the error is reported once");
    rig.disk.heal();
    let data = pattern(3, SIZE);
    write(&rig, data.clone()).expect("the device works again");
    assert!(rig.contents_on_device() == data);
    assert_eq!(rig.server.status().data_calls(), 0, "all data over the lane");
}

#[test]
fn a_commit_over_the_lane_reports_a_failed_device() {
    check_lost_data_over_the_lane(|rig, data| rig.file.write_at(&data, 0).and_then(|()| rig.file.commit()));
}

#[test]
fn a_stable_write_over_the_lane_reports_its_own_error() {
    check_lost_data_over_the_lane(|rig, data| rig.file.write_stable(data.into(), 0, Stability::FileSync));
}

/// A crash of the machine would lose the server's page cache; the test truncates the file instead.
#[test]
fn data_is_resent_to_a_server_killed_between_write_and_commit() {
    let mut rig = Rig::new("ext4", LaneMode::Off);
    let data = pattern(2, SIZE);
    rig.file.write_at(&data, 0).expect("it goes to the page cache");
    rig.server.kill();
    LocalFile::options().write(true).open(&rig.path).and_then(|file| file.set_len(0)).expect("own file");
    rig.server.restart();
    rig.file.commit().expect("another verifier: the data is resent");
    assert_eq!(resent(&rig.session), SIZE as u64);
    assert!(rig.contents_on_device() == data);
}

/// The server is killed while a grant has unsynced writes on a failing device: no caller waits for that sync,
/// and the next commit reports its error, once.
#[test]
fn a_released_grants_write_error_is_reported_by_the_next_commit() {
    let mut rig = Rig::new("ext4", LaneMode::Auto);
    rig.disk.fail(&rig.path);
    rig.file.write_at(&pattern(2, SIZE), 0).expect("it goes to the page cache");
    rig.server.kill();
    rig.server.restart();
    assert_failed(rig.file.commit(), "the error of the grant's sync");
    rig.disk.heal();
    rig.file.commit().expect("the error is reported once");
    let data = pattern(3, SIZE);
    rig.file.write_at(&data, 0).and_then(|()| rig.file.commit()).expect("the device works again");
    assert!(rig.contents_on_device() == data);
}

/// Data that was acknowledged before the filesystem was full is kept. A client that writes more gets the
/// error, from the WRITE or the COMMIT; other clients see nothing.
fn check_full_filesystem(disk: &Path, expected: Status, fill: impl FnOnce(), make_room: impl FnOnce()) {
    let (safe, grows) = (file_on(disk, "safe"), file_on(disk, "grows"));
    let server = Serve::openly(disk).start();
    let (one, other) = (session(&server, disk, LaneMode::Off), session(&server, disk, LaneMode::Off));
    let (safe_file, grows_file) = (open(&one, &safe), open(&other, &grows));
    safe_file.write_at(&pattern(2, SIZE), 0).expect("it goes to the page cache");
    fill();
    let more = pattern(3, 8 << 20);
    let stable = grows_file.write_stable(more.clone().into(), SIZE as u64, Stability::FileSync);
    let error = stable.expect_err("there is no room");
    assert_eq!(error.status(), Some(expected), "{error}");
    let result = grows_file.write_at(&more, SIZE as u64).and_then(|()| grows_file.commit());
    // A part may have been written before the disk was full; the error is the same.
    let error = result.expect_err("there is no room");
    assert_eq!(error.status(), Some(expected), "{error}");
    safe_file.commit().expect("accepted data has its space");
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
        // 4 MiB are left; the filesystem's own figure may be too high, so smaller sizes are tried.
        let length = free - (4 << 20);
        let room =
            (0..16).find_map(|i| fallocate(&file, FallocateFlags::empty(), 0, length - (i << 20)).ok());
        room.expect("one of the sizes fits");
    };
    check_full_filesystem(disk.path(), Status::NoSpace, fill, || fs::remove_file(&filler).expect("own file"));
}

#[test]
fn a_full_disk_is_reported_on_ext4() {
    full_disk("ext4", 64);
}

#[test]
fn a_full_disk_is_reported_on_xfs() {
    full_disk("xfs", 320);
}

/// btrfs's qgroups: the only quota among these filesystems that every kernel has.
#[test]
fn a_full_quota_is_reported() {
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
    check_full_filesystem(&limited, Status::Quota, || limit("4M"), || limit("none"));
}

/// After a power failure right after the reply, the bytes of a DATA_SYNC write are on the device, and of a
/// FILE_SYNC write the time stamps, too. With `lazytime` only a sync writes those.
fn check_crash_survival(kind: &str, options: &str, mode: &str, lane: LaneMode) {
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
    check_crash_survival("ext4", "", "buffered", LaneMode::Off);
    for mode in ["buffered", "dontcache", "direct"] {
        check_crash_survival("ext4", "lazytime", mode, LaneMode::Off);
        check_crash_survival("ext4", "lazytime", mode, LaneMode::Required);
    }
}

#[test]
fn time_stamps_survive_a_crash_on_xfs() {
    check_crash_survival("xfs", "", "buffered", LaneMode::Off);
    for mode in ["buffered", "dontcache", "direct"] {
        check_crash_survival("xfs", "lazytime", mode, LaneMode::Off);
        check_crash_survival("xfs", "lazytime", mode, LaneMode::Required);
    }
}

/// What fsync(2) has acknowledged on a mount survives a crash of the machine, including names and attributes:
/// over the wire they are durable before the fsync, over the lane the fsync syncs them.
fn check_fsync_on_a_mount(kind: &str, options: &str) {
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
    fs::set_permissions(tree.join("file"), fs::Permissions::from_mode(0o640))
        .expect("the owner is permitted");
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
    fs::set_permissions(tree.join("file"), fs::Permissions::from_mode(0o604))
        .expect("the owner is permitted");
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
fn data_synced_on_a_mount_survives_a_crash() {
    for (kind, options) in [("ext4", "lane=off"), ("ext4", "lane=required"), ("xfs", "lane=required")] {
        check_fsync_on_a_mount(kind, options);
    }
}
