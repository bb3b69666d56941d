//! Trees of small files: what each file costs in round trips to the server, so that it stays what it is.

mod support;

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use client::Procedure::{self, Commit, Create, Lookup, Readdirplus, Remove, Setattr, Write};
use support::{Mounted, ROADS, Road, Served};

/// Files in a tree.
const FILES: u64 = 50;

/// What a directory may cost beside its files.
const AROUND: u64 = 4;

/// Runs `work` and asserts which calls it took: so many of each procedure, and of the lane; and nothing else, but for what the
/// directory takes.
fn costs(mounted: &Mounted, what: &str, calls: &[(Procedure, u64)], lane: u64, work: impl FnOnce()) {
    let before = mounted.mount.session().counters();
    work();
    let after = mounted.mount.session().counters();
    let mut expected = 0;
    for (procedure, count) in calls {
        let made = after.calls(*procedure) - before.calls(*procedure);
        assert!((*count..=count + AROUND).contains(&made), "{what}: {made} {procedure:?}, not {count}");
        expected += count;
    }
    let all = after.wire.round_trips - before.wire.round_trips;
    assert!(all <= expected + AROUND, "{what}: {all} calls, not {expected}: {before:?} {after:?}");
    let opens = after.lane.round_trips - before.lane.round_trips;
    assert_eq!(opens, lane, "{what}: on the lane");
}

fn names(directory: &Path) -> impl Iterator<Item = std::path::PathBuf> {
    (0..FILES).map(move |number| directory.join(format!("file-{number}")))
}

/// As tar(1) unpacks, being root: times, owner and mode are set on the open file.
fn unpack(path: &Path) {
    let mut open = OpenOptions::new();
    let mut file = open.write(true).create_new(true).mode(0o600).open(path).unwrap();
    file.write_all(b"a small file").unwrap();
    file.set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000)).unwrap();
    fchown(&file, Some(0), Some(0)).unwrap();
    file.set_permissions(fs::Permissions::from_mode(0o644)).unwrap();
}

#[test]
fn a_file_of_a_tree_takes_no_more_round_trips_than_it_must() {
    let served = Served::start();
    for road in ROADS {
        let mounted = served.mount(road);
        let wire = road == Road::Wire;
        // The lane makes a file and opens it, and its data goes there, too.
        let (create, lane) = if wire { (FILES, 0) } else { (0, FILES) };
        let made = |setattr| {
            [(Lookup, FILES), (Create, create), (Setattr, setattr), (Write, create), (Commit, create)]
        };
        let tree = mounted.path("unpacked");
        fs::create_dir(&tree).unwrap();
        // One more SETATTR goes with an exclusive CREATE.
        costs(&mounted, "tar x", &made(3 * FILES + create), lane, || {
            names(&tree).for_each(|path| unpack(&path))
        });
        let copy = mounted.path("copied");
        fs::create_dir(&copy).unwrap();
        costs(&mounted, "cp", &made(0), lane, || {
            names(&copy).for_each(|path| fs::write(path, b"a small file").unwrap());
        });
        costs(&mounted, "stat of what was made", &[], 0, || {
            for path in names(&tree).chain(names(&copy)) {
                assert_eq!(fs::metadata(path).unwrap().len(), 12, "{road:?}");
            }
        });
        costs(&mounted, "rm", &[(Remove, FILES)], 0, || {
            names(&copy).for_each(|path| fs::remove_file(path).unwrap());
        });
        drop(mounted);
        let mounted = served.mount(road);
        let tree = mounted.path("unpacked");
        costs(&mounted, "ls -l", &[(Readdirplus, 1)], 0, || {
            let listed = fs::read_dir(&tree).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
            assert_eq!(listed.collect::<Vec<_>>(), vec![12; FILES as usize]);
        });
        drop(mounted);
        fs::remove_dir_all(served.export().join("unpacked")).unwrap();
        fs::remove_dir_all(served.export().join("copied")).unwrap();
    }
}

/// Where the server is on this host an fsync(2) that finds nothing written still goes to the filesystem: what the server has
/// answered about names and attributes is in its page cache only.
#[test]
fn who_syncs_a_directory_or_attributes_asks_the_server_if_there_is_a_lane() {
    let served = Served::start();
    for road in ROADS {
        let mounted = served.mount(road);
        fs::write(mounted.path("file"), b"data").unwrap();
        let wire = road == Road::Wire;
        let commits = |of: &Mounted| {
            let counters = of.mount.session().counters();
            (counters.calls(Commit), counters.lane.commits)
        };
        let before = commits(&mounted);
        File::open(mounted.root()).unwrap().sync_all().unwrap();
        let names = commits(&mounted);
        assert_eq!((names.0 - before.0, names.1 - before.1), (u64::from(!wire), 0), "{road:?}");
        File::open(mounted.path("file")).unwrap().sync_all().unwrap();
        let file = commits(&mounted);
        assert_eq!((file.0 - names.0, file.1 - names.1), (0, u64::from(!wire)), "{road:?}");
        fs::remove_file(mounted.path("file")).unwrap();
    }
}
