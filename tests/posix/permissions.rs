//! Permissions: classes, groups, directories, the sticky bit, root.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::fs::{self as sys, Access, AtFlags, OFlags};
use rustix::io::Errno;

use super::test_dir::{
    ANN, BEN, CAT, CLUB, TestDir, User, become_user, chmod, chown, create, is_there, mkdir, open,
    user_context, when_closed,
};
use super::{checks, fails};

checks![
    exactly_one_class_applies,
    supplementary_groups_apply,
    sixteen_groups_apply,
    search_and_list_permissions_of_a_directory,
    a_directory_without_write_permission,
    the_sticky_bit_protects_names_of_other_users,
    root_bypasses_permissions,
    access_agrees_with_open,
    execution_requires_the_x_bit,
    an_executable_without_read_permission_runs,
    an_open_file_gives_other_users_no_access,
    a_mode_change_applies_at_once,
    a_thread_with_a_changed_user,
    a_thread_with_changed_groups,
    renaming_requires_write_permission_on_both_directories,
    truncating_requires_write_permission,
    every_directory_of_a_path_must_be_searchable,
    an_open_file_stays_accessible,
];

fn may(user: User, path: &std::path::Path, flags: OFlags) -> bool {
    user_context(user, || match open(path, flags) {
        Ok(_) => true,
        Err(Errno::ACCESS) => false,
        Err(error) => panic!("{}: {error}", path.display()),
    })
}

fn exactly_one_class_applies(base: &TestDir) {
    // The owner is Ann, the group is CLUB (of which Cat is a member), Ben belongs to the others.
    for (number, mode) in
        [0o700, 0o070, 0o007, 0o477, 0o747, 0o774, 0o600, 0o060, 0o006, 0o640, 0o204].iter().enumerate()
    {
        let path = base.file_of(&format!("file-{number}"), ANN, 0o600);
        chown(&path, None, Some(CLUB)).unwrap();
        chmod(&path, *mode).unwrap();
        for (user, shift) in [(ANN, 6), (CAT, 3), (BEN, 0)] {
            let bits = mode >> shift & 7;
            assert_eq!(may(user, &path, OFlags::RDONLY), bits & 4 != 0, "{mode:o} read by {}", user.uid);
            assert_eq!(may(user, &path, OFlags::WRONLY), bits & 2 != 0, "{mode:o} written by {}", user.uid);
            assert_eq!(may(user, &path, OFlags::RDWR), bits & 6 == 6, "{mode:o} both by {}", user.uid);
        }
    }
}

fn supplementary_groups_apply(base: &TestDir) {
    let path = base.file_of("file", ANN, 0o640);
    chown(&path, None, Some(CLUB)).unwrap();
    assert!(may(CAT, &path, OFlags::RDONLY) && !may(BEN, &path, OFlags::RDONLY));
    let member = User { groups: &[CLUB], ..BEN };
    assert!(may(member, &path, OFlags::RDONLY));
    assert!(may(User { gid: CLUB, ..BEN }, &path, OFlags::RDONLY));
    assert!(!may(BEN, &path, OFlags::RDONLY));
}

/// AUTH_SYS has at most sixteen.
fn sixteen_groups_apply(base: &TestDir) {
    const GROUPS: &[u32] = &[101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 114, 115, CLUB];
    let path = base.file_of("file", ANN, 0o640);
    chown(&path, None, Some(CLUB)).unwrap();
    assert!(may(User { groups: GROUPS, ..BEN }, &path, OFlags::RDONLY));
    assert!(!may(User { groups: &GROUPS[..15], ..BEN }, &path, OFlags::RDONLY));
}

fn search_and_list_permissions_of_a_directory(base: &TestDir) {
    for (name, mode) in [("list", 0o744), ("search", 0o711), ("none", 0o700)] {
        let dir = base.dir_of(name, ANN, 0o755);
        fs::write(dir.join("file"), b"inside").unwrap();
        chmod(&dir.join("file"), 0o644).unwrap();
        chmod(&dir, mode).unwrap();
    }
    user_context(BEN, || {
        let names = |name: &str| fs::read_dir(base.at(name)).map(Iterator::count);
        assert_eq!(names("list").unwrap(), 1);
        base.eventually(|| sys::lstat(base.at("list/file")).is_err());
        fails!(sys::lstat(base.at("list/file")), ACCESS);
        fails!(open(&base.at("list/file"), OFlags::RDONLY), ACCESS);
        fails!(open(&base.at("search"), OFlags::RDONLY | OFlags::DIRECTORY), ACCESS);
        assert_eq!(fs::read(base.at("search/file")).unwrap(), b"inside");
        fails!(sys::lstat(base.at("search/none")), NOENT);
        base.eventually(|| sys::lstat(base.at("none/file")).is_err());
        fails!(sys::lstat(base.at("none/file")), ACCESS);
        fails!(open(&base.at("none"), OFlags::RDONLY), ACCESS);
        sys::lstat(base.at("none")).unwrap();
    });
    user_context(ANN, || assert_eq!(fs::read(base.at("none/file")).unwrap(), b"inside"));
}

