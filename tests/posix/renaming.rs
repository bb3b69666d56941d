//! rename(2).

use std::fs;

use rustix::fs::{self as sys, RenameFlags};

use super::place::{Place, changed, is_there, look, mkdir, tick};
use super::{checks, fails};

checks![
    a_file_keeps_everything_but_its_name,
    what_stands_there_is_replaced,
    onto_another_name_of_itself_nothing_happens,
    a_directory_replaces_an_empty_one_only,
    files_and_directories_do_not_replace_one_another,
    a_directory_does_not_go_into_itself,
    both_directories_are_touched,
    a_moved_directory_counts_elsewhere,
    the_replaced_file_has_a_link_less,
    a_link_is_renamed_itself,
    without_replacing,
    exchanging,
    names_below_move_along,
];

fn a_file_keeps_everything_but_its_name(place: &Place) {
    let path = place.file("old", 0o641, b"contents");
    mkdir(&place.at("dir"), 0o755).unwrap();
    let before = look(&path);
    for name in ["new", "dir/newer"] {
        let from = if name == "new" { path.clone() } else { place.at("new") };
        sys::rename(&from, place.at(name)).unwrap();
        let after = look(&place.at(name));
        assert_eq!(
            (after.st_ino, after.st_mode, after.st_size),
            (before.st_ino, before.st_mode, before.st_size)
        );
        assert_eq!((after.st_mtime, after.st_mtime_nsec), (before.st_mtime, before.st_mtime_nsec));
        assert!(!is_there(&from));
    }
    assert_eq!(fs::read(place.at("dir/newer")).unwrap(), b"contents");
}

fn what_stands_there_is_replaced(place: &Place) {
    let (one, two) = (place.file("one", 0o644, b"one"), place.file("two", 0o644, b"two"));
    let inode = look(&one).st_ino;
    sys::rename(&one, &two).unwrap();
    assert_eq!(fs::read(&two).unwrap(), b"one");
    assert_eq!(look(&two).st_ino, inode);
    assert!(!is_there(&one));
    sys::symlink("nowhere", place.at("link")).unwrap();
    sys::rename(&two, place.at("link")).unwrap();
    assert_eq!(fs::read(place.at("link")).unwrap(), b"one");
    assert!(!is_there(&place.at("nowhere")));
}

fn onto_another_name_of_itself_nothing_happens(place: &Place) {
    let path = place.file("one", 0o644, b"one");
    sys::rename(&path, &path).unwrap();
    sys::link(&path, place.at("two")).unwrap();
    sys::rename(&path, place.at("two")).unwrap();
    assert!(is_there(&path) && is_there(&place.at("two")));
    assert_eq!(look(&path).st_nlink, 2);
}

fn a_directory_replaces_an_empty_one_only(place: &Place) {
    for name in ["one", "empty", "full"] {
        mkdir(&place.at(name), 0o755).unwrap();
    }
    place.file("one/file", 0o644, b"");
    place.file("full/file", 0o644, b"");
    fails!(sys::rename(place.at("one"), place.at("full")), NOTEMPTY | EXIST);
    sys::rename(place.at("one"), place.at("empty")).unwrap();
    assert!(is_there(&place.at("empty/file")) && !is_there(&place.at("one")));
}

fn files_and_directories_do_not_replace_one_another(place: &Place) {
    mkdir(&place.at("dir"), 0o755).unwrap();
    place.file("file", 0o644, b"");
    sys::symlink("dir", place.at("link")).unwrap();
    fails!(sys::rename(place.at("dir"), place.at("file")), NOTDIR);
    fails!(sys::rename(place.at("file"), place.at("dir")), ISDIR);
    fails!(sys::rename(place.at("dir"), place.at("link")), NOTDIR);
    assert!(is_there(&place.at("dir")) && is_there(&place.at("file")));
}

fn a_directory_does_not_go_into_itself(place: &Place) {
    mkdir(&place.at("dir"), 0o755).unwrap();
    mkdir(&place.at("dir/sub"), 0o755).unwrap();
    fails!(sys::rename(place.at("dir"), place.at("dir/below")), INVAL);
    fails!(sys::rename(place.at("dir"), place.at("dir/sub/below")), INVAL);
    fails!(sys::rename(place.at("dir/sub"), place.at("dir")), NOTEMPTY | EXIST);
}

