//! rename(2).

use std::fs;

use rustix::fs::{self as sys, RenameFlags};

use super::test_dir::{TestDir, changed, is_there, lstat, mkdir, tick};
use super::{checks, fails};

checks![
    a_file_keeps_everything_but_its_name,
    an_existing_target_is_replaced,
    renaming_to_a_hard_link_of_itself_does_nothing,
    a_directory_replaces_an_empty_one_only,
    files_and_directories_do_not_replace_one_another,
    a_directory_cannot_be_moved_into_itself,
    renaming_changes_both_directories_times,
    a_moved_directory_updates_link_counts,
    the_replaced_file_loses_a_link,
    renaming_a_symbolic_link_keeps_its_target,
    noreplace,
    exchange,
    names_below_a_renamed_directory_move,
];

fn a_file_keeps_everything_but_its_name(base: &TestDir) {
    let path = base.file("old", 0o641, b"contents");
    mkdir(&base.at("dir"), 0o755).unwrap();
    let before = lstat(&path);
    for name in ["new", "dir/newer"] {
        let from = if name == "new" { path.clone() } else { base.at("new") };
        sys::rename(&from, base.at(name)).unwrap();
        let after = lstat(&base.at(name));
        assert_eq!(
            (after.st_ino, after.st_mode, after.st_size),
            (before.st_ino, before.st_mode, before.st_size)
        );
        assert_eq!((after.st_mtime, after.st_mtime_nsec), (before.st_mtime, before.st_mtime_nsec));
        assert!(!is_there(&from));
    }
    assert_eq!(fs::read(base.at("dir/newer")).unwrap(), b"contents");
}

fn an_existing_target_is_replaced(base: &TestDir) {
    let (one, two) = (base.file("one", 0o644, b"one"), base.file("two", 0o644, b"two"));
    let inode = lstat(&one).st_ino;
    sys::rename(&one, &two).unwrap();
    assert_eq!(fs::read(&two).unwrap(), b"one");
    assert_eq!(lstat(&two).st_ino, inode);
    assert!(!is_there(&one));
    sys::symlink("nowhere", base.at("link")).unwrap();
    sys::rename(&two, base.at("link")).unwrap();
    assert_eq!(fs::read(base.at("link")).unwrap(), b"one");
    assert!(!is_there(&base.at("nowhere")));
}

fn renaming_to_a_hard_link_of_itself_does_nothing(base: &TestDir) {
    let path = base.file("one", 0o644, b"one");
    sys::rename(&path, &path).unwrap();
    sys::link(&path, base.at("two")).unwrap();
    sys::rename(&path, base.at("two")).unwrap();
    assert!(is_there(&path) && is_there(&base.at("two")));
    assert_eq!(lstat(&path).st_nlink, 2);
}

fn a_directory_replaces_an_empty_one_only(base: &TestDir) {
    for name in ["one", "empty", "full"] {
        mkdir(&base.at(name), 0o755).unwrap();
    }
    base.file("one/file", 0o644, b"");
    base.file("full/file", 0o644, b"");
    fails!(sys::rename(base.at("one"), base.at("full")), NOTEMPTY | EXIST);
    sys::rename(base.at("one"), base.at("empty")).unwrap();
    assert!(is_there(&base.at("empty/file")) && !is_there(&base.at("one")));
}

fn files_and_directories_do_not_replace_one_another(base: &TestDir) {
    mkdir(&base.at("dir"), 0o755).unwrap();
    base.file("file", 0o644, b"");
    sys::symlink("dir", base.at("link")).unwrap();
    fails!(sys::rename(base.at("dir"), base.at("file")), NOTDIR);
    fails!(sys::rename(base.at("file"), base.at("dir")), ISDIR);
    fails!(sys::rename(base.at("dir"), base.at("link")), NOTDIR);
    assert!(is_there(&base.at("dir")) && is_there(&base.at("file")));
}

fn a_directory_cannot_be_moved_into_itself(base: &TestDir) {
    mkdir(&base.at("dir"), 0o755).unwrap();
    mkdir(&base.at("dir/sub"), 0o755).unwrap();
    fails!(sys::rename(base.at("dir"), base.at("dir/below")), INVAL);
    fails!(sys::rename(base.at("dir"), base.at("dir/sub/below")), INVAL);
    fails!(sys::rename(base.at("dir/sub"), base.at("dir")), NOTEMPTY | EXIST);
}