fn a_directory_without_write_permission(base: &TestDir) {
    let dir = base.dir_of("dir", ANN, 0o755);
    user_context(ANN, || {
        fs::write(dir.join("file"), b"").unwrap();
        mkdir(&dir.join("sub"), 0o777).unwrap();
        chmod(&dir.join("file"), 0o666).unwrap();
    });
    user_context(BEN, || {
        fails!(create(&dir.join("new"), OFlags::WRONLY, 0o644), ACCESS);
        fails!(mkdir(&dir.join("new"), 0o755), ACCESS);
        fails!(sys::symlink("x", dir.join("new")), ACCESS);
        fails!(sys::link(dir.join("file"), dir.join("new")), ACCESS);
        fails!(sys::unlink(dir.join("file")), ACCESS);
        fails!(sys::rmdir(dir.join("sub")), ACCESS);
        fails!(sys::rename(dir.join("file"), dir.join("new")), ACCESS);
        // The file in it may be written nevertheless.
        fs::write(dir.join("file"), b"written").unwrap();
    });
}

fn the_sticky_bit_protects_names_of_other_users(base: &TestDir) {
    let dir = base.dir_of("dir", CAT, 0o1777);
    assert_eq!(super::test_dir::mode(&dir), 0o1777);
    for name in ["a", "b", "c", "d"] {
        base.file_of(&format!("dir/{name}"), ANN, 0o666);
    }
    let sub = base.dir_of("dir/sub", ANN, 0o777);
    user_context(BEN, || {
        fails!(sys::unlink(dir.join("a")), PERM | ACCESS);
        fails!(sys::rename(dir.join("a"), dir.join("new")), PERM | ACCESS);
        fails!(sys::rmdir(&sub), PERM | ACCESS);
        fs::write(dir.join("mine"), b"").unwrap();
        fails!(sys::rename(dir.join("mine"), dir.join("a")), PERM | ACCESS);
        sys::unlink(dir.join("mine")).unwrap();
    });
    user_context(ANN, || sys::unlink(dir.join("a")).unwrap());
    user_context(CAT, || sys::unlink(dir.join("b")).unwrap());
    sys::unlink(dir.join("c")).unwrap();
    user_context(ANN, || sys::rename(dir.join("d"), dir.join("e")).unwrap());
}

fn root_bypasses_permissions(base: &TestDir) {
    let dir = base.dir_of("dir", ANN, 0o700);
    user_context(ANN, || {
        fs::write(dir.join("file"), b"private").unwrap();
        chmod(&dir.join("file"), 0).unwrap();
        chmod(&dir, 0).unwrap();
    });
    assert_eq!(fs::read(dir.join("file")).unwrap(), b"private");
    fs::write(dir.join("file"), b"root's").unwrap();
    fs::write(dir.join("new"), b"").unwrap();
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 2);
    // But a file without any x bit can't be executed.
    fails!(sys::access(dir.join("file"), Access::EXEC_OK), ACCESS);
    chmod(&dir.join("file"), 0o001).unwrap();
    sys::access(dir.join("file"), Access::EXEC_OK).unwrap();
}

fn access_agrees_with_open(base: &TestDir) {
    let all = [(Access::READ_OK, 4), (Access::WRITE_OK, 2), (Access::EXEC_OK, 1)];
    for mode in 0..8 {
        let path = base.file_of(&format!("file-{mode}"), ANN, 0o770 | mode);
        let dir = base.dir_of(&format!("dir-{mode}"), ANN, 0o770 | mode);
        user_context(BEN, || {
            for (access, bit) in all {
                for path in [&path, &dir] {
                    // NFS's ACCESS has no bit for a directory that may be modified but not searched.
                    if !base.local && path == &dir && bit == 2 && mode & 1 == 0 {
                        continue;
                    }
                    let result = sys::access(path, access);
                    assert_eq!(result.is_ok(), mode & bit != 0, "{mode:o} {access:?} {}", path.display());
                    assert_eq!(sys::accessat(sys::CWD, path, access, AtFlags::EACCESS), result);
                }
            }
            sys::access(&path, Access::EXISTS).unwrap();
            fails!(sys::access(base.at("none"), Access::EXISTS), NOENT);
        });
    }
}

