//! chmod(2), chown(2), and what becomes of set-id bits.

use std::fs;

use rustix::fs::{self as sys, AtFlags, OFlags};

use super::place::{
    ANN, BEN, CAT, CLUB, Place, changed, chmod, chown, look, mkdir, mode, open, tick, user_context,
};
use super::{checks, fails};

checks![
    every_mode_can_be_set,
    only_the_owner_and_root_change_a_mode,
    only_root_gives_away,
    an_owner_gives_to_own_groups_only,
    changing_attributes_changes_ctime_only,
    giving_away_clears_set_id,
    writing_clears_set_id,
    cutting_clears_set_id,
    root_writes_without_clearing,
    a_set_group_bit_takes_membership,
    a_link_has_an_owner_of_its_own,
    by_descriptor,
    inode_numbers_stay_and_differ,
    blocks_are_counted,
];

fn every_mode_can_be_set(place: &Place) {
    let (file, dir) = (place.file("file", 0o644, b""), place.at("dir"));
    mkdir(&dir, 0o755).unwrap();
    for bits in (0..0o7777).step_by(0o123).chain([0o7777, 0o4000, 0o2000, 0o1000]) {
        for path in [&file, &dir] {
            chmod(path, bits).unwrap();
            assert_eq!(mode(path), bits);
        }
    }
}

fn only_the_owner_and_root_change_a_mode(place: &Place) {
    let path = place.file_of("file", ANN, 0o666);
    user_context(BEN, || fails!(chmod(&path, 0o600), PERM));
    assert_eq!(mode(&path), 0o666);
    user_context(ANN, || chmod(&path, 0o640).unwrap());
    assert_eq!(mode(&path), 0o640);
    chmod(&path, 0o604).unwrap();
    assert_eq!(mode(&path), 0o604);
}

fn only_root_gives_away(place: &Place) {
    let path = place.file_of("file", ANN, 0o666);
    user_context(ANN, || {
        fails!(chown(&path, Some(BEN.uid), None), PERM);
        chown(&path, Some(ANN.uid), None).unwrap();
    });
    user_context(BEN, || {
        fails!(chown(&path, Some(BEN.uid), Some(BEN.gid)), PERM);
        fails!(chown(&path, None, Some(BEN.gid)), PERM);
    });
    assert_eq!((look(&path).st_uid, look(&path).st_gid), (ANN.uid, ANN.gid));
    chown(&path, Some(BEN.uid), Some(CLUB)).unwrap();
    assert_eq!((look(&path).st_uid, look(&path).st_gid), (BEN.uid, CLUB));
    chown(&path, None, None).unwrap();
    assert_eq!((look(&path).st_uid, look(&path).st_gid), (BEN.uid, CLUB));
}

fn an_owner_gives_to_own_groups_only(place: &Place) {
    let path = place.file_of("file", CAT, 0o644);
    user_context(CAT, || {
        chown(&path, None, Some(CLUB)).unwrap();
        chown(&path, Some(CAT.uid), Some(CAT.gid)).unwrap();
        fails!(chown(&path, None, Some(ANN.gid)), PERM);
    });
    assert_eq!(look(&path).st_gid, CAT.gid);
}

