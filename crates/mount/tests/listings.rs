//! What opening and listing a directory over the wire costs, and what a listing shows.

mod support;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use client::{Operation, Version};
use samehost_mount::{AttributeTimes, MountOptions};

use support::{Served, Transport, shell_as};

const VERSIONS: [Version; 2] = [Version::V3, Version::V4_2];

/// How long the attributes of files are valid on a mount with the options of [`short_lived`].
const FILE_MIN: Duration = Duration::from_millis(500);

fn short_lived() -> MountOptions {
    let attributes = AttributeTimes { file_min: FILE_MIN, ..AttributeTimes::default() };
    MountOptions { attributes, ..MountOptions::default() }
}

/// The names that an open directory lists.
fn listed(directory: File) -> BTreeSet<String> {
    let entries = rustix::fs::Dir::new(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned());
    names.filter(|name| !name.starts_with('.')).collect()
}

/// The request for the first page also tells whether the user may read the directory, and that it is there.
#[test]
fn a_walk_costs_one_call_a_directory() {
    const DIRECTORIES: u64 = 30;
    let served = Served::start();
    for number in 0..DIRECTORIES {
        let directory = served.export().join(format!("walk/{number}"));
        fs::create_dir_all(&directory).unwrap();
        (0..10).for_each(|file| fs::write(directory.join(file.to_string()), b"").unwrap());
    }
    for version in VERSIONS {
        let mounted = served.mount_by(version, Transport::Wire, short_lived());
        let walk = || {
            let before = mounted.mount.session().counters();
            let (found, _) = shell_as(0, 0, "", &format!("find {} | wc -l", mounted.path("walk").display()));
            assert_eq!(found, format!("{}\n", 1 + DIRECTORIES * 11));
            (before, mounted.mount.session().counters())
        };
        let (before, after) = walk();
        let made = |operation| after.calls(operation) - before.calls(operation);
        assert_eq!(made(Operation::Readdirplus), 1 + DIRECTORIES, "{version:?}");
        // One may be for the way to the directories.
        assert!(made(Operation::Access) <= 1, "{version:?}: {}", made(Operation::Access));
        // The directories' lists say whether the kernel may cache names for all users. By NFSv4 the pages
        // have them.
        let lists = if version == Version::V3 { 2 + DIRECTORIES } else { 1 };
        assert!(made(Operation::Getacl) <= lists, "{version:?}: {}", made(Operation::Getacl));
        assert!(made(Operation::Lookup) <= 2, "{version:?}: {}", made(Operation::Lookup));

        // The files' attributes expire, and with them the listings.
        std::thread::sleep(FILE_MIN);
        let (before, after) = walk();
        assert_eq!(
            after.calls(Operation::Readdirplus) - before.calls(Operation::Readdirplus),
            1 + DIRECTORIES
        );
        let all = after.wire.round_trips - before.wire.round_trips;
        assert!(all <= 1 + DIRECTORIES + 3, "{version:?}: {all}");
    }
}

/// git's status asks for the attributes of all files, by their paths. By NFSv4 one call lists several
/// directories.
#[test]
fn attributes_of_all_files_cost_few_calls_a_directory() {
    const DIRECTORIES: u64 = 30;
    let served = Served::start();
    let files: Vec<String> = (0..DIRECTORIES)
        .flat_map(|directory| (0..10).map(move |file| format!("tree/{directory}/{file}")))
        .collect();
    for version in VERSIONS {
        for file in &files {
            let path = served.export().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, b"1").unwrap();
        }
        let mounted = served.mount_by(version, Transport::Wire, short_lived());
        let lengths = || {
            let before = mounted.mount.session().counters();
            let lengths = files.iter().map(|file| fs::metadata(mounted.path(file)).unwrap().len());
            (lengths.collect::<Vec<_>>(), before, mounted.mount.session().counters())
        };
        let (found, before, after) = lengths();
        assert_eq!(found, vec![1; files.len()]);
        let made = |operation| after.calls(operation) - before.calls(operation);
        // One is for the directory above.
        let listings = if version == Version::V3 { DIRECTORIES } else { DIRECTORIES / 2 };
        assert!(made(Operation::Readdirplus) <= 1 + listings, "{version:?}");
        // Those of the first directories, before they are listed.
        assert!(made(Operation::Lookup) <= 8, "{version:?}: {}", made(Operation::Lookup));

        // Their attributes expire, their names don't.
        fs::write(served.export().join(&files[17]), b"123").unwrap();
        std::thread::sleep(FILE_MIN);
        let (found, before, after) = lengths();
        let expected = (0..files.len()).map(|index| if index == 17 { 3 } else { 1 });
        assert_eq!(found, expected.collect::<Vec<_>>(), "{version:?}");
        let made = |operation| after.calls(operation) - before.calls(operation);
        assert!(made(Operation::Readdirplus) <= listings, "{version:?}");
        let singly = made(Operation::Getattr) + made(Operation::Lookup);
        assert!(singly <= 8, "{version:?}: {singly}");
    }
}

