//! Hard links, and files that have no name any more.

use std::fs;

use rustix::fs::{self as sys, AtFlags, OFlags};

use super::place::{ANN, Place, changed, is_there, look, mkdir, open, tick, user_context};
use super::{checks, fails};

checks![
    links_are_one_file,
    links_are_counted,
    linking_and_unlinking_touch_the_file,
    directories_are_not_linked,
    a_link_to_a_link,
    an_open_file_outlives_its_name,
    an_open_file_outlives_being_replaced,
    an_open_file_outlives_one_of_two_names,
    a_directory_is_free_again_when_the_last_open_file_is_closed,
    an_unlinked_file_is_cut_and_chmodded,
];

fn links_are_one_file(place: &Place) {
    let (one, two) = (place.file("one", 0o640, b"first"), place.at("two"));
    sys::link(&one, &two).unwrap();
    assert_eq!(look(&one).st_ino, look(&two).st_ino);
    fs::write(&two, b"second").unwrap();
    assert_eq!(fs::read(&one).unwrap(), b"second");
    super::place::chmod(&one, 0o600).unwrap();
    assert_eq!(super::place::mode(&two), 0o600);
    sys::unlink(&one).unwrap();
    assert_eq!(fs::read(&two).unwrap(), b"second");
    assert_eq!(look(&two).st_nlink, 1);
}

fn links_are_counted(place: &Place) {
    let file = place.file("file", 0o644, b"");
    for number in 1..=10 {
        sys::link(&file, place.at(format!("link-{number}"))).unwrap();
        assert_eq!(look(&file).st_nlink, number + 1);
        assert_eq!(look(&place.at(format!("link-{number}"))).st_nlink, number + 1);
    }
    for number in (1..=10).rev() {
        sys::unlink(place.at(format!("link-{number}"))).unwrap();
        assert_eq!(look(&file).st_nlink, number);
    }
}

fn linking_and_unlinking_touch_the_file(place: &Place) {
    let (file, link) = (place.file("file", 0o644, b""), place.at("link"));
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

fn directories_are_not_linked(place: &Place) {
    mkdir(&place.at("dir"), 0o755).unwrap();
    fails!(sys::link(place.at("dir"), place.at("link")), PERM);
}

fn a_link_to_a_link(place: &Place) {
    place.file("file", 0o644, b"end");
    sys::symlink("file", place.at("symlink")).unwrap();
    sys::linkat(sys::CWD, place.at("symlink"), sys::CWD, place.at("same"), AtFlags::empty()).unwrap();
    assert_eq!(look(&place.at("same")).st_ino, look(&place.at("symlink")).st_ino);
    sys::linkat(sys::CWD, place.at("symlink"), sys::CWD, place.at("followed"), AtFlags::SYMLINK_FOLLOW)
        .unwrap();
    assert_eq!(look(&place.at("followed")).st_ino, look(&place.at("file")).st_ino);
}

/// Everything that an open file can do goes on. An NFS client gives such a file another name meanwhile, so
/// its links can be counted as one.
fn still_works(place: &Place, fd: &std::os::fd::OwnedFd, contents: &[u8]) {
    let mut bytes = vec![0; contents.len() + 1];
    assert_eq!(rustix::io::pread(fd, &mut bytes[..], 0).unwrap(), contents.len());
    assert_eq!(&bytes[..contents.len()], contents);
    assert_eq!(rustix::io::pwrite(fd, b"more", contents.len() as u64).unwrap(), 4);
    let stat = sys::fstat(fd).unwrap();
    assert_eq!(stat.st_size as usize, contents.len() + 4);
    assert!(stat.st_nlink == 0 || !place.local && stat.st_nlink == 1, "{} links", stat.st_nlink);
    sys::fsync(fd).unwrap();
}

fn an_open_file_outlives_its_name(place: &Place) {
    let path = place.file("file", 0o644, b"still here");
    let fd = open(&path, OFlags::RDWR).unwrap();
    sys::unlink(&path).unwrap();
    fails!(open(&path, OFlags::RDONLY), NOENT);
    still_works(place, &fd, b"still here");
    // The name is free.
    fs::write(&path, b"another").unwrap();
    still_works(place, &fd, b"still heremore");
    assert_eq!(fs::read(&path).unwrap(), b"another");
}

fn an_open_file_outlives_being_replaced(place: &Place) {
    let (old, new) = (place.file("old", 0o644, b"old contents"), place.file("new", 0o644, b"new"));
    let fd = open(&old, OFlags::RDWR).unwrap();
    sys::rename(&new, &old).unwrap();
    still_works(place, &fd, b"old contents");
    assert_eq!(fs::read(&old).unwrap(), b"new");
    // And one that is renamed itself keeps being itself.
    let fd = open(&old, OFlags::RDWR).unwrap();
    sys::rename(&old, place.at("elsewhere")).unwrap();
    rustix::io::pwrite(&fd, b"NEW", 0).unwrap();
    drop(fd);
    assert_eq!(fs::read(place.at("elsewhere")).unwrap(), b"NEW");
}

fn an_open_file_outlives_one_of_two_names(place: &Place) {
    let path = place.file("file", 0o644, b"one file");
    sys::link(&path, place.at("other")).unwrap();
    let fd = open(&path, OFlags::RDWR).unwrap();
    sys::unlink(&path).unwrap();
    rustix::io::pwrite(&fd, b"ONE", 0).unwrap();
    drop(fd);
    assert_eq!(fs::read(place.at("other")).unwrap(), b"ONE file");
    // The kernel doesn't wait for a FUSE filesystem's RELEASE, with which the hidden name goes.
    samehost_tests::wait_for("the last close", || (look(&place.at("other")).st_nlink == 1).then_some(()));
}

fn a_directory_is_free_again_when_the_last_open_file_is_closed(place: &Place) {
    let dir = place.at("dir");
    mkdir(&dir, 0o755).unwrap();
    let path = dir.join("file");
    fs::write(&path, b"x").unwrap();
    let (one, two) = (open(&path, OFlags::RDONLY).unwrap(), open(&path, OFlags::RDWR).unwrap());
    sys::unlink(&path).unwrap();
    drop(one);
    let mut byte = [0];
    assert_eq!(rustix::io::pread(&two, &mut byte[..], 0).unwrap(), 1);
    drop(two);
    // The last close of a file of FUSE is told to its server without waiting.
    let mut tries = 0;
    while let Err(error) = sys::rmdir(&dir) {
        assert!(!place.local && tries < 500, "{error}");
        tries += 1;
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(!is_there(&dir));
}

fn an_unlinked_file_is_cut_and_chmodded(place: &Place) {
    user_context(ANN, || {
        let path = place.at("file");
        let fd = super::place::create(&path, OFlags::RDWR, 0o644).unwrap();
        rustix::io::write(&fd, b"0123456789").unwrap();
        sys::unlink(&path).unwrap();
        sys::ftruncate(&fd, 3).unwrap();
        sys::fchmod(&fd, 0o600.into()).unwrap();
        let stat = sys::fstat(&fd).unwrap();
        assert_eq!((stat.st_size, stat.st_mode & 0o7777, stat.st_uid), (3, 0o600, ANN.uid));
    });
}
