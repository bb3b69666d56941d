//! Hard links, and open files without a name.

use std::fs;

use rustix::fs::{self as sys, AtFlags, OFlags};

use super::test_dir::{ANN, TestDir, changed, is_there, lstat, mkdir, open, tick, user_context};
use super::{checks, fails};

checks![
    links_are_one_file,
    links_are_counted,
    linking_and_unlinking_change_ctime,
    directories_cannot_be_hard_linked,
    a_hard_link_to_a_symbolic_link,
    an_open_file_outlives_its_name,
    an_open_file_outlives_being_replaced,
    an_open_file_outlives_one_of_two_names,
    a_directory_can_be_removed_after_the_last_close_in_it,
    an_unlinked_file_can_be_truncated_and_chmodded,
];

fn links_are_one_file(base: &TestDir) {
    let (one, two) = (base.file("one", 0o640, b"first"), base.at("two"));
    sys::link(&one, &two).unwrap();
    assert_eq!(lstat(&one).st_ino, lstat(&two).st_ino);
    fs::write(&two, b"second").unwrap();
    assert_eq!(fs::read(&one).unwrap(), b"second");
    super::test_dir::chmod(&one, 0o600).unwrap();
    assert_eq!(super::test_dir::mode(&two), 0o600);
    sys::unlink(&one).unwrap();
    assert_eq!(fs::read(&two).unwrap(), b"second");
    // The kernel may tell a mount of the close later than of the unlink. Until then there is a hidden name.
    base.eventually(|| lstat(&two).st_nlink == 1);
}

fn links_are_counted(base: &TestDir) {
    let file = base.file("file", 0o644, b"");
    for number in 1..=10 {
        sys::link(&file, base.at(format!("link-{number}"))).unwrap();
        assert_eq!(lstat(&file).st_nlink, number + 1);
        assert_eq!(lstat(&base.at(format!("link-{number}"))).st_nlink, number + 1);
    }
    for number in (1..=10).rev() {
        sys::unlink(base.at(format!("link-{number}"))).unwrap();
        assert_eq!(lstat(&file).st_nlink, number);
    }
}

fn linking_and_unlinking_change_ctime(base: &TestDir) {
    let (file, link) = (base.file("file", 0o644, b""), base.at("link"));
    let before = changed(&file);
    tick();
    sys::link(&file, &link).unwrap();
    let linked = changed(&file);
    assert!(linked.1 > before.1 && linked.0 == before.0, "link changes ctime, not mtime");
    tick();
    sys::unlink(&link).unwrap();
    let unlinked = changed(&file);
    assert!(unlinked.1 > linked.1 && unlinked.0 == before.0, "and so does unlink");
}

fn directories_cannot_be_hard_linked(base: &TestDir) {
    mkdir(&base.at("dir"), 0o755).unwrap();
    fails!(sys::link(base.at("dir"), base.at("link")), PERM);
}

fn a_hard_link_to_a_symbolic_link(base: &TestDir) {
    base.file("file", 0o644, b"end");
    sys::symlink("file", base.at("symlink")).unwrap();
    sys::linkat(sys::CWD, base.at("symlink"), sys::CWD, base.at("same"), AtFlags::empty()).unwrap();
    assert_eq!(lstat(&base.at("same")).st_ino, lstat(&base.at("symlink")).st_ino);
    sys::linkat(sys::CWD, base.at("symlink"), sys::CWD, base.at("followed"), AtFlags::SYMLINK_FOLLOW)
        .unwrap();
    assert_eq!(lstat(&base.at("followed")).st_ino, lstat(&base.at("file")).st_ino);
}