fn script(base: &TestDir, mode: u32) -> std::path::PathBuf {
    base.file("program", mode, b"#!/bin/sh\necho ran\n")
}

fn runs(path: &std::path::Path, user: User) -> Result<String, std::io::Error> {
    let output = when_closed(|| Command::new(path).uid(user.uid).gid(user.gid).output())?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn execution_requires_the_x_bit(base: &TestDir) {
    let path = script(base, 0o755);
    assert_eq!(runs(&path, ANN).unwrap(), "ran");
    chmod(&path, 0o644).unwrap();
    assert_eq!(runs(&path, ANN).unwrap_err().raw_os_error(), Some(Errno::ACCESS.raw_os_error()));
    assert!(runs(&path, User { uid: 0, gid: 0, groups: &[] }).is_err(), "not even root");
    chmod(&path, 0o100).unwrap();
    assert!(runs(&path, ANN).is_err(), "the bit of another class");
}

fn an_executable_without_read_permission_runs(base: &TestDir) {
    let path = base.at("true");
    fs::copy("/bin/true", &path).unwrap();
    chmod(&path, 0o711).unwrap();
    assert!(!may(ANN, &path, OFlags::RDONLY));
    assert_eq!(runs(&path, ANN).unwrap(), "");
}

fn an_open_file_gives_other_users_no_access(base: &TestDir) {
    let path = base.file_of("file", ANN, 0o600);
    let held = open(&path, OFlags::RDWR).unwrap();
    let mut bytes = [0; 8];
    rustix::io::read(&held, &mut bytes[..]).unwrap();
    for flags in [OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR] {
        assert!(!may(BEN, &path, flags), "root has it open, Ben has no permission");
        assert!(may(ANN, &path, flags));
    }
}

fn a_mode_change_applies_at_once(base: &TestDir) {
    let path = base.file_of("file", ANN, 0o600);
    for _ in 0..5 {
        assert!(!may(BEN, &path, OFlags::RDONLY));
        user_context(ANN, || chmod(&path, 0o604).unwrap());
        assert!(may(BEN, &path, OFlags::RDONLY));
        user_context(ANN, || chmod(&path, 0o600).unwrap());
    }
    let dir = base.dir_of("dir", ANN, 0o700);
    assert!(user_context(BEN, || open(&dir, OFlags::RDONLY)).is_err());
    chmod(&dir, 0o755).unwrap();
    assert!(user_context(BEN, || open(&dir, OFlags::RDONLY)).is_ok());
    chown(&path, Some(BEN.uid), None).unwrap();
    assert!(may(BEN, &path, OFlags::RDWR) && !may(ANN, &path, OFlags::RDWR));
}

fn a_thread_with_a_changed_user(base: &TestDir) {
    let path = base.file_of("file", ANN, 0o600);
    // Only the effective user changes, so that the thread can change back.
    let as_user = |uid: u32| {
        let uid = rustix::process::Uid::from_raw(uid);
        rustix::thread::set_thread_res_uid(None, uid, None).unwrap();
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..5 {
                as_user(ANN.uid);
                open(&path, OFlags::RDWR).unwrap();
                as_user(0);
                as_user(BEN.uid);
                fails!(open(&path, OFlags::RDONLY), ACCESS);
                // access(2) checks the real user, which is root.
                sys::access(&path, Access::READ_OK).unwrap();
                fails!(sys::accessat(sys::CWD, &path, Access::READ_OK, AtFlags::EACCESS), ACCESS);
                as_user(0);
            }
        });
    });
}