fn both_directories_are_touched(place: &Place) {
    let (from, to) = (place.at("from"), place.at("to"));
    mkdir(&from, 0o755).unwrap();
    mkdir(&to, 0o755).unwrap();
    let file = place.file("from/file", 0o644, b"");
    let before = (changed(&from), changed(&to), changed(&file));
    tick();
    sys::rename(&file, to.join("file")).unwrap();
    assert!(changed(&from).0 > before.0.0 && changed(&to).0 > before.1.0);
    let after = changed(&to.join("file"));
    assert!(after.1 > before.2.1 && after.0 == before.2.0, "its ctime, and not its mtime");
    let before = changed(&to);
    tick();
    fails!(sys::rename(to.join("none"), to.join("new")), NOENT);
    assert_eq!(changed(&to), before);
}

fn a_moved_directory_counts_elsewhere(place: &Place) {
    for name in ["a", "b", "a/moved", "a/moved/sub"] {
        mkdir(&place.at(name), 0o755).unwrap();
    }
    sys::rename(place.at("a/moved"), place.at("b/moved")).unwrap();
    assert_eq!((look(&place.at("a")).st_nlink, look(&place.at("b")).st_nlink), (2, 3));
    assert_eq!(sys::stat(place.at("b/moved/..")).unwrap().st_ino, look(&place.at("b")).st_ino);
    assert!(is_there(&place.at("b/moved/sub")));
}

fn the_replaced_file_has_a_link_less(place: &Place) {
    let (one, two) = (place.file("one", 0o644, b""), place.file("two", 0o644, b""));
    sys::link(&two, place.at("kept")).unwrap();
    let before = changed(&two);
    tick();
    sys::rename(&one, &two).unwrap();
    assert_eq!(look(&place.at("kept")).st_nlink, 1);
    assert!(changed(&place.at("kept")).1 > before.1);
}

fn a_link_is_renamed_itself(place: &Place) {
    place.file("file", 0o644, b"");
    sys::symlink("file", place.at("link")).unwrap();
    sys::rename(place.at("link"), place.at("moved")).unwrap();
    assert_eq!(sys::readlink(place.at("moved"), Vec::new()).unwrap().as_bytes(), b"file");
    assert!(is_there(&place.at("file")));
}

/// NFS can't promise it: then it says so, and does nothing.
fn without_replacing(place: &Place) {
    let (one, two) = (place.file("one", 0o644, b"one"), place.file("two", 0o644, b"two"));
    let rename = |to| sys::renameat_with(sys::CWD, &one, sys::CWD, to, RenameFlags::NOREPLACE);
    fails!(rename(&two), EXIST | INVAL);
    assert_eq!((fs::read(&one).unwrap(), fs::read(&two).unwrap()), (b"one".to_vec(), b"two".to_vec()));
    match rename(&place.at("three")) {
        Ok(()) => assert_eq!(fs::read(place.at("three")).unwrap(), b"one"),
        Err(error) => {
            assert!(!place.local && error == rustix::io::Errno::INVAL, "{error}");
            assert!(is_there(&one));
        }
    }
}

fn exchanging(place: &Place) {
    let (one, two) = (place.file("one", 0o644, b"one"), place.file("two", 0o644, b"two"));
    match sys::renameat_with(sys::CWD, &one, sys::CWD, &two, RenameFlags::EXCHANGE) {
        Ok(()) => assert_eq!(fs::read(&one).unwrap(), b"two"),
        Err(error) => {
            assert!(!place.local && error == rustix::io::Errno::INVAL, "{error}");
            assert_eq!(
                (fs::read(&one).unwrap(), fs::read(&two).unwrap()),
                (b"one".to_vec(), b"two".to_vec())
            );
        }
    }
}

fn names_below_move_along(place: &Place) {
    mkdir(&place.at("dir"), 0o755).unwrap();
    mkdir(&place.at("dir/sub"), 0o755).unwrap();
    let file = place.file("dir/sub/file", 0o644, b"deep");
    assert_eq!(fs::read(&file).unwrap(), b"deep");
    sys::rename(place.at("dir"), place.at("moved")).unwrap();
    fails!(sys::lstat(&file), NOENT);
    assert_eq!(fs::read(place.at("moved/sub/file")).unwrap(), b"deep");
    mkdir(&place.at("dir"), 0o755).unwrap();
    fails!(sys::lstat(&file), NOENT);
}
