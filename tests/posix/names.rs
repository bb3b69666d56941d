//! Names and paths: how long, made of what, and what stands in the way.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use rustix::fs::{self as sys, FileType, OFlags};

use super::place::{Place, create, is_there, mkdir, open};
use super::{checks, fails};

checks![
    names_of_255_bytes_are_fine,
    names_of_256_bytes_are_too_long,
    paths_of_4096_bytes_are_too_long,
    what_is_missing_is_missing,
    a_file_has_no_names_in_it,
    links_in_a_circle,
    links_in_a_chain,
    a_link_at_the_end_is_not_followed_if_so_told,
    any_byte_but_slash_and_nul,
    case_counts,
    dot_and_dotdot,
    slashes_at_the_end,
    an_empty_name,
];

fn names_of_255_bytes_are_fine(place: &Place) {
    let (file, dir) = (place.at("f".repeat(255)), place.at("d".repeat(255)));
    fs::write(&file, b"long").unwrap();
    mkdir(&dir, 0o755).unwrap();
    sys::rename(&file, place.at("r".repeat(255))).unwrap();
    sys::link(place.at("r".repeat(255)), &file).unwrap();
    sys::symlink("anywhere", place.at("s".repeat(255))).unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"long");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 4);
    sys::unlink(&file).unwrap();
    sys::rmdir(&dir).unwrap();
}

fn names_of_256_bytes_are_too_long(place: &Place) {
    let long = place.at("x".repeat(256));
    let file = place.file("file", 0o644, b"");
    fails!(open(&long, OFlags::RDONLY), NAMETOOLONG);
    fails!(create(&long, OFlags::WRONLY, 0o644), NAMETOOLONG);
    fails!(mkdir(&long, 0o755), NAMETOOLONG);
    fails!(sys::rmdir(&long), NAMETOOLONG);
    fails!(sys::unlink(&long), NAMETOOLONG);
    fails!(sys::lstat(&long), NAMETOOLONG);
    fails!(sys::rename(&file, &long), NAMETOOLONG);
    fails!(sys::rename(&long, &file), NAMETOOLONG);
    fails!(sys::link(&file, &long), NAMETOOLONG);
    fails!(sys::symlink("x", &long), NAMETOOLONG);
    fails!(sys::mknodat(sys::CWD, &long, FileType::Fifo, 0o644.into(), 0), NAMETOOLONG);
    fails!(sys::readlink(&long, Vec::new()), NAMETOOLONG);
}

fn paths_of_4096_bytes_are_too_long(place: &Place) {
    let mut path = place.path().to_owned();
    while path.as_os_str().len() < 4096 {
        path.push("d".repeat(100));
    }
    fails!(sys::lstat(&path), NAMETOOLONG);
    fails!(sys::symlink("x".repeat(4096), place.at("link")), NAMETOOLONG);
}

fn what_is_missing_is_missing(place: &Place) {
    let (missing, below) = (place.at("missing"), place.at("missing/below"));
    let file = place.file("file", 0o644, b"");
    for path in [&missing, &below] {
        fails!(open(path, OFlags::RDONLY), NOENT);
        fails!(sys::lstat(path), NOENT);
        fails!(sys::unlink(path), NOENT);
        fails!(sys::rmdir(path), NOENT);
        fails!(sys::rename(path, place.at("new")), NOENT);
        fails!(sys::link(path, place.at("new")), NOENT);
        fails!(sys::readlink(path, Vec::new()), NOENT);
    }
    fails!(mkdir(&below, 0o755), NOENT);
    fails!(create(&below, OFlags::WRONLY, 0o644), NOENT);
    fails!(sys::rename(&file, &below), NOENT);
    fails!(sys::link(&file, &below), NOENT);
    fails!(sys::symlink("x", &below), NOENT);
    assert!(!is_there(&place.at("new")));
}

fn a_file_has_no_names_in_it(place: &Place) {
    let file = place.file("file", 0o644, b"");
    let (other, below) = (place.file("other", 0o644, b""), file.join("below"));
    fails!(open(&below, OFlags::RDONLY), NOTDIR);
    fails!(create(&below, OFlags::WRONLY, 0o644), NOTDIR);
    fails!(sys::lstat(&below), NOTDIR);
    fails!(mkdir(&below, 0o755), NOTDIR);
    fails!(sys::unlink(&below), NOTDIR);
    fails!(sys::rmdir(&below), NOTDIR);
    fails!(sys::rename(&below, place.at("new")), NOTDIR);
    fails!(sys::rename(&other, &below), NOTDIR);
    fails!(sys::link(&other, &below), NOTDIR);
    fails!(sys::symlink("x", &below), NOTDIR);
    fails!(open(&file, OFlags::RDONLY | OFlags::DIRECTORY), NOTDIR);
    fails!(sys::rmdir(&file), NOTDIR);
}

