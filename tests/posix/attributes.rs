//! chmod(2), chown(2), and the set-id bits.

use std::fs;

use rustix::fs::{self as sys, AtFlags, OFlags};

use super::test_dir::{
    ANN, BEN, CAT, CLUB, TestDir, changed, chmod, chown, lstat, mkdir, mode, open, tick, user_context,
};
use super::{checks, fails};

checks![
    every_mode_can_be_set,
    only_the_owner_and_root_change_a_mode,
    only_root_changes_the_owner,
    an_owner_may_set_own_groups_only,
    changing_attributes_changes_ctime_only,
    chown_clears_set_id,
    writing_clears_set_id,
    truncating_clears_set_id,
    writing_by_root_keeps_set_id,
    a_set_group_bit_requires_membership,
    a_link_has_an_owner_of_its_own,
    attributes_are_changed_by_descriptor,
    inode_numbers_are_stable_and_unique,
    blocks_are_counted,
];

fn every_mode_can_be_set(base: &TestDir) {
    let (file, dir) = (base.file("file", 0o644, b""), base.at("dir"));
    mkdir(&dir, 0o755).unwrap();
    for bits in (0..0o7777).step_by(0o123).chain([0o7777, 0o4000, 0o2000, 0o1000]) {
        for path in [&file, &dir] {
            chmod(path, bits).unwrap();
            assert_eq!(mode(path), bits);
        }
    }
}

fn only_the_owner_and_root_change_a_mode(base: &TestDir) {
    let path = base.file_of("file", ANN, 0o666);
    user_context(BEN, || fails!(chmod(&path, 0o600), PERM));
    assert_eq!(mode(&path), 0o666);
    user_context(ANN, || chmod(&path, 0o640).unwrap());
    assert_eq!(mode(&path), 0o640);
    chmod(&path, 0o604).unwrap();
    assert_eq!(mode(&path), 0o604);
}

fn only_root_changes_the_owner(base: &TestDir) {
    let path = base.file_of("file", ANN, 0o666);
    user_context(ANN, || {
        fails!(chown(&path, Some(BEN.uid), None), PERM);
        chown(&path, Some(ANN.uid), None).unwrap();
    });
    user_context(BEN, || {
        fails!(chown(&path, Some(BEN.uid), Some(BEN.gid)), PERM);
        fails!(chown(&path, None, Some(BEN.gid)), PERM);
    });
    assert_eq!((lstat(&path).st_uid, lstat(&path).st_gid), (ANN.uid, ANN.gid));
    chown(&path, Some(BEN.uid), Some(CLUB)).unwrap();
    assert_eq!((lstat(&path).st_uid, lstat(&path).st_gid), (BEN.uid, CLUB));
    chown(&path, None, None).unwrap();
    assert_eq!((lstat(&path).st_uid, lstat(&path).st_gid), (BEN.uid, CLUB));
}

fn an_owner_may_set_own_groups_only(base: &TestDir) {
    let path = base.file_of("file", CAT, 0o644);
    user_context(CAT, || {
        chown(&path, None, Some(CLUB)).unwrap();
        chown(&path, Some(CAT.uid), Some(CAT.gid)).unwrap();
        fails!(chown(&path, None, Some(ANN.gid)), PERM);
    });
    assert_eq!(lstat(&path).st_gid, CAT.gid);
}

fn changing_attributes_changes_ctime_only(base: &TestDir) {
    let path = base.file("file", 0o644, b"");
    let mut last = changed(&path);
    let mut step = |what: &str, call: &dyn Fn()| {
        tick();
        call();
        let now = changed(&path);
        assert!(now.1 > last.1 && now.0 == last.0, "{what}");
        last = now;
    };
    step("chmod", &|| chmod(&path, 0o600).unwrap());
    step("chmod to the same", &|| chmod(&path, 0o600).unwrap());
    step("chown", &|| chown(&path, Some(1), Some(2)).unwrap());
    let before = changed(&path);
    tick();
    user_context(BEN, || fails!(chmod(&path, 0o666), PERM));
    assert_eq!(changed(&path), before, "a chmod that failed");
}

fn chown_clears_set_id(base: &TestDir) {
    for (name, before, after) in [("both", 0o6755, 0o755), ("uid", 0o4711, 0o711), ("lock", 0o2644, 0o2644)] {
        let path = base.file_of(name, CAT, before);
        user_context(CAT, || chown(&path, None, Some(CLUB)).unwrap());
        // A set-group bit without the group's x bit once meant mandatory locking, and some filesystems keep
        // it.
        assert!(mode(&path) == after || mode(&path) == after & !0o6000, "{name}: {:o}", mode(&path));
        let path = base.file_of(&format!("{name}-root"), CAT, before);
        chown(&path, Some(ANN.uid), Some(ANN.gid)).unwrap();
        assert!(mode(&path) == after || mode(&path) == after & !0o6000, "{name} by root: {:o}", mode(&path));
    }
    let dir = base.dir_of("dir", CAT, 0o6755);
    chown(&dir, Some(ANN.uid), Some(ANN.gid)).unwrap();
    assert_eq!(mode(&dir), 0o6755, "a directory keeps them");
}