fn changing_attributes_changes_ctime_only(place: &Place) {
    let path = place.file("file", 0o644, b"");
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

fn giving_away_clears_set_id(place: &Place) {
    for (name, before, after) in [("both", 0o6755, 0o755), ("uid", 0o4711, 0o711), ("lock", 0o2644, 0o2644)] {
        let path = place.file_of(name, CAT, before);
        user_context(CAT, || chown(&path, None, Some(CLUB)).unwrap());
        // A set-group bit without its x bit once meant something else, and stays on some filesystems.
        assert!(mode(&path) == after || mode(&path) == after & !0o6000, "{name}: {:o}", mode(&path));
        let path = place.file_of(&format!("{name}-root"), CAT, before);
        chown(&path, Some(ANN.uid), Some(ANN.gid)).unwrap();
        assert!(mode(&path) == after || mode(&path) == after & !0o6000, "{name} by root: {:o}", mode(&path));
    }
    let dir = place.dir_of("dir", CAT, 0o6755);
    chown(&dir, Some(ANN.uid), Some(ANN.gid)).unwrap();
    assert_eq!(mode(&dir), 0o6755, "a directory's bits mean something else");
}

fn writing_clears_set_id(place: &Place) {
    for (name, before) in [("both", 0o6777), ("uid", 0o4777), ("gid", 0o2777)] {
        for user in [ANN, BEN] {
            let path = place.file_of(&format!("{name}-{}", user.uid), ANN, before);
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

fn cutting_clears_set_id(place: &Place) {
    let path = place.file_of("open", ANN, 0o6777);
    user_context(BEN, || open(&path, OFlags::WRONLY | OFlags::TRUNC).map(drop).unwrap());
    assert_eq!(mode(&path), 0o777);
    let path = place.file_of("ftruncate", ANN, 0o6777);
    user_context(BEN, || sys::ftruncate(open(&path, OFlags::WRONLY).unwrap(), 3).unwrap());
    assert_eq!(mode(&path), 0o777);
}

fn root_writes_without_clearing(place: &Place) {
    let path = place.file_of("file", ANN, 0o4755);
    let fd = open(&path, OFlags::WRONLY).unwrap();
    rustix::io::write(&fd, b"root").unwrap();
    drop(fd);
    // An NFS client or server may be stricter.
    assert!(mode(&path) == 0o4755 || !place.local && mode(&path) == 0o755, "{:o}", mode(&path));
}

fn a_set_group_bit_takes_membership(place: &Place) {
    let path = place.file_of("file", ANN, 0o755);
    chown(&path, None, Some(CLUB)).unwrap();
    user_context(ANN, || chmod(&path, 0o2755).unwrap());
    assert_eq!(mode(&path), 0o755, "of a group that she isn't in");
    chown(&path, Some(CAT.uid), None).unwrap();
    user_context(CAT, || chmod(&path, 0o2755).unwrap());
    assert_eq!(mode(&path), 0o2755);
    chown(&path, Some(ANN.uid), None).unwrap();
    chmod(&path, 0o2755).unwrap();
    assert_eq!(mode(&path), 0o2755, "root may");
}

fn a_link_has_an_owner_of_its_own(place: &Place) {
    let path = place.file_of("file", ANN, 0o644);
    sys::symlink("file", place.at("link")).unwrap();
    let (uid, gid) = (rustix::process::Uid::from_raw(BEN.uid), rustix::process::Gid::from_raw(BEN.gid));
    sys::chownat(sys::CWD, place.at("link"), Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).unwrap();
    assert_eq!((look(&place.at("link")).st_uid, look(&path).st_uid), (BEN.uid, ANN.uid));
    chown(&place.at("link"), Some(CAT.uid), None).unwrap();
    assert_eq!((look(&place.at("link")).st_uid, look(&path).st_uid), (BEN.uid, CAT.uid));
    chmod(&place.at("link"), 0o600).unwrap();
    assert_eq!((mode(&path), mode(&place.at("link"))), (0o600, 0o777));
}

fn by_descriptor(place: &Place) {
    let path = place.file_of("file", ANN, 0o644);
    user_context(ANN, || {
        let fd = open(&path, OFlags::RDONLY).unwrap();
        sys::fchmod(&fd, 0o640.into()).unwrap();
        assert_eq!(sys::fstat(&fd).unwrap().st_mode & 0o7777, 0o640);
        fails!(sys::fchown(&fd, Some(rustix::process::Uid::from_raw(BEN.uid)), None), PERM);
    });
    assert_eq!(mode(&path), 0o640);
}

fn inode_numbers_stay_and_differ(place: &Place) {
    let mut seen = std::collections::HashSet::new();
    for number in 0..50 {
        let path = place.file(&format!("file-{number}"), 0o644, b"");
        assert!(seen.insert(look(&path).st_ino));
        assert_eq!(look(&path).st_dev, look(place.path()).st_dev);
    }
    for entry in fs::read_dir(place.path()).unwrap() {
        use std::os::unix::fs::DirEntryExt as _;
        let entry = entry.unwrap();
        assert_eq!(entry.ino(), look(&entry.path()).st_ino);
        assert!(seen.remove(&entry.ino()));
    }
}

fn blocks_are_counted(place: &Place) {
    let path = place.file("file", 0o644, &[7; 100_000]);
    sys::fsync(open(&path, OFlags::RDONLY).unwrap()).unwrap();
    let stat = look(&path);
    assert!(stat.st_blocks * 512 >= 100_000 && stat.st_blocks * 512 < 400_000, "{} blocks", stat.st_blocks);
    assert!(stat.st_blksize >= 512);
    let statfs = sys::statvfs(&path).unwrap();
    assert!(statfs.f_blocks > 0 && statfs.f_bfree <= statfs.f_blocks && statfs.f_namemax >= 255);
    assert!(statfs.f_bavail > 0 && statfs.f_bsize >= 512);
}