/// An open file supports all operations. An NFS client renames it meanwhile, so its link count may be one.
fn check_open_file(base: &TestDir, fd: &std::os::fd::OwnedFd, contents: &[u8]) {
    let mut bytes = vec![0; contents.len() + 1];
    assert_eq!(rustix::io::pread(fd, &mut bytes[..], 0).unwrap(), contents.len());
    assert_eq!(&bytes[..contents.len()], contents);
    assert_eq!(rustix::io::pwrite(fd, b"more", contents.len() as u64).unwrap(), 4);
    let stat = sys::fstat(fd).unwrap();
    assert_eq!(stat.st_size as usize, contents.len() + 4);
    assert!(stat.st_nlink == 0 || !base.local && stat.st_nlink == 1, "{} links", stat.st_nlink);
    sys::fsync(fd).unwrap();
}

fn an_open_file_outlives_its_name(base: &TestDir) {
    let path = base.file("file", 0o644, b"still here");
    let fd = open(&path, OFlags::RDWR).unwrap();
    sys::unlink(&path).unwrap();
    fails!(open(&path, OFlags::RDONLY), NOENT);
    check_open_file(base, &fd, b"still here");
    // The name can be reused.
    fs::write(&path, b"another").unwrap();
    check_open_file(base, &fd, b"still heremore");
    assert_eq!(fs::read(&path).unwrap(), b"another");
}

fn an_open_file_outlives_being_replaced(base: &TestDir) {
    let (old, new) = (base.file("old", 0o644, b"old contents"), base.file("new", 0o644, b"new"));
    let fd = open(&old, OFlags::RDWR).unwrap();
    sys::rename(&new, &old).unwrap();
    check_open_file(base, &fd, b"old contents");
    assert_eq!(fs::read(&old).unwrap(), b"new");
    // A renamed open file keeps its identity.
    let fd = open(&old, OFlags::RDWR).unwrap();
    sys::rename(&old, base.at("elsewhere")).unwrap();
    rustix::io::pwrite(&fd, b"NEW", 0).unwrap();
    drop(fd);
    assert_eq!(fs::read(base.at("elsewhere")).unwrap(), b"NEW");
}

fn an_open_file_outlives_one_of_two_names(base: &TestDir) {
    let path = base.file("file", 0o644, b"one file");
    sys::link(&path, base.at("other")).unwrap();
    let fd = open(&path, OFlags::RDWR).unwrap();
    sys::unlink(&path).unwrap();
    rustix::io::pwrite(&fd, b"ONE", 0).unwrap();
    drop(fd);
    assert_eq!(fs::read(base.at("other")).unwrap(), b"ONE file");
    // The kernel doesn't wait for a FUSE filesystem's RELEASE, which removes the hidden name.
    samehost_tests::wait_for("the last close", || (lstat(&base.at("other")).st_nlink == 1).then_some(()));
}

fn a_directory_can_be_removed_after_the_last_close_in_it(base: &TestDir) {
    let dir = base.at("dir");
    mkdir(&dir, 0o755).unwrap();
    let path = dir.join("file");
    fs::write(&path, b"x").unwrap();
    let (one, two) = (open(&path, OFlags::RDONLY).unwrap(), open(&path, OFlags::RDWR).unwrap());
    sys::unlink(&path).unwrap();
    drop(one);
    let mut byte = [0];
    assert_eq!(rustix::io::pread(&two, &mut byte[..], 0).unwrap(), 1);
    drop(two);
    // The kernel doesn't wait for FUSE's RELEASE after the last close.
    let mut tries = 0;
    while let Err(error) = sys::rmdir(&dir) {
        assert!(!base.local && tries < 6_000, "{error}");
        tries += 1;
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(!is_there(&dir));
}

fn an_unlinked_file_can_be_truncated_and_chmodded(base: &TestDir) {
    user_context(ANN, || {
        let path = base.at("file");
        let fd = super::test_dir::create(&path, OFlags::RDWR, 0o644).unwrap();
        rustix::io::write(&fd, b"0123456789").unwrap();
        sys::unlink(&path).unwrap();
        sys::ftruncate(&fd, 3).unwrap();
        sys::fchmod(&fd, 0o600.into()).unwrap();
        let stat = sys::fstat(&fd).unwrap();
        assert_eq!((stat.st_size, stat.st_mode & 0o7777, stat.st_uid), (3, 0o600, ANN.uid));
    });
}