fn writing_clears_set_id(base: &TestDir) {
    for (name, before) in [("both", 0o6777), ("uid", 0o4777), ("gid", 0o2777)] {
        for user in [ANN, BEN] {
            let path = base.file_of(&format!("{name}-{}", user.uid), ANN, before);
            user_context(user, || {
                let fd = open(&path, OFlags::WRONLY).unwrap();
                assert_eq!(mode(&path), before, "opening changes nothing");
                rustix::io::write(&fd, b"changed").unwrap();
                assert_eq!(sys::fstat(&fd).unwrap().st_mode & 0o7777, 0o777, "{name} by {}", user.uid);
            });
            assert_eq!(mode(&path), 0o777, "{name} by {}", user.uid);
        }
    }
}

fn truncating_clears_set_id(base: &TestDir) {
    let path = base.file_of("open", ANN, 0o6777);
    user_context(BEN, || open(&path, OFlags::WRONLY | OFlags::TRUNC).map(drop).unwrap());
    assert_eq!(mode(&path), 0o777);
    let path = base.file_of("ftruncate", ANN, 0o6777);
    user_context(BEN, || sys::ftruncate(open(&path, OFlags::WRONLY).unwrap(), 3).unwrap());
    assert_eq!(mode(&path), 0o777);
}

fn writing_by_root_keeps_set_id(base: &TestDir) {
    let path = base.file_of("file", ANN, 0o4755);
    let fd = open(&path, OFlags::WRONLY).unwrap();
    rustix::io::write(&fd, b"root").unwrap();
    drop(fd);
    // An NFS client or server may clear the bits all the same.
    assert!(mode(&path) == 0o4755 || !base.local && mode(&path) == 0o755, "{:o}", mode(&path));
}

fn a_set_group_bit_requires_membership(base: &TestDir) {
    let path = base.file_of("file", ANN, 0o755);
    chown(&path, None, Some(CLUB)).unwrap();
    user_context(ANN, || chmod(&path, 0o2755).unwrap());
    assert_eq!(mode(&path), 0o755, "Ann isn't a member of the group");
    chown(&path, Some(CAT.uid), None).unwrap();
    user_context(CAT, || chmod(&path, 0o2755).unwrap());
    assert_eq!(mode(&path), 0o2755);
    chown(&path, Some(ANN.uid), None).unwrap();
    chmod(&path, 0o2755).unwrap();
    assert_eq!(mode(&path), 0o2755, "root may");
}

fn a_link_has_an_owner_of_its_own(base: &TestDir) {
    let path = base.file_of("file", ANN, 0o644);
    sys::symlink("file", base.at("link")).unwrap();
    let (uid, gid) = (rustix::process::Uid::from_raw(BEN.uid), rustix::process::Gid::from_raw(BEN.gid));
    sys::chownat(sys::CWD, base.at("link"), Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).unwrap();
    assert_eq!((lstat(&base.at("link")).st_uid, lstat(&path).st_uid), (BEN.uid, ANN.uid));
    chown(&base.at("link"), Some(CAT.uid), None).unwrap();
    assert_eq!((lstat(&base.at("link")).st_uid, lstat(&path).st_uid), (BEN.uid, CAT.uid));
    chmod(&base.at("link"), 0o600).unwrap();
    assert_eq!((mode(&path), mode(&base.at("link"))), (0o600, 0o777));
}

fn attributes_are_changed_by_descriptor(base: &TestDir) {
    let path = base.file_of("file", ANN, 0o644);
    user_context(ANN, || {
        let fd = open(&path, OFlags::RDONLY).unwrap();
        sys::fchmod(&fd, 0o640.into()).unwrap();
        assert_eq!(sys::fstat(&fd).unwrap().st_mode & 0o7777, 0o640);
        fails!(sys::fchown(&fd, Some(rustix::process::Uid::from_raw(BEN.uid)), None), PERM);
    });
    assert_eq!(mode(&path), 0o640);
}

fn inode_numbers_are_stable_and_unique(base: &TestDir) {
    let mut seen = std::collections::HashSet::new();
    for number in 0..50 {
        let path = base.file(&format!("file-{number}"), 0o644, b"");
        assert!(seen.insert(lstat(&path).st_ino));
        assert_eq!(lstat(&path).st_dev, lstat(base.path()).st_dev);
    }
    for entry in fs::read_dir(base.path()).unwrap() {
        use std::os::unix::fs::DirEntryExt as _;
        let entry = entry.unwrap();
        assert_eq!(entry.ino(), lstat(&entry.path()).st_ino);
        assert!(seen.remove(&entry.ino()));
    }
}

fn blocks_are_counted(base: &TestDir) {
    let path = base.file("file", 0o644, &[7; 100_000]);
    sys::fsync(open(&path, OFlags::RDONLY).unwrap()).unwrap();
    let stat = lstat(&path);
    assert!(stat.st_blocks * 512 >= 100_000 && stat.st_blocks * 512 < 400_000, "{} blocks", stat.st_blocks);
    assert!(stat.st_blksize >= 512);
    let statfs = sys::statvfs(&path).unwrap();
    assert!(statfs.f_blocks > 0 && statfs.f_bfree <= statfs.f_blocks && statfs.f_namemax >= 255);
    assert!(statfs.f_bavail > 0 && statfs.f_bsize >= 512);
}