fn links_in_a_circle(place: &Place) {
    sys::symlink("b", place.at("a")).unwrap();
    sys::symlink("a", place.at("b")).unwrap();
    sys::symlink("self/x", place.at("self")).unwrap();
    for name in ["a", "b", "self", "a/below"] {
        let path = place.at(name);
        fails!(open(&path, OFlags::RDONLY), LOOP);
        fails!(sys::stat(&path), LOOP);
    }
    fails!(create(&place.at("a"), OFlags::WRONLY, 0o644), LOOP);
    sys::unlink(place.at("a")).unwrap();
    fails!(open(&place.at("b"), OFlags::RDONLY), NOENT);
}

fn links_in_a_chain(place: &Place) {
    place.file("end", 0o644, b"the end");
    sys::symlink("end", place.at("link-1")).unwrap();
    for number in 2..=41 {
        sys::symlink(format!("link-{}", number - 1), place.at(format!("link-{number}"))).unwrap();
    }
    assert_eq!(fs::read(place.at("link-40")).unwrap(), b"the end");
    fails!(open(&place.at("link-41"), OFlags::RDONLY), LOOP);
}

fn a_link_at_the_end_is_not_followed_if_so_told(place: &Place) {
    place.file("file", 0o644, b"");
    sys::symlink("file", place.at("link")).unwrap();
    fails!(open(&place.at("link"), OFlags::RDONLY | OFlags::NOFOLLOW), LOOP);
    open(&place.at("link"), OFlags::PATH | OFlags::NOFOLLOW).unwrap();
    open(&place.at("link"), OFlags::RDONLY).unwrap();
}

fn any_byte_but_slash_and_nul(place: &Place) {
    let all: Vec<u8> = (1..=255).filter(|byte| *byte != b'/').collect();
    let names: Vec<PathBuf> = [&all[..], b"\n", b" ", b"\\", b"*", b"\xff\xfe", b"-", b"...", b".hidden"]
        .into_iter()
        .map(|name| place.at(OsStr::from_bytes(name)))
        .collect();
    for name in &names {
        fs::write(name, name.as_os_str().as_bytes()).unwrap();
    }
    for name in &names {
        assert_eq!(fs::read(name).unwrap(), name.as_os_str().as_bytes());
    }
    let mut listed: Vec<Vec<u8>> = fs::read_dir(place.path())
        .unwrap()
        .map(|entry| entry.unwrap().path().into_os_string().into_vec())
        .collect();
    let mut expected: Vec<Vec<u8>> = names.iter().map(|name| name.as_os_str().as_bytes().to_vec()).collect();
    listed.sort();
    expected.sort();
    assert_eq!(listed, expected);
}

fn case_counts(place: &Place) {
    place.file("name", 0o644, b"lower");
    place.file("NAME", 0o644, b"upper");
    assert_eq!(fs::read(place.at("name")).unwrap(), b"lower");
    fails!(open(&place.at("Name"), OFlags::RDONLY), NOENT);
}

fn dot_and_dotdot(place: &Place) {
    let dir = place.at("dir");
    mkdir(&dir, 0o755).unwrap();
    mkdir(&dir.join("sub"), 0o755).unwrap();
    let inode = |path: PathBuf| sys::stat(path).unwrap().st_ino;
    assert_eq!(inode(dir.join(".")), inode(dir.clone()));
    assert_eq!(inode(dir.join("sub/..")), inode(dir.clone()));
    fails!(sys::rmdir(dir.join(".")), INVAL);
    fails!(sys::rmdir(dir.join("sub/..")), NOTEMPTY);
    fails!(sys::unlink(dir.join(".")), ISDIR | PERM);
    fails!(sys::rename(dir.join("."), place.at("new")), BUSY | INVAL);
    fails!(mkdir(&dir.join("."), 0o755), EXIST);
    fails!(mkdir(&dir.join(".."), 0o755), EXIST);
}

fn slashes_at_the_end(place: &Place) {
    place.file("file", 0o644, b"");
    mkdir(&place.at("dir/"), 0o755).unwrap();
    fails!(open(&place.at("file/"), OFlags::RDONLY), NOTDIR);
    fails!(create(&place.at("new/"), OFlags::WRONLY, 0o644), ISDIR);
    fails!(sys::rename(place.at("file"), place.at("new/")), NOTDIR);
    sys::symlink("dir", place.at("link")).unwrap();
    assert_eq!(sys::lstat(place.at("link/")).unwrap().st_ino, sys::stat(place.at("dir")).unwrap().st_ino);
    fails!(sys::rmdir(place.at("link/")), NOTDIR);
    sys::rename(place.at("dir"), place.at("moved/")).unwrap();
    sys::rmdir(place.at("moved/")).unwrap();
}

fn an_empty_name(place: &Place) {
    fails!(sys::lstat(""), NOENT);
    fails!(sys::symlink("", place.at("link")), NOENT);
    fails!(sys::open("", OFlags::RDONLY, 0.into()), NOENT);
}
