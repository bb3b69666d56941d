//! utimensat(2), and the time stamps that other calls change.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use rustix::fs::{self as sys, AtFlags, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use rustix::io::Result;

use super::test_dir::{ANN, BEN, TestDir, changed, lstat, open, tick, user_context};
use super::{checks, fails};

checks![
    times_are_kept_to_the_nanosecond,
    each_time_can_be_omitted,
    utime_now_sets_the_present_time,
    permission_to_set_times,
    times_of_a_symbolic_link,
    setting_times_changes_ctime,
    writing_changes_mtime_and_ctime,
    writing_nothing_and_reading_change_nothing,
    truncating_changes_mtime_and_ctime,
    new_files_have_the_present_time,
    times_by_descriptor,
    atime_is_kept,
];

fn set(path: &Path, atime: (i64, i64), mtime: (i64, i64)) -> Result<()> {
    set_with(path, atime, mtime, AtFlags::empty())
}

fn set_with(path: &Path, atime: (i64, i64), mtime: (i64, i64), flags: AtFlags) -> Result<()> {
    let time = |(tv_sec, tv_nsec)| Timespec { tv_sec, tv_nsec };
    let times = Timestamps { last_access: time(atime), last_modification: time(mtime) };
    sys::utimensat(sys::CWD, path, &times, flags)
}

const NOW: (i64, i64) = (0, UTIME_NOW);
const OMIT: (i64, i64) = (0, UTIME_OMIT);

fn times(path: &Path) -> ((i64, i64), (i64, i64)) {
    let stat = lstat(path);
    ((stat.st_atime, stat.st_atime_nsec as i64), (stat.st_mtime, stat.st_mtime_nsec as i64))
}

/// The range of NFSv3: unsigned 32-bit seconds.
fn times_are_kept_to_the_nanosecond(base: &TestDir) {
    let path = base.file("file", 0o644, b"");
    for (a, m) in [
        ((1, 1), (2, 999_999_999)),
        ((0, 0), (0, 0)),
        ((1_234_567_890, 123_456_789), (987_654_321, 987_654_321)),
        ((2_147_483_648, 5), (4_102_444_800, 7)),
    ] {
        set(&path, a, m).unwrap();
        assert_eq!(times(&path), (a, m));
    }
    let dir = base.at("dir");
    super::test_dir::mkdir(&dir, 0o755).unwrap();
    set(&dir, (5, 6), (7, 8)).unwrap();
    assert_eq!(times(&dir), ((5, 6), (7, 8)));
}

fn each_time_can_be_omitted(base: &TestDir) {
    let path = base.file("file", 0o644, b"");
    set(&path, (10, 1), (20, 2)).unwrap();
    set(&path, OMIT, (30, 3)).unwrap();
    assert_eq!(times(&path), ((10, 1), (30, 3)));
    set(&path, (40, 4), OMIT).unwrap();
    assert_eq!(times(&path), ((40, 4), (30, 3)));
    let before = changed(&path);
    tick();
    set(&path, OMIT, OMIT).unwrap();
    assert_eq!(changed(&path), before, "no change was requested");
}

fn utime_now_sets_the_present_time(base: &TestDir) {
    let path = base.file("file", 0o644, b"");
    let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64;
    for (a, m) in [(NOW, NOW), (NOW, OMIT), (OMIT, NOW)] {
        set(&path, (10, 0), (20, 0)).unwrap();
        let start = now();
        set(&path, a, m).unwrap();
        let (atime, mtime) = times(&path);
        let is_now = |time: i64| time >= start - 1 && time <= now() + 1;
        assert_eq!((is_now(atime.0), is_now(mtime.0)), (a == NOW, m == NOW));
        assert!((a == NOW || atime == (10, 0)) && (m == NOW || mtime == (20, 0)));
    }
}

fn permission_to_set_times(base: &TestDir) {
    let path = base.file_of("file", ANN, 0o646);
    user_context(ANN, || {
        set(&path, (1, 1), (2, 2)).unwrap();
        set(&path, NOW, NOW).unwrap();
    });
    user_context(BEN, || {
        // A user with write permission may set both to now, and nothing else.
        set(&path, NOW, NOW).unwrap();
        fails!(set(&path, (1, 1), (2, 2)), PERM);
        fails!(set(&path, NOW, OMIT), PERM);
        fails!(set(&path, OMIT, (3, 3)), PERM);
        set(&path, OMIT, OMIT).unwrap();
    });
    super::test_dir::chmod(&path, 0o444).unwrap();
    user_context(BEN, || fails!(set(&path, NOW, NOW), ACCESS));
    user_context(ANN, || {
        set(&path, NOW, NOW).unwrap();
        set(&path, (5, 5), (6, 6)).unwrap();
    });
    assert_eq!(times(&path), ((5, 5), (6, 6)));
}

