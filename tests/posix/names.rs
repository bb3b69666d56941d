//! Names and paths: lengths, characters, and wrong types of components.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use rustix::fs::{self as sys, FileType, OFlags};

use super::test_dir::{TestDir, create, is_there, mkdir, open};
use super::{checks, fails};

checks![
    names_of_255_bytes_are_fine,
    names_of_256_bytes_are_too_long,
    paths_of_4096_bytes_are_too_long,
    missing_names_give_enoent,
    a_file_is_no_directory,
    symbolic_link_loops,
    symbolic_link_chains,
    nofollow_refuses_a_symbolic_link,
    names_of_any_byte_but_slash_and_nul,
    names_are_case_sensitive,
    dot_and_dotdot,
    trailing_slashes,
    an_empty_name,
];

fn names_of_255_bytes_are_fine(base: &TestDir) {
    let (file, dir) = (base.at("f".repeat(255)), base.at("d".repeat(255)));
    fs::write(&file, b"long").unwrap();
    mkdir(&dir, 0o755).unwrap();
    sys::rename(&file, base.at("r".repeat(255))).unwrap();
    sys::link(base.at("r".repeat(255)), &file).unwrap();
    sys::symlink("anywhere", base.at("s".repeat(255))).unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"long");
    assert_eq!(fs::read_dir(base.path()).unwrap().count(), 4);
    sys::unlink(&file).unwrap();
    sys::rmdir(&dir).unwrap();
}