/// What root's requests have had listed together with other directories is for those who may search it.
#[test]
fn what_is_listed_together_is_for_those_who_may_search_it() {
    let served = Served::start();
    for version in VERSIONS {
        let top = format!("{version:?}");
        for number in 0..8 {
            let directory = served.export().join(format!("{top}/{number}"));
            fs::create_dir_all(&directory).unwrap();
            (0..10).for_each(|file| fs::write(directory.join(file.to_string()), b"").unwrap());
            let mode = if number == 5 { 0o700 } else { 0o755 };
            fs::set_permissions(&directory, fs::Permissions::from_mode(mode)).unwrap();
        }
        let mounted = served.mount_by(version, Transport::Wire, MountOptions::default());
        for number in 0..4 {
            let at = mounted.path(&format!("{top}/{number}"));
            (0..10).for_each(|file| assert!(fs::metadata(at.join(file.to_string())).is_ok()));
        }
        for (number, may) in [(4, true), (5, false), (6, true)] {
            let stat = format!("stat {}", mounted.path(&format!("{top}/{number}/7")).display());
            assert_eq!(shell_as(1000, 1000, "", &stat).1, may, "{version:?}: {number}");
        }
    }
}

/// A directory with more files than a page has is listed page by page, as requests for other files come.
#[test]
fn attributes_of_all_files_of_a_large_directory_cost_few_calls() {
    const FILES: usize = 1500;
    let served = Served::start();
    let directory = served.export().join("large");
    fs::create_dir(&directory).unwrap();
    let name = |number| format!("file-{number:04}");
    (0..FILES).for_each(|number| fs::write(directory.join(name(number)), b"1").unwrap());
    for version in VERSIONS {
        fs::write(directory.join(name(7)), b"1").unwrap();
        let attributes = AttributeTimes { file_min: 4 * FILE_MIN, ..AttributeTimes::default() };
        let options = MountOptions { attributes, ..MountOptions::default() };
        let mounted = served.mount_by(version, Transport::Wire, options);
        let lengths = || {
            let before = mounted.mount.session().counters().wire.round_trips;
            let lengths = (0..FILES)
                .map(|number| fs::metadata(mounted.path("large").join(name(number))).unwrap().len());
            (lengths.collect::<Vec<_>>(), mounted.mount.session().counters().wire.round_trips - before)
        };
        let (found, calls) = lengths();
        assert_eq!(found, vec![1; FILES], "{version:?}");
        assert!(calls <= 200, "{version:?}: {calls}");
        fs::write(directory.join(name(7)), b"123").unwrap();
        std::thread::sleep(4 * FILE_MIN);
        let (found, calls) = lengths();
        assert_eq!(found.iter().sum::<u64>(), FILES as u64 + 2, "{version:?}");
        assert!(calls <= 200, "{version:?}: {calls}");
    }
}

/// A user who may search a directory and not read it asks for the attributes of its files.
#[test]
fn attributes_need_no_right_to_list() {
    let served = Served::start();
    let directory = served.export().join("searched");
    fs::create_dir(&directory).unwrap();
    (0..10).for_each(|file| fs::write(directory.join(file.to_string()), b"123").unwrap());
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o711)).unwrap();
    for version in VERSIONS {
        let mounted = served.mount_by(version, Transport::Wire, short_lived());
        let stat = format!("cd {} && stat -c %s 0 1 2 3 4 5 6 7 8 9", mounted.path("searched").display());
        for _ in 0..2 {
            assert_eq!(shell_as(1000, 1000, "", &stat), ("3\n".repeat(10), true), "{version:?}");
            std::thread::sleep(FILE_MIN);
        }
    }
}

#[test]
fn a_listing_shows_what_was_changed_here_since_the_open() {
    let served = Served::start();
    for version in VERSIONS {
        let name = format!("{version:?}");
        let directory = served.export().join(&name);
        fs::create_dir(&directory).unwrap();
        ["removed", "renamed", "stays"].iter().for_each(|name| fs::write(directory.join(name), b"").unwrap());
        let mounted = served.mount_by(version, Transport::Wire, MountOptions::default());
        let at = mounted.path(&name);
        let opened = File::open(&at).unwrap();
        fs::write(at.join("created"), b"").unwrap();
        fs::create_dir(at.join("made")).unwrap();
        fs::remove_file(at.join("removed")).unwrap();
        fs::rename(at.join("renamed"), at.join("another")).unwrap();
        let expected = ["another", "created", "made", "stays"].map(str::to_owned);
        assert_eq!(listed(opened), BTreeSet::from(expected), "{version:?}");
    }
}

/// A program that syncs a directory after each change opens it without reading it.
#[test]
fn a_directory_that_is_opened_often_is_listed_once() {
    let served = Served::start();
    let directory = served.export().join("synced");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("file"), b"").unwrap();
    for version in VERSIONS {
        let mounted = served.mount_by(version, Transport::Wire, MountOptions::default());
        let listings = || mounted.mount.session().counters().calls(Operation::Readdirplus);
        let before = listings();
        for _ in 0..10 {
            File::open(mounted.path("synced")).unwrap().sync_all().unwrap();
        }
        assert!(listings() <= before + 1, "{version:?}: {}", listings() - before);
    }
}

#[test]
fn a_directory_that_may_not_be_read_cannot_be_opened() {
    let served = Served::start();
    let directory = served.export().join("private");
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o711)).unwrap();
    for version in VERSIONS {
        let mounted = served.mount_by(version, Transport::Wire, MountOptions::default());
        let at = mounted.path("private");
        let open = format!("exec 3<{} || exit 1", at.display());
        assert!(!shell_as(1000, 1000, "", &open).1, "{version:?}");
        // Another user's right isn't theirs.
        assert!(listed(File::open(&at).unwrap()).is_empty());
        assert!(!shell_as(1000, 1000, "", &open).1, "{version:?}");
    }
}