fn renaming_changes_both_directories_times(base: &TestDir) {
    let (from, to) = (base.at("from"), base.at("to"));
    mkdir(&from, 0o755).unwrap();
    mkdir(&to, 0o755).unwrap();
    let file = base.file("from/file", 0o644, b"");
    let before = (changed(&from), changed(&to), changed(&file));
    tick();
    sys::rename(&file, to.join("file")).unwrap();
    assert!(changed(&from).0 > before.0.0 && changed(&to).0 > before.1.0);
    let after = changed(&to.join("file"));
    assert!(after.1 > before.2.1 && after.0 == before.2.0, "its ctime, not its mtime");
    let before = changed(&to);
    tick();
    fails!(sys::rename(to.join("none"), to.join("new")), NOENT);
    assert_eq!(changed(&to), before);
}

fn a_moved_directory_updates_link_counts(base: &TestDir) {
    for name in ["a", "b", "a/moved", "a/moved/sub"] {
        mkdir(&base.at(name), 0o755).unwrap();
    }
    sys::rename(base.at("a/moved"), base.at("b/moved")).unwrap();
    assert_eq!((lstat(&base.at("a")).st_nlink, lstat(&base.at("b")).st_nlink), (2, 3));
    assert_eq!(sys::stat(base.at("b/moved/..")).unwrap().st_ino, lstat(&base.at("b")).st_ino);
    assert!(is_there(&base.at("b/moved/sub")));
}

fn the_replaced_file_loses_a_link(base: &TestDir) {
    let (one, two) = (base.file("one", 0o644, b""), base.file("two", 0o644, b""));
    sys::link(&two, base.at("kept")).unwrap();
    let before = changed(&two);
    tick();
    sys::rename(&one, &two).unwrap();
    assert_eq!(lstat(&base.at("kept")).st_nlink, 1);
    assert!(changed(&base.at("kept")).1 > before.1);
}

fn renaming_a_symbolic_link_keeps_its_target(base: &TestDir) {
    base.file("file", 0o644, b"");
    sys::symlink("file", base.at("link")).unwrap();
    sys::rename(base.at("link"), base.at("moved")).unwrap();
    assert_eq!(sys::readlink(base.at("moved"), Vec::new()).unwrap().as_bytes(), b"file");
    assert!(is_there(&base.at("file")));
}

/// NFS can't guarantee it: then it fails and does nothing.
fn noreplace(base: &TestDir) {
    let (one, two) = (base.file("one", 0o644, b"one"), base.file("two", 0o644, b"two"));
    let rename = |to| sys::renameat_with(sys::CWD, &one, sys::CWD, to, RenameFlags::NOREPLACE);
    fails!(rename(&two), EXIST | INVAL);
    assert_eq!((fs::read(&one).unwrap(), fs::read(&two).unwrap()), (b"one".to_vec(), b"two".to_vec()));
    match rename(&base.at("three")) {
        Ok(()) => assert_eq!(fs::read(base.at("three")).unwrap(), b"one"),
        Err(error) => {
            assert!(!base.local && error == rustix::io::Errno::INVAL, "{error}");
            assert!(is_there(&one));
        }
    }
}

fn exchange(base: &TestDir) {
    let (one, two) = (base.file("one", 0o644, b"one"), base.file("two", 0o644, b"two"));
    match sys::renameat_with(sys::CWD, &one, sys::CWD, &two, RenameFlags::EXCHANGE) {
        Ok(()) => assert_eq!(fs::read(&one).unwrap(), b"two"),
        Err(error) => {
            assert!(!base.local && error == rustix::io::Errno::INVAL, "{error}");
            assert_eq!(
                (fs::read(&one).unwrap(), fs::read(&two).unwrap()),
                (b"one".to_vec(), b"two".to_vec())
            );
        }
    }
}

fn names_below_a_renamed_directory_move(base: &TestDir) {
    mkdir(&base.at("dir"), 0o755).unwrap();
    mkdir(&base.at("dir/sub"), 0o755).unwrap();
    let file = base.file("dir/sub/file", 0o644, b"deep");
    assert_eq!(fs::read(&file).unwrap(), b"deep");
    sys::rename(base.at("dir"), base.at("moved")).unwrap();
    fails!(sys::lstat(&file), NOENT);
    assert_eq!(fs::read(base.at("moved/sub/file")).unwrap(), b"deep");
    mkdir(&base.at("dir"), 0o755).unwrap();
    fails!(sys::lstat(&file), NOENT);
}