fn times_of_a_symbolic_link(base: &TestDir) {
    let path = base.file("file", 0o644, b"");
    set(&path, (1, 1), (2, 2)).unwrap();
    sys::symlink("file", base.at("link")).unwrap();
    set_with(&base.at("link"), (3, 3), (4, 4), AtFlags::SYMLINK_NOFOLLOW).unwrap();
    assert_eq!(times(&path), ((1, 1), (2, 2)));
    assert_eq!(times(&base.at("link")).1, (4, 4));
    set(&base.at("link"), (5, 5), (6, 6)).unwrap();
    assert_eq!(times(&path), ((5, 5), (6, 6)));
}

fn setting_times_changes_ctime(base: &TestDir) {
    let path = base.file("file", 0o644, b"");
    let before = changed(&path);
    tick();
    set(&path, (1, 1), (2, 2)).unwrap();
    assert!(changed(&path).1 > before.1);
}

fn writing_changes_mtime_and_ctime(base: &TestDir) {
    let path = base.file("file", 0o644, b"");
    let fd = open(&path, OFlags::RDWR).unwrap();
    let mut last = changed(&path);
    for round in 0..3 {
        tick();
        rustix::io::pwrite(&fd, b"more", 0).unwrap();
        let now = changed(&path);
        assert!(now.0 > last.0 && now.1 > last.1, "write {round}: {last:?} to {now:?}");
        last = now;
    }
    drop(fd);
    assert_eq!(changed(&path), last, "closing changes nothing");
}

fn writing_nothing_and_reading_change_nothing(base: &TestDir) {
    let path = base.file("file", 0o644, b"contents");
    let before = changed(&path);
    tick();
    let fd = open(&path, OFlags::RDWR).unwrap();
    assert_eq!(rustix::io::write(&fd, b"").unwrap(), 0);
    rustix::io::read(&fd, &mut [0; 8][..]).unwrap();
    assert_eq!(changed(&path), before);
}

fn truncating_changes_mtime_and_ctime(base: &TestDir) {
    let path = base.file("file", 0o644, b"contents");
    let mut last = changed(&path);
    let mut step = |what: &str, call: &dyn Fn()| {
        tick();
        call();
        let now = changed(&path);
        assert!(now.0 > last.0 && now.1 > last.1, "{what}");
        last = now;
    };
    let truncate = |len| sys::ftruncate(open(&path, OFlags::WRONLY).unwrap(), len).unwrap();
    step("shorter", &|| truncate(4));
    step("longer", &|| truncate(20));
    step("O_TRUNC", &|| drop(open(&path, OFlags::WRONLY | OFlags::TRUNC).unwrap()));
    step("O_TRUNC of an empty file", &|| drop(open(&path, OFlags::WRONLY | OFlags::TRUNC).unwrap()));
}

fn new_files_have_the_present_time(base: &TestDir) {
    let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64;
    let start = now();
    base.file("file", 0o644, b"");
    super::test_dir::mkdir(&base.at("dir"), 0o755).unwrap();
    sys::symlink("x", base.at("link")).unwrap();
    for name in ["file", "dir", "link"] {
        let stat = lstat(&base.at(name));
        for time in [stat.st_atime, stat.st_mtime, stat.st_ctime] {
            assert!(time >= start - 1 && time <= now() + 1, "{name}: {time}");
        }
    }
}

fn times_by_descriptor(base: &TestDir) {
    let path = base.file_of("file", ANN, 0o600);
    user_context(ANN, || {
        let fd = open(&path, OFlags::RDONLY).unwrap();
        let time = |tv_sec| Timespec { tv_sec, tv_nsec: 9 };
        sys::futimens(&fd, &Timestamps { last_access: time(100), last_modification: time(200) }).unwrap();
        let stat = sys::fstat(&fd).unwrap();
        assert_eq!((stat.st_atime, stat.st_mtime, stat.st_mtime_nsec as i64), (100, 200, 9));
    });
    // A later write makes the time stamp newer than the one that was set.
    let fd = open(&path, OFlags::WRONLY).unwrap();
    rustix::io::write(&fd, b"x").unwrap();
    drop(fd);
    assert!(times(&path).1.0 > 1_600_000_000);
    // And a time stamp that was set after a write stays, though the write may not have been sent yet.
    let fd = open(&path, OFlags::WRONLY).unwrap();
    rustix::io::write(&fd, b"y").unwrap();
    set(&path, (1, 1), (2, 2)).unwrap();
    drop(fd);
    assert_eq!(times(&path).1, (2, 2));
}

/// Reading may change atime or not (relatime, noatime), but not mtime.
fn atime_is_kept(base: &TestDir) {
    let path = base.file("file", 0o644, b"contents");
    set(&path, (1_500_000_000, 0), (1_600_000_000, 0)).unwrap();
    fs::read(&path).unwrap();
    let (atime, mtime) = times(&path);
    assert!(atime.0 >= 1_500_000_000);
    assert_eq!(mtime, (1_600_000_000, 0));
}
