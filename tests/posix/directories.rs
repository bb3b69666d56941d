//! Listings.

use std::collections::BTreeMap;
use std::fs;

use rustix::fs::{self as sys, Dir, FileType, OFlags};

use super::test_dir::{TestDir, is_there, lstat, mkdir, open};
use super::{checks, fails};

checks![
    every_name_is_listed_once,
    file_types_are_listed,
    thousands_of_names,
    a_listing_can_be_rewound,
    a_listing_can_be_continued_at_any_offset,
    removing_while_listing_skips_no_name,
    an_empty_directory_has_itself_and_its_parent,
    a_removed_directory,
    deep_paths,
    two_listings_at_once,
];

fn list(dir: &mut Dir) -> Vec<String> {
    dir.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

fn open_dir(path: &std::path::Path) -> Dir {
    Dir::new(open(path, OFlags::RDONLY | OFlags::DIRECTORY).unwrap()).unwrap()
}

fn every_name_is_listed_once(base: &TestDir) {
    let mut expected: Vec<String> = (0..100).map(|number| format!("name-{number}")).collect();
    for name in &expected {
        base.file(name, 0o644, b"");
    }
    expected.extend([".".to_owned(), "..".to_owned()]);
    expected.sort();
    let mut names = list(&mut open_dir(base.path()));
    names.sort();
    assert_eq!(names, expected);
}

fn file_types_are_listed(base: &TestDir) {
    base.file("file", 0o644, b"");
    mkdir(&base.at("dir"), 0o755).unwrap();
    sys::symlink("x", base.at("link")).unwrap();
    sys::mknodat(sys::CWD, base.at("fifo"), FileType::Fifo, 0o644.into(), 0).unwrap();
    let kinds: BTreeMap<String, FileType> = open_dir(base.path())
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.file_type()))
        .collect();
    for (name, kind) in [
        ("file", FileType::RegularFile),
        ("dir", FileType::Directory),
        ("link", FileType::Symlink),
        ("fifo", FileType::Fifo),
        (".", FileType::Directory),
    ] {
        assert!(kinds[name] == kind || kinds[name] == FileType::Unknown, "{name}: {:?}", kinds[name]);
    }
}

fn thousands_of_names(base: &TestDir) {
    const COUNT: usize = 1_200;
    for number in 0..COUNT {
        sys::symlink("x", base.at(format!("a-name-of-some-length-{number:06}"))).unwrap();
    }
    for _ in 0..2 {
        let mut names = list(&mut open_dir(base.path()));
        assert_eq!(names.len(), COUNT + 2);
        names.sort();
        names.dedup();
        assert_eq!(names.len(), COUNT + 2);
    }
    fs::read_dir(base.path()).unwrap().for_each(|entry| sys::unlink(entry.unwrap().path()).unwrap());
    assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
}

fn a_listing_can_be_rewound(base: &TestDir) {
    for number in 0..10 {
        base.file(&format!("old-{number}"), 0o644, b"");
    }
    let mut dir = open_dir(base.path());
    assert_eq!(list(&mut dir).len(), 12);
    base.file("new", 0o644, b"");
    sys::unlink(base.at("old-3")).unwrap();
    dir.rewind();
    let names = list(&mut dir);
    assert_eq!(names.len(), 12);
    assert!(names.contains(&"new".to_owned()) && !names.contains(&"old-3".to_owned()));
}

/// telldir(3) and seekdir(3): a listing continues after the entry whose offset is given.
fn a_listing_can_be_continued_at_any_offset(base: &TestDir) {
    for number in 0..500 {
        sys::symlink("x", base.at(format!("name-{number}"))).unwrap();
    }
    let mut dir = open_dir(base.path());
    let all: Vec<(String, i64)> = (&mut dir)
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.offset()))
        .collect();
    assert_eq!(all.len(), 502);
    for at in [0, 1, 2, 77, 250, 499, 500] {
        dir.seek(all[at].1).unwrap();
        let rest = list(&mut dir);
        let expected: Vec<&String> = all[at + 1..].iter().map(|(name, _)| name).collect();
        assert_eq!(rest.iter().collect::<Vec<_>>(), expected, "behind {at}");
    }
}

fn removing_while_listing_skips_no_name(base: &TestDir) {
    for number in 0..1_000 {
        sys::symlink("x", base.at(format!("name-{number}"))).unwrap();
    }
    let mut removed = 0;
    for entry in fs::read_dir(base.path()).unwrap() {
        sys::unlink(entry.unwrap().path()).unwrap();
        removed += 1;
    }
    assert_eq!(removed, 1_000);
    sys::rmdir(base.path()).unwrap();
    mkdir(base.path(), 0o777).unwrap();
}

fn an_empty_directory_has_itself_and_its_parent(base: &TestDir) {
    mkdir(&base.at("dir"), 0o755).unwrap();
    let mut entries: Vec<(String, u64)> = open_dir(&base.at("dir"))
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.ino()))
        .collect();
    entries.sort();
    let (own, parent) = (lstat(&base.at("dir")).st_ino, lstat(base.path()).st_ino);
    assert_eq!(entries, [(".".to_owned(), own), ("..".to_owned(), parent)]);
}

fn a_removed_directory(base: &TestDir) {
    let dir = base.at("dir");
    mkdir(&dir, 0o755).unwrap();
    let fd = open(&dir, OFlags::RDONLY | OFlags::DIRECTORY).unwrap();
    sys::rmdir(&dir).unwrap();
    fails!(sys::openat(&fd, "new", OFlags::CREATE | OFlags::WRONLY, 0o644.into()), NOENT | STALE);
    fails!(sys::mkdirat(&fd, "new", 0o755.into()), NOENT | STALE);
    fails!(sys::statat(&fd, "none", sys::AtFlags::empty()), NOENT | STALE);
    assert!(!is_there(&dir));
}

fn deep_paths(base: &TestDir) {
    let mut path = base.path().to_owned();
    for depth in 0..60 {
        path.push(format!("level-{depth}"));
        mkdir(&path, 0o755).unwrap();
    }
    fs::write(path.join("file"), b"deep").unwrap();
    assert_eq!(fs::read(path.join("file")).unwrap(), b"deep");
    let up = path.join("../".repeat(60));
    assert_eq!(sys::stat(&up).unwrap().st_ino, lstat(base.path()).st_ino);
    assert_eq!(fs::canonicalize(&path).unwrap(), path);
    fs::remove_dir_all(base.at("level-0")).unwrap();
}

fn two_listings_at_once(base: &TestDir) {
    for number in 0..300 {
        sys::symlink("x", base.at(format!("name-{number}"))).unwrap();
    }
    let (mut one, mut two) = (open_dir(base.path()), open_dir(base.path()));
    let mut counts = (0, 0);
    loop {
        match (one.next(), two.next()) {
            (None, None) => break,
            (first, second) => {
                counts.0 += usize::from(first.is_some());
                counts.1 += usize::from(second.is_some());
            }
        }
    }
    assert_eq!(counts, (302, 302));
}
