//! Listings.

use std::collections::BTreeMap;
use std::fs;

use rustix::fs::{self as sys, Dir, FileType, OFlags};

use super::place::{Place, is_there, look, mkdir, open};
use super::{checks, fails};

checks![
    every_name_once,
    kinds_are_told,
    thousands_of_names,
    a_listing_can_be_rewound,
    a_listing_can_be_taken_up_where_it_was,
    removing_while_listing_misses_nothing,
    an_empty_directory_has_itself_and_its_parent,
    a_directory_that_is_gone,
    deep_paths,
    two_listings_at_once,
];

fn list(dir: &mut Dir) -> Vec<String> {
    dir.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

fn open_dir(path: &std::path::Path) -> Dir {
    Dir::new(open(path, OFlags::RDONLY | OFlags::DIRECTORY).unwrap()).unwrap()
}

fn every_name_once(place: &Place) {
    let mut expected: Vec<String> = (0..100).map(|number| format!("name-{number}")).collect();
    for name in &expected {
        place.file(name, 0o644, b"");
    }
    expected.extend([".".to_owned(), "..".to_owned()]);
    expected.sort();
    let mut names = list(&mut open_dir(place.path()));
    names.sort();
    assert_eq!(names, expected);
}

fn kinds_are_told(place: &Place) {
    place.file("file", 0o644, b"");
    mkdir(&place.at("dir"), 0o755).unwrap();
    sys::symlink("x", place.at("link")).unwrap();
    sys::mknodat(sys::CWD, place.at("fifo"), FileType::Fifo, 0o644.into(), 0).unwrap();
    let kinds: BTreeMap<String, FileType> = open_dir(place.path())
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

fn thousands_of_names(place: &Place) {
    const COUNT: usize = 1_200;
    for number in 0..COUNT {
        sys::symlink("x", place.at(format!("a-name-of-some-length-{number:06}"))).unwrap();
    }
    for _ in 0..2 {
        let mut names = list(&mut open_dir(place.path()));
        assert_eq!(names.len(), COUNT + 2);
        names.sort();
        names.dedup();
        assert_eq!(names.len(), COUNT + 2);
    }
    fs::read_dir(place.path()).unwrap().for_each(|entry| sys::unlink(entry.unwrap().path()).unwrap());
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
}

fn a_listing_can_be_rewound(place: &Place) {
    for number in 0..10 {
        place.file(&format!("old-{number}"), 0o644, b"");
    }
    let mut dir = open_dir(place.path());
    assert_eq!(list(&mut dir).len(), 12);
    place.file("new", 0o644, b"");
    sys::unlink(place.at("old-3")).unwrap();
    dir.rewind();
    let names = list(&mut dir);
    assert_eq!(names.len(), 12);
    assert!(names.contains(&"new".to_owned()) && !names.contains(&"old-3".to_owned()));
}

/// telldir(3) and seekdir(3): an entry's offset is where the listing goes on behind it.
fn a_listing_can_be_taken_up_where_it_was(place: &Place) {
    for number in 0..500 {
        sys::symlink("x", place.at(format!("name-{number}"))).unwrap();
    }
    let mut dir = open_dir(place.path());
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

fn removing_while_listing_misses_nothing(place: &Place) {
    for number in 0..1_000 {
        sys::symlink("x", place.at(format!("name-{number}"))).unwrap();
    }
    let mut removed = 0;
    for entry in fs::read_dir(place.path()).unwrap() {
        sys::unlink(entry.unwrap().path()).unwrap();
        removed += 1;
    }
    assert_eq!(removed, 1_000);
    sys::rmdir(place.path()).unwrap();
    mkdir(place.path(), 0o777).unwrap();
}

fn an_empty_directory_has_itself_and_its_parent(place: &Place) {
    mkdir(&place.at("dir"), 0o755).unwrap();
    let mut entries: Vec<(String, u64)> = open_dir(&place.at("dir"))
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.ino()))
        .collect();
    entries.sort();
    let (own, parent) = (look(&place.at("dir")).st_ino, look(place.path()).st_ino);
    assert_eq!(entries, [(".".to_owned(), own), ("..".to_owned(), parent)]);
}

fn a_directory_that_is_gone(place: &Place) {
    let dir = place.at("dir");
    mkdir(&dir, 0o755).unwrap();
    let fd = open(&dir, OFlags::RDONLY | OFlags::DIRECTORY).unwrap();
    sys::rmdir(&dir).unwrap();
    fails!(sys::openat(&fd, "new", OFlags::CREATE | OFlags::WRONLY, 0o644.into()), NOENT | STALE);
    fails!(sys::mkdirat(&fd, "new", 0o755.into()), NOENT | STALE);
    fails!(sys::statat(&fd, "none", sys::AtFlags::empty()), NOENT | STALE);
    assert!(!is_there(&dir));
}

fn deep_paths(place: &Place) {
    let mut path = place.path().to_owned();
    for depth in 0..60 {
        path.push(format!("level-{depth}"));
        mkdir(&path, 0o755).unwrap();
    }
    fs::write(path.join("file"), b"deep").unwrap();
    assert_eq!(fs::read(path.join("file")).unwrap(), b"deep");
    let up = path.join("../".repeat(60));
    assert_eq!(sys::stat(&up).unwrap().st_ino, look(place.path()).st_ino);
    assert_eq!(fs::canonicalize(&path).unwrap(), path);
    fs::remove_dir_all(place.at("level-0")).unwrap();
}

fn two_listings_at_once(place: &Place) {
    for number in 0..300 {
        sys::symlink("x", place.at(format!("name-{number}"))).unwrap();
    }
    let (mut one, mut two) = (open_dir(place.path()), open_dir(place.path()));
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