fn a_thread_with_changed_groups(base: &TestDir) {
    let path = base.file_of("file", ANN, 0o640);
    chown(&path, None, Some(CLUB)).unwrap();
    let groups = |groups: &[u32]| {
        let groups: Vec<_> = groups.iter().map(|gid| rustix::process::Gid::from_raw(*gid)).collect();
        rustix::thread::set_thread_groups(&groups).unwrap();
    };
    let uid = |uid: u32| {
        rustix::thread::set_thread_res_uid(None, rustix::process::Uid::from_raw(uid), None).unwrap();
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..5 {
                groups(&[CLUB]);
                uid(BEN.uid);
                base.eventually(|| open(&path, OFlags::RDONLY).is_ok());
                open(&path, OFlags::RDONLY).unwrap();
                uid(0);
                groups(&[]);
                uid(BEN.uid);
                // A mount reads the groups from /proc and caches them for a moment.
                base.eventually(|| open(&path, OFlags::RDONLY).is_err());
                fails!(open(&path, OFlags::RDONLY), ACCESS);
                uid(0);
            }
        });
    });
}

fn renaming_requires_write_permission_on_both_directories(base: &TestDir) {
    let (mine, theirs) = (base.dir_of("mine", ANN, 0o755), base.dir_of("theirs", BEN, 0o755));
    user_context(ANN, || {
        fs::write(mine.join("file"), b"").unwrap();
        fails!(sys::rename(mine.join("file"), theirs.join("file")), ACCESS);
    });
    user_context(BEN, || fails!(sys::rename(mine.join("file"), theirs.join("file")), ACCESS));
    assert!(is_there(&mine.join("file")));
}

fn truncating_requires_write_permission(base: &TestDir) {
    let path = base.file_of("file", ANN, 0o604);
    user_context(BEN, || {
        fails!(
            fs::OpenOptions::new().write(true).open(&path).map_err(|e| Errno::from_io_error(&e).unwrap()),
            ACCESS
        );
        fails!(open(&path, OFlags::RDONLY | OFlags::TRUNC), ACCESS);
        let reading = open(&path, OFlags::RDONLY).unwrap();
        fails!(sys::ftruncate(&reading, 0), INVAL | BADF);
    });
    assert_eq!(fs::read(&path).unwrap(), b"contents");
    // Nor by path, even as the owner.
    for (user, mode, may) in [(BEN, 0o604, false), (ANN, 0o444, false), (ANN, 0o200, true)] {
        chmod(&path, mode).unwrap();
        assert_eq!(truncates(&path, user), may, "{mode:o}");
    }
    assert_eq!(fs::read(&path).unwrap(), b"cont");
}

/// Whether truncate(2) to four bytes is permitted.
fn truncates(path: &std::path::Path, user: User) -> bool {
    let mut command = Command::new("python3");
    command.args([
        "-c",
        "import os, sys\ntry: os.truncate(sys.argv[1], 4)\nexcept PermissionError: sys.exit(9)",
    ]);
    let status = command.arg(path).uid(user.uid).gid(user.gid).status().unwrap();
    assert!(matches!(status.code(), Some(0 | 9)), "{status}");
    status.success()
}

fn every_directory_of_a_path_must_be_searchable(base: &TestDir) {
    let dir = base.dir_of("dir", ANN, 0o755);
    mkdir(&dir.join("sub"), 0o777).unwrap();
    fs::write(dir.join("sub/file"), b"").unwrap();
    chmod(&dir.join("sub/file"), 0o666).unwrap();
    user_context(BEN, || open(&dir.join("sub/file"), OFlags::RDWR).map(drop).unwrap());
    chmod(&dir, 0o700).unwrap();
    user_context(BEN, || {
        base.eventually(|| sys::lstat(dir.join("sub")).is_err());
        fails!(open(&dir.join("sub/file"), OFlags::RDONLY), ACCESS);
        fails!(sys::lstat(dir.join("sub")), ACCESS);
        fails!(sys::unlink(dir.join("sub/file")), ACCESS);
    });
}

/// An open file stays open when its mode, its owner, or the user of the process changes.
fn an_open_file_stays_accessible(base: &TestDir) {
    let path = base.file_of("file", ANN, 0o600);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            become_user(ANN);
            let fd = open(&path, OFlags::RDWR).unwrap();
            chmod(&path, 0).unwrap();
            let mut bytes = [0; 8];
            assert_eq!(rustix::io::pread(&fd, &mut bytes[..], 0).unwrap(), 8);
            rustix::io::pwrite(&fd, b"CONTENTS", 0).unwrap();
            sys::ftruncate(&fd, 4).unwrap();
            fails!(open(&path, OFlags::RDONLY), ACCESS);
        });
    });
    assert_eq!(fs::read(&path).unwrap(), b"CONT");
}