fn names_of_256_bytes_are_too_long(base: &TestDir) {
    let long = base.at("x".repeat(256));
    let file = base.file("file", 0o644, b"");
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

fn paths_of_4096_bytes_are_too_long(base: &TestDir) {
    let mut path = base.path().to_owned();
    while path.as_os_str().len() < 4096 {
        path.push("d".repeat(100));
    }
    fails!(sys::lstat(&path), NAMETOOLONG);
    fails!(sys::symlink("x".repeat(4096), base.at("link")), NAMETOOLONG);
}

fn missing_names_give_enoent(base: &TestDir) {
    let (missing, below) = (base.at("missing"), base.at("missing/below"));
    let file = base.file("file", 0o644, b"");
    for path in [&missing, &below] {
        fails!(open(path, OFlags::RDONLY), NOENT);
        fails!(sys::lstat(path), NOENT);
        fails!(sys::unlink(path), NOENT);
        fails!(sys::rmdir(path), NOENT);
        fails!(sys::rename(path, base.at("new")), NOENT);
        fails!(sys::link(path, base.at("new")), NOENT);
        fails!(sys::readlink(path, Vec::new()), NOENT);
    }
    fails!(mkdir(&below, 0o755), NOENT);
    fails!(create(&below, OFlags::WRONLY, 0o644), NOENT);
    fails!(sys::rename(&file, &below), NOENT);
    fails!(sys::link(&file, &below), NOENT);
    fails!(sys::symlink("x", &below), NOENT);
    assert!(!is_there(&base.at("new")));
}

fn a_file_is_no_directory(base: &TestDir) {
    let file = base.file("file", 0o644, b"");
    let (other, below) = (base.file("other", 0o644, b""), file.join("below"));
    fails!(open(&below, OFlags::RDONLY), NOTDIR);
    fails!(create(&below, OFlags::WRONLY, 0o644), NOTDIR);
    fails!(sys::lstat(&below), NOTDIR);
    fails!(mkdir(&below, 0o755), NOTDIR);
    fails!(sys::unlink(&below), NOTDIR);
    fails!(sys::rmdir(&below), NOTDIR);
    fails!(sys::rename(&below, base.at("new")), NOTDIR);
    fails!(sys::rename(&other, &below), NOTDIR);
    fails!(sys::link(&other, &below), NOTDIR);
    fails!(sys::symlink("x", &below), NOTDIR);
    fails!(open(&file, OFlags::RDONLY | OFlags::DIRECTORY), NOTDIR);
    fails!(sys::rmdir(&file), NOTDIR);
}

fn symbolic_link_loops(base: &TestDir) {
    sys::symlink("b", base.at("a")).unwrap();
    sys::symlink("a", base.at("b")).unwrap();
    sys::symlink("self/x", base.at("self")).unwrap();
    for name in ["a", "b", "self", "a/below"] {
        let path = base.at(name);
        fails!(open(&path, OFlags::RDONLY), LOOP);
        fails!(sys::stat(&path), LOOP);
    }
    fails!(create(&base.at("a"), OFlags::WRONLY, 0o644), LOOP);
    sys::unlink(base.at("a")).unwrap();
    fails!(open(&base.at("b"), OFlags::RDONLY), NOENT);
}

fn symbolic_link_chains(base: &TestDir) {
    base.file("end", 0o644, b"the end");
    sys::symlink("end", base.at("link-1")).unwrap();
    for number in 2..=41 {
        sys::symlink(format!("link-{}", number - 1), base.at(format!("link-{number}"))).unwrap();
    }
    assert_eq!(fs::read(base.at("link-40")).unwrap(), b"the end");
    fails!(open(&base.at("link-41"), OFlags::RDONLY), LOOP);
}

fn nofollow_refuses_a_symbolic_link(base: &TestDir) {
    base.file("file", 0o644, b"");
    sys::symlink("file", base.at("link")).unwrap();
    fails!(open(&base.at("link"), OFlags::RDONLY | OFlags::NOFOLLOW), LOOP);
    open(&base.at("link"), OFlags::PATH | OFlags::NOFOLLOW).unwrap();
    open(&base.at("link"), OFlags::RDONLY).unwrap();
}

fn names_of_any_byte_but_slash_and_nul(base: &TestDir) {
    let all: Vec<u8> = (1..=255).filter(|byte| *byte != b'/').collect();
    let names: Vec<PathBuf> = [&all[..], b"\n", b" ", b"\\", b"*", b"\xff\xfe", b"-", b"...", b".hidden"]
        .into_iter()
        .map(|name| base.at(OsStr::from_bytes(name)))
        .collect();
    for name in &names {
        fs::write(name, name.as_os_str().as_bytes()).unwrap();
    }
    for name in &names {
        assert_eq!(fs::read(name).unwrap(), name.as_os_str().as_bytes());
    }
    let mut listed: Vec<Vec<u8>> = fs::read_dir(base.path())
        .unwrap()
        .map(|entry| entry.unwrap().path().into_os_string().into_vec())
        .collect();
    let mut expected: Vec<Vec<u8>> = names.iter().map(|name| name.as_os_str().as_bytes().to_vec()).collect();
    listed.sort();
    expected.sort();
    assert_eq!(listed, expected);
}

fn names_are_case_sensitive(base: &TestDir) {
    base.file("name", 0o644, b"lower");
    base.file("NAME", 0o644, b"upper");
    assert_eq!(fs::read(base.at("name")).unwrap(), b"lower");
    fails!(open(&base.at("Name"), OFlags::RDONLY), NOENT);
}

fn dot_and_dotdot(base: &TestDir) {
    let dir = base.at("dir");
    mkdir(&dir, 0o755).unwrap();
    mkdir(&dir.join("sub"), 0o755).unwrap();
    let inode = |path: PathBuf| sys::stat(path).unwrap().st_ino;
    assert_eq!(inode(dir.join(".")), inode(dir.clone()));
    assert_eq!(inode(dir.join("sub/..")), inode(dir.clone()));
    fails!(sys::rmdir(dir.join(".")), INVAL);
    fails!(sys::rmdir(dir.join("sub/..")), NOTEMPTY);
    fails!(sys::unlink(dir.join(".")), ISDIR | PERM);
    fails!(sys::rename(dir.join("."), base.at("new")), BUSY | INVAL);
    fails!(mkdir(&dir.join("."), 0o755), EXIST);
    fails!(mkdir(&dir.join(".."), 0o755), EXIST);
}

fn trailing_slashes(base: &TestDir) {
    base.file("file", 0o644, b"");
    mkdir(&base.at("dir/"), 0o755).unwrap();
    fails!(open(&base.at("file/"), OFlags::RDONLY), NOTDIR);
    fails!(create(&base.at("new/"), OFlags::WRONLY, 0o644), ISDIR);
    fails!(sys::rename(base.at("file"), base.at("new/")), NOTDIR);
    sys::symlink("dir", base.at("link")).unwrap();
    assert_eq!(sys::lstat(base.at("link/")).unwrap().st_ino, sys::stat(base.at("dir")).unwrap().st_ino);
    fails!(sys::rmdir(base.at("link/")), NOTDIR);
    sys::rename(base.at("dir"), base.at("moved/")).unwrap();
    sys::rmdir(base.at("moved/")).unwrap();
}

fn an_empty_name(base: &TestDir) {
    fails!(sys::lstat(""), NOENT);
    fails!(sys::symlink("", base.at("link")), NOENT);
    fails!(sys::open("", OFlags::RDONLY, 0.into()), NOENT);
}
