//! Listings of directories on a mount: the kernel keeps them, and they are still correct when the directory
//! changes between two listings or during one.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::mem::MaybeUninit;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::RawDir;
use samehost_tests::{DataPath, Mount, Scratch, Serve, need_root, test_each_data_path, wait_for};

const FILES: usize = 5_000;

fn name(number: usize) -> String {
    format!("file-{number:05}")
}

fn names(directory: &Path) -> BTreeSet<String> {
    let name = |entry: fs::DirEntry| entry.file_name().into_string().expect("ASCII");
    fs::read_dir(directory).expect("a directory").map(|entry| name(entry.expect("an entry"))).collect()
}

/// The names of the next entries of a listing, at least `count` unless it ends. With the C library's buffer a
/// single getdents64(2) would return all.
fn next(directory: &File, count: usize) -> Vec<String> {
    let mut buffer = [MaybeUninit::uninit(); 1024];
    let mut entries = RawDir::new(directory, &mut buffer);
    let mut names = Vec::new();
    while names.len() < count || !entries.is_buffer_empty() {
        let Some(entry) = entries.next() else { break };
        let name = entry.expect("an entry").file_name().to_str().expect("ASCII").to_owned();
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    names
}

/// Requests of the kernel so far.
fn requests(mount: &Mount) -> u64 {
    wait_for("a mount without requests under way", || {
        let status = mount.status()?;
        (status["requests_under_way"] == 0).then(|| status["requests"].as_u64().expect("a number"))
    })
}

fn listings_are_kept_and_correct(path: &DataPath) {
    need_root();
    let scratch = Scratch::in_memory();
    let export = scratch.mkdir("export");
    let server = path.serve(&export).start();
    let Some(mount) = path.mount(&server, &export, "") else { return };
    changes_are_seen_at_once(&export, &mount);
    fs::create_dir(export.join("many")).expect("made");
    for number in 0..FILES {
        fs::write(export.join("many").join(name(number)), "").expect("written");
    }
    // The mount has listed its root, so it may believe for a while that there is no such name.
    assert_eq!(names(mount.path()), BTreeSet::from(["many".to_owned()]));
    let (there, here) = (export.join("many"), mount.join("many"));
    a_listing_continues_without_its_cache(&there, &mount, &here);
    a_listing_continues_behind_removed_files(&there, &mount, &here);
}

/// Lists a directory until the kernel serves a listing from its cache.
fn wait_until_cached(mount: &Mount, directory: &Path) {
    wait_for("a cached listing", || {
        let before = requests(mount);
        names(directory);
        // LOOKUP, OPENDIR and RELEASEDIR. Otherwise there are two READDIRs at least.
        (requests(mount) - before <= 3).then_some(())
    });
}

/// Changes on the server and through the mount, with cached listings or within one tick of the filesystem's
/// clock.
fn changes_are_seen_at_once(export: &Path, mount: &Mount) {
    let mut expected = BTreeSet::new();
    for round in 0..6 {
        let settle = || {
            if round % 2 == 0 {
                wait_until_cached(mount, mount.path());
            }
        };
        let (there, here) = (name(2 * round), name(2 * round + 1));
        settle();
        fs::write(export.join(&there), "").expect("written");
        expected.insert(there.clone());
        assert_eq!(names(mount.path()), expected, "made on the server");
        settle();
        let file = File::create(mount.join(&here)).expect("made");
        expected.insert(here.clone());
        assert_eq!(names(mount.path()), expected, "made here");
        settle();
        fs::rename(export.join(&there), export.join("renamed")).expect("renamed");
        expected.remove(&there);
        expected.insert("renamed".to_owned());
        assert_eq!(names(mount.path()), expected, "renamed on the server");
        settle();
        fs::remove_file(mount.join(&here)).expect("removed");
        expected.remove(&here);
        let is_shown = |name: &String| !name.starts_with(".nfs");
        let shown: BTreeSet<_> = names(mount.path()).into_iter().filter(is_shown).collect();
        assert_eq!(shown, expected, "removed here while it is open");
        settle();
        drop(file);
        wait_for("the removal of the open file", || (names(mount.path()) == expected).then_some(()));
        settle();
        fs::remove_file(export.join("renamed")).expect("removed");
        expected.remove("renamed");
        assert_eq!(names(mount.path()), expected, "removed on the server");
    }
}

/// A listing that the kernel serves from its cache goes on when another process makes it drop the cache.
fn a_listing_continues_without_its_cache(export: &Path, mount: &Mount, directory: &Path) {
    let expected = names(directory);
    wait_until_cached(mount, directory);
    let listing = File::open(directory).expect("a directory");
    let mut listed = next(&listing, 500);
    fs::write(export.join("new"), "").expect("written");
    drop(fs::read_dir(directory).expect("a directory"));
    listed.extend(next(&listing, usize::MAX));
    let all: BTreeSet<String> = listed.iter().filter(|name| *name != "new").cloned().collect();
    assert_eq!(all, expected);
    assert!(listed.len() <= FILES + 1, "no name twice");
    fs::remove_file(export.join("new")).expect("removed");
}

/// The same where the entries that were listed last have been removed, as by rm(1).
fn a_listing_continues_behind_removed_files(export: &Path, mount: &Mount, directory: &Path) {
    wait_until_cached(mount, directory);
    let listing = File::open(directory).expect("a directory");
    let removed: BTreeSet<_> = next(&listing, 500).into_iter().collect();
    for name in &removed {
        fs::remove_file(export.join(name)).expect("removed");
    }
    drop(fs::read_dir(directory).expect("a directory"));
    let rest: BTreeSet<_> = next(&listing, usize::MAX).into_iter().collect();
    let expected: BTreeSet<_> = (0..FILES).map(name).filter(|name| !removed.contains(name)).collect();
    assert_eq!(rest, expected);
}

/// The names in a directory that only its owner may search aren't cached. tar(1) makes files in such a
/// directory, and sets its mode at the end.
#[test]
fn a_listing_has_the_names_that_were_not_cached_when_they_were_made() {
    need_root();
    let scratch = Scratch::in_memory();
    let export = scratch.mkdir("export");
    let server = Serve::openly(&export).start();
    let mount = Mount::new(&server, &export, "actimeo=600");
    let directory = mount.join("directory");
    fs::DirBuilder::new().mode(0o700).create(&directory).expect("made");
    for number in 0..100 {
        fs::write(directory.join(name(number)), "").expect("written");
    }
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).expect("chmod(2)");
    assert_eq!(names(&directory).len(), 100);
    let before = requests(&mount);
    for number in 0..100 {
        // The standard library's statx(2) also asks for birth times, which listings don't have.
        rustix::fs::stat(directory.join(name(number))).expect("stat(2)");
    }
    let asked = requests(&mount) - before;
    assert!(asked < 10, "{asked} requests");
}

test_each_data_path!(over, listings_are_kept_and_correct);
