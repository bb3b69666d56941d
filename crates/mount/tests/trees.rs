//! Trees of small files: the round trips to the server for each file.

mod support;

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use client::Operation::{
    self, Access, Commit, Create, Getattr, Lookup, Mkdir, Read, Readdir, Readdirplus, Remove, Setattr, Write,
};
use client::{Counters, Version};
use samehost_mount::{AttributeTimes, MountOptions};
use support::{Mounted, Served, TRANSPORTS, Transport, wait_for};

/// Files in a tree.
const FILES: u64 = 50;

/// The export's options for lanes without a tree, so that names and attributes are calls.
const FILES_ONLY: &str = "no_root_squash,no_tree";

/// Calls for a directory besides those for its files, including its access control list.
const AROUND: u64 = 6;

/// The procedures that are called over TCP even with a lane.
const OVER_TCP: [Operation; 5] = [Read, Write, Commit, Readdir, Readdirplus];

/// Lane messages, which are the round trips of the lane except for the calls on its call socket.
fn lane_messages(counters: &Counters) -> u64 {
    counters.lane.round_trips - counters.events.lane_calls
}

/// Runs `work` and asserts the numbers of its calls of each procedure and of its lane messages. Besides those
/// it may take the directory's calls only. With a lane, all others than [`OVER_TCP`] are made on its call
/// socket.
fn costs(mounted: &Mounted, what: &str, calls: &[(Operation, u64)], lane: u64, work: impl FnOnce()) {
    let before = mounted.mount.session().counters();
    work();
    let after = mounted.mount.session().counters();
    let mut expected = 0;
    for (procedure, count) in calls {
        let made = after.calls(*procedure) - before.calls(*procedure);
        // A small file that is closed soon after its write(2) is written stably, without a COMMIT.
        let least = if *procedure == Commit { 0 } else { *count };
        assert!((least..=count + AROUND).contains(&made), "{what}: {made} {procedure:?}, not {count}");
        expected += count;
    }
    let over_tcp = after.wire.round_trips - before.wire.round_trips;
    let all = over_tcp + after.events.lane_calls - before.events.lane_calls;
    assert!(all <= expected + AROUND, "{what}: {all} calls, not {expected}: {before:?} {after:?}");
    assert_eq!(lane_messages(&after) - lane_messages(&before), lane, "{what}: on the lane");
    if mounted.mount.session().lane().local {
        let of = |counters: &Counters| OVER_TCP.iter().map(|one| counters.calls(*one)).sum::<u64>();
        assert_eq!(over_tcp, of(&after) - of(&before), "{what}: {before:?} {after:?}");
    }
}

/// A mount that doesn't request the export's own mount in the background, which would be counted.
fn calls_only() -> MountOptions {
    MountOptions { mount_grant: false, ..MountOptions::default() }
}

fn names(directory: &Path) -> impl Iterator<Item = std::path::PathBuf> {
    (0..FILES).map(move |number| directory.join(format!("file-{number}")))
}

/// Unpacks as tar(1) does as root: times, owner and mode are set on the open file.
fn unpack(path: &Path) {
    let mut open = OpenOptions::new();
    let mut file = open.write(true).create_new(true).mode(0o600).open(path).unwrap();
    file.write_all(b"a small file").unwrap();
    file.set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000)).unwrap();
    fchown(&file, Some(0), Some(0)).unwrap();
    file.set_permissions(fs::Permissions::from_mode(0o644)).unwrap();
}

#[test]
fn each_file_of_a_tree_takes_the_fewest_round_trips() {
    let served = Served::with(FILES_ONLY);
    for transport in TRANSPORTS {
        let mounted = served.mount_by(Version::V3, transport, calls_only());
        let wire = transport.is_wire();
        // An Open over the lane creates the file, and its data goes over the lane, too.
        let (create, lane) = if wire { (FILES, 0) } else { (0, FILES) };
        let made =
            |setattr| [(Lookup, 0), (Create, create), (Setattr, setattr), (Write, create), (Commit, create)];
        let tree = mounted.path("unpacked");
        fs::create_dir(&tree).unwrap();
        // An exclusive CREATE takes one more SETATTR.
        costs(&mounted, "tar x", &made(3 * FILES + create), lane, || {
            names(&tree).for_each(|path| unpack(&path))
        });
        let copy = mounted.path("copied");
        fs::create_dir(&copy).unwrap();
        costs(&mounted, "cp", &made(0), lane, || {
            names(&copy).for_each(|path| fs::write(path, b"a small file").unwrap());
        });
        // As in a checkout of git(1).
        let written = mounted.path("written");
        fs::create_dir(&written).unwrap();
        costs(&mounted, "fstat of what is being written", &made(create), lane, || {
            for path in names(&written) {
                let mut file = File::create_new(path).unwrap();
                file.write_all(b"a small file").unwrap();
                assert_eq!(file.metadata().unwrap().len(), 12, "{transport:?}");
            }
        });
        costs(&mounted, "stat of what was made", &[], 0, || {
            for path in names(&tree).chain(names(&copy)) {
                assert_eq!(fs::metadata(path).unwrap().len(), 12, "{transport:?}");
            }
        });
        costs(&mounted, "rm", &[(Remove, FILES)], 0, || {
            names(&copy).for_each(|path| fs::remove_file(path).unwrap());
        });
        drop(mounted);
        let mounted = served.mount_by(Version::V3, transport, calls_only());
        let tree = mounted.path("unpacked");
        costs(&mounted, "ls -l", &[(Readdirplus, 1)], 0, || {
            let listed = fs::read_dir(&tree).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
            assert_eq!(listed.collect::<Vec<_>>(), vec![12; FILES as usize]);
        });
        drop(mounted);
        fs::remove_dir_all(served.export().join("unpacked")).unwrap();
        for name in ["copied", "written"] {
            fs::remove_dir_all(served.export().join(name)).unwrap();
        }
    }
}

/// By NFSv4.2 the times of a new file go to the server with its data, and that with the attributes that are
/// set. What the mount shows is what the server has.
#[test]
fn files_that_are_made_by_nfsv4_cost_few_calls() {
    let served = Served::with(FILES_ONLY);
    let mounted = served.mount_by(Version::V4_2, Transport::Wire, calls_only());
    let calls = |what: &str, work: &mut dyn FnMut(&Path), setattrs: u64| {
        let tree = mounted.path(what);
        fs::create_dir(&tree).unwrap();
        let before = mounted.mount.session().counters();
        names(&tree).for_each(|path| work(&path));
        let after = mounted.mount.session().counters();
        let made = |operation| after.calls(operation) - before.calls(operation);
        assert_eq!((made(Create), made(Write)), (FILES, FILES), "{what}");
        // On a busy machine, times and data of some files are sent by themselves.
        let some = FILES / 2;
        assert!((setattrs..=setattrs + some).contains(&made(Setattr)), "{what}: {}", made(Setattr));
        assert!(made(Commit) <= some, "{what}: {}", made(Commit));
        for path in names(&tree) {
            let there = names(&served.export().join(what)).find(|it| it.file_name() == path.file_name());
            let (here, there) = (fs::metadata(&path).unwrap(), fs::metadata(there.unwrap()).unwrap());
            let times = |of: &fs::Metadata| (of.accessed().unwrap(), of.modified().unwrap(), of.ctime_nsec());
            assert_eq!(times(&here), times(&there), "{what}");
            assert!(here.accessed().unwrap().elapsed().unwrap() < Duration::from_secs(600), "{what}");
        }
    };
    calls("unpacked", &mut unpack, 0);
    let mut check_out = |path: &Path| {
        let mut file = File::create_new(path).unwrap();
        file.write_all(b"a small file").unwrap();
        assert_eq!(file.metadata().unwrap().len(), 12);
    };
    calls("checked-out", &mut check_out, 0);
}

/// The reply to an open brings the access time that the last read has made.
#[test]
fn a_file_that_was_read_is_opened_again_by_one_call() {
    let served = Served::with(FILES_ONLY);
    let tree = served.export().join("tree");
    fs::create_dir(&tree).unwrap();
    names(&tree).for_each(|path| fs::write(path, b"a small file").unwrap());
    for (version, open) in [(Version::V3, Access), (Version::V4_2, Operation::Open)] {
        // A delegated file is opened without a call.
        let adjust = |session: client::Options| session.version(version).delegations(false);
        let mounted = served.mount_adjusted(Transport::Wire, adjust, calls_only());
        let here = mounted.path("tree");
        names(&here).for_each(|path| drop(fs::read(path).unwrap()));
        let before = mounted.mount.session().counters();
        for (path, there) in names(&here).zip(names(&tree)) {
            let atime = File::open(path).unwrap().metadata().unwrap().accessed().unwrap();
            assert_eq!(atime, fs::metadata(there).unwrap().accessed().unwrap(), "{version:?}");
        }
        let after = mounted.mount.session().counters();
        assert_eq!(after.calls(open) - before.calls(open), FILES, "{version:?}");
        assert!(after.calls(Getattr) - before.calls(Getattr) <= AROUND, "{version:?}: {before:?} {after:?}");
    }
}

/// By NFSv4 the reply that finds or makes a file tells when it was made, so that statx(2) needs no request.
#[test]
fn birth_times_come_with_names() {
    let served = Served::with(FILES_ONLY);
    let tree = served.export().join("tree");
    fs::create_dir(&tree).unwrap();
    names(&tree).for_each(|path| fs::write(path, b"a small file").unwrap());
    let mounted = served.mount_by(Version::V4_2, Transport::Wire, calls_only());
    let (found, made) = (mounted.path("tree"), mounted.path("made"));
    fs::create_dir(&made).unwrap();
    let cost = |here: &Path, there: &Path, work: &dyn Fn(&Path)| {
        let before = mounted.mount.session().counters();
        for (path, there) in names(here).zip(names(there)) {
            work(&path);
            let [born, there] = [path, there].map(|path| fs::metadata(path).unwrap().created().ok());
            assert_eq!(born, there);
        }
        let after = mounted.mount.session().counters();
        after.calls(Getattr) - before.calls(Getattr)
    };
    assert!(cost(&found, &tree, &|_| {}) <= AROUND);
    assert!(cost(&made, &served.export().join("made"), &|path| fs::write(path, b"new").unwrap()) <= AROUND);
}

/// Also by the LOOKUP for which a directory is listed.
#[test]
fn a_name_that_is_too_long_is_not_called_missing() {
    let served = Served::with(FILES_ONLY);
    for version in [Version::V3, Version::V4_2] {
        let mounted = served.mount_by(version, Transport::Wire, calls_only());
        for number in 0..8 {
            let name = format!("{number}{}", "x".repeat(255));
            let error = fs::symlink_metadata(mounted.path(&name)).unwrap_err();
            assert_eq!(
                error.raw_os_error(),
                Some(rustix::io::Errno::NAMETOOLONG.raw_os_error()),
                "{version:?}, {number}"
            );
        }
    }
}

/// A process that looks up some names of a directory mostly looks up others, too: the directory is listed.
#[test]
fn names_that_are_looked_up_one_by_one_are_listed() {
    let served = Served::with(FILES_ONLY);
    let tree = served.export().join("tree");
    fs::create_dir(&tree).unwrap();
    names(&tree).for_each(|path| fs::write(path, b"a small file").unwrap());
    for version in [Version::V3, Version::V4_2] {
        let mounted = served.mount_by(version, Transport::Wire, calls_only());
        let here = mounted.path("tree");
        let before = mounted.mount.session().counters();
        for path in names(&here) {
            assert_eq!(fs::symlink_metadata(&path).unwrap().len(), 12);
        }
        let after = mounted.mount.session().counters();
        let calls = after.wire.round_trips - before.wire.round_trips;
        assert!(calls <= 2 * AROUND, "{version:?}: {calls}, {before:?} {after:?}");
        // A name that the listing doesn't have may be one that another host has made since.
        names(&tree).for_each(|path| fs::write(path.with_extension("new"), b"").unwrap());
        assert!(names(&here).all(|path| path.with_extension("new").exists()), "{version:?}");
        names(&tree).for_each(|path| fs::remove_file(path.with_extension("new")).unwrap());
        // What is made, removed and renamed here shows at once.
        for (number, path) in names(&here).enumerate() {
            match number % 3 {
                0 => fs::remove_file(&path).unwrap(),
                1 => fs::rename(&path, path.with_extension("moved")).unwrap(),
                _ => fs::hard_link(&path, path.with_extension("moved")).unwrap(),
            }
            assert_eq!(path.exists(), number % 3 == 2, "{version:?}");
            assert_eq!(path.with_extension("moved").exists(), number % 3 > 0, "{version:?}");
        }
        fs::remove_dir_all(&tree).unwrap();
        fs::create_dir(&tree).unwrap();
        names(&tree).for_each(|path| fs::write(path, b"a small file").unwrap());
    }
}

/// By NFSv4 a small file is read by the request that opens it.
#[test]
fn a_small_file_is_opened_and_read_by_one_call() {
    let served = Served::with(FILES_ONLY);
    let tree = served.export().join("tree");
    fs::create_dir(&tree).unwrap();
    names(&tree).for_each(|path| fs::write(path, b"a small file").unwrap());
    for (version, reads) in [(Version::V3, FILES), (Version::V4_2, 0)] {
        let mounted = served.mount_by(version, Transport::Wire, calls_only());
        let here = mounted.path("tree");
        let listed = fs::read_dir(&here).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
        assert_eq!(listed.sum::<u64>(), 12 * FILES);
        let before = mounted.mount.session().counters();
        for path in names(&here) {
            let mut text = String::new();
            File::open(path).unwrap().read_to_string(&mut text).unwrap();
            assert_eq!(text, "a small file");
        }
        let after = mounted.mount.session().counters();
        assert_eq!(after.calls(Read) - before.calls(Read), reads, "{version:?}");
        assert_eq!(after.wire.reads - before.wire.reads, FILES, "{version:?}");
        assert_eq!(after.wire.bytes_read - before.wire.bytes_read, 12 * FILES, "{version:?}");
    }
}

/// The kernel keeps whole pages of what it writes, so it reads a small file that was written here: the open
/// brings the data. What the kernel has read isn't read again.
#[test]
fn an_open_reads_what_the_kernel_has_not_read() {
    let served = Served::with(FILES_ONLY);
    // A delegated file is opened without a call.
    let adjust = |session: client::Options| session.version(Version::V4_2).delegations(false);
    let mounted = served.mount_adjusted(Transport::Wire, adjust, calls_only());
    let counters = || mounted.mount.session().counters();
    let path = mounted.path("file");
    fs::write(&path, b"a small file").unwrap();
    let before = counters();
    for _ in 0..2 {
        let mut text = String::new();
        File::open(&path).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "a small file");
        let after = counters();
        assert_eq!(after.calls(Read), before.calls(Read));
        assert_eq!(after.wire.reads - before.wire.reads, 1);
    }
}

/// What an open has read isn't shown after a change that the mount knows of: its own at once, and another
/// host's when it has a lock, or when the attributes have expired.
#[test]
fn what_an_open_has_read_is_not_shown_after_a_change() {
    let served = Served::with(FILES_ONLY);
    let short = Duration::from_millis(50);
    let attributes = AttributeTimes { file_min: short, file_max: short, ..AttributeTimes::default() };
    for attributes in [AttributeTimes::default(), attributes] {
        // A delegation would keep others from writing.
        let adjust = |session: client::Options| session.delegations(false);
        let options = MountOptions { attributes, ..calls_only() };
        let mounted = served.mount_adjusted(Transport::Wire, adjust, options);
        for (number, change) in ["own", "locked", "expired"].into_iter().enumerate() {
            if change == "expired" && attributes.file_min != short {
                continue;
            }
            let name = format!("file-{number}-{}", attributes.file_min.as_millis());
            let (here, there) = (mounted.path(&name), served.export().join(&name));
            fs::write(&there, b"before").unwrap();
            assert_eq!(fs::symlink_metadata(&here).unwrap().len(), 6);
            let reads = |of: &Mounted| of.mount.session().counters().wire.reads;
            let before = reads(&mounted);
            let mut file = File::open(&here).unwrap();
            assert_eq!(reads(&mounted), before + 1, "the open reads");
            match change {
                "own" => OpenOptions::new().write(true).open(&here).unwrap().write_all(b"behind").unwrap(),
                _ => fs::write(&there, b"behind").unwrap(),
            }
            match change {
                "locked" => rustix::fs::flock(&file, rustix::fs::FlockOperation::LockShared).unwrap(),
                "expired" => std::thread::sleep(short),
                _ => {}
            }
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            assert_eq!(text, "behind", "{change}");
        }
    }
}

/// Attributes of new files that go to the server later are shown at once, and those that others must not
/// wait for go at once.
#[test]
fn attributes_of_new_files_are_as_they_were_set() {
    let served = Served::with(FILES_ONLY);
    let mounted = served.mount_by(Version::V4_2, Transport::Wire, calls_only());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let create = |name: &str| {
        let (here, there) = (mounted.path(name), served.export().join(name));
        let mut open = OpenOptions::new();
        let mut file = open.write(true).create_new(true).mode(0o600).open(&here).unwrap();
        file.write_all(b"a small file").unwrap();
        (file, here, there)
    };
    let set = |file: &File, mode| file.set_permissions(fs::Permissions::from_mode(mode)).unwrap();
    // Whatever asks: the file by its descriptor or its name, a listing, the right to execute it.
    let (file, here, _) = create("fstat");
    set(&file, 0o640);
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o7777, 0o640);
    set(&file, 0o755);
    assert_eq!(mode(&here), 0o755);
    let (file, here, _) = create("stat");
    set(&file, 0o644);
    assert_eq!(mode(&here), 0o644);
    let (file, here, _) = create("execute");
    set(&file, 0o700);
    assert_eq!(rustix::fs::access(&here, rustix::fs::Access::EXEC_OK), Ok(()));
    let (file, _, _) = create("listed");
    set(&file, 0o604);
    let entry =
        fs::read_dir(mounted.root()).unwrap().map(Result::unwrap).find(|it| it.file_name() == "listed");
    assert_eq!(entry.unwrap().metadata().unwrap().permissions().mode() & 0o7777, 0o604);
    // Another mount sees them after close(2).
    let (file, _, there) = create("closed");
    set(&file, 0o644);
    drop(file);
    assert_eq!(mode(&there), 0o644);
    // Rights that are taken away, and owners that change, are the server's when the call returns.
    let (file, _, there) = create("restricted");
    set(&file, 0o400);
    assert_eq!(mode(&there), 0o400);
    let (file, _, there) = create("given");
    fchown(&file, Some(1234), None).unwrap();
    assert_eq!(fs::metadata(&there).unwrap().uid(), 1234);
    // So is what was set later when data follows it.
    let (mut file, _, there) = create("more");
    set(&file, 0o644);
    file.write_all(b" and more").unwrap();
    drop(file);
    assert_eq!((mode(&there), fs::read(&there).unwrap()), (0o644, b"a small file and more".to_vec()));
}

/// By NFSv4 the reply to MKDIR says what the user may do in the new directory, and what its access control
/// list is, so that names in it need no further requests.
#[test]
fn a_directory_that_is_made_by_nfsv4_costs_one_call() {
    let served = Served::with(FILES_ONLY);
    // Nothing expires during the test.
    let forever = Duration::from_secs(3600);
    let attributes =
        AttributeTimes { directory_min: forever, directory_max: forever, ..AttributeTimes::default() };
    for (version, expected) in [(Version::V3, 3 * FILES), (Version::V4_2, FILES)] {
        let mounted = served.mount_by(version, Transport::Wire, MountOptions { attributes, ..calls_only() });
        // All names in a directory that was made here are known.
        let tree = mounted.path("tree");
        fs::create_dir(&tree).unwrap();
        let before = mounted.mount.session().counters();
        for path in names(&tree) {
            fs::create_dir(&path).unwrap();
            for name in ["one", "two", "three"] {
                assert!(!path.join(name).exists());
            }
        }
        let after = mounted.mount.session().counters();
        let calls = after.wire.round_trips - before.wire.round_trips;
        assert!(
            (expected..=expected + AROUND).contains(&calls),
            "{version:?}: {calls}, {before:?} {after:?}"
        );
        assert_eq!(after.calls(Mkdir) - before.calls(Mkdir), FILES);
        fs::remove_dir_all(&tree).unwrap();
    }
}

/// With a lane an fsync(2) without written data goes to the filesystem, because changes of names and
/// attributes that the server has replied to are in its page cache only.
#[test]
fn fsync_of_a_directory_or_attributes_reaches_the_server_with_a_lane() {
    let served = Served::with(FILES_ONLY);
    for transport in TRANSPORTS {
        let mounted = served.mount(transport);
        fs::write(mounted.path("file"), b"data").unwrap();
        let wire = transport.is_wire();
        let commits = |of: &Mounted| {
            let counters = of.mount.session().counters();
            (counters.calls(Commit), counters.lane.commits)
        };
        let before = commits(&mounted);
        File::open(mounted.root()).unwrap().sync_all().unwrap();
        let names = commits(&mounted);
        assert_eq!((names.0 - before.0, names.1 - before.1), (u64::from(!wire), 0), "{transport:?}");
        File::open(mounted.path("file")).unwrap().sync_all().unwrap();
        let file = commits(&mounted);
        assert_eq!((file.0 - names.0, file.1 - names.1), (0, u64::from(!wire)), "{transport:?}");
        fs::remove_file(mounted.path("file")).unwrap();
    }
}

/// A directory that was listed is replaced at the server. The kernel has the old one by that name still.
#[test]
fn a_directory_that_another_process_has_replaced_is_listed_at_once() {
    let served = Served::start();
    let there = served.export().join("tree");
    let listed = |path: &Path| {
        let entries = fs::read_dir(path).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    for transport in TRANSPORTS {
        let mounted = served.mount_with(transport, calls_only());
        let here = mounted.path("tree");
        for name in ["one", "two", "three"] {
            fs::create_dir(&there).unwrap();
            fs::write(there.join(name), b"").unwrap();
            assert_eq!(listed(&here), [name], "{transport:?}");
            fs::remove_dir_all(&there).unwrap();
        }
        fs::create_dir(&there).unwrap();
        fs::write(there.join("four"), b"").unwrap();
        fs::remove_dir_all(&here).unwrap();
        assert!(!there.exists(), "{transport:?}");
    }
}

/// All names of a directory that was made or listed here are known while its attributes are valid; foreign
/// changes show after that.
#[test]
fn foreign_files_in_a_directory_with_known_names_show_in_time() {
    let served = Served::start();
    let short = Duration::from_millis(50);
    let attributes =
        AttributeTimes { directory_min: short, directory_max: short, ..AttributeTimes::default() };
    for transport in TRANSPORTS {
        let mounted = served.mount_with(transport, MountOptions { attributes, ..MountOptions::default() });
        let (made, listed) = (mounted.path("made"), mounted.path("listed"));
        fs::create_dir(&made).unwrap();
        fs::create_dir(served.export().join("listed")).unwrap();
        assert_eq!(fs::read_dir(&listed).unwrap().count(), 0);
        for directory in ["made", "listed"] {
            let (here, there) =
                (mounted.path(directory).join("file"), served.export().join(directory).join("file"));
            assert!(!here.exists());
            fs::write(&there, b"others'").unwrap();
            wait_for("the foreign file", || here.exists());
            fs::remove_file(&here).unwrap();
            // Names that were made through this mount show at once.
            fs::write(&here, b"ours").unwrap();
            fs::hard_link(&here, here.with_file_name("link")).unwrap();
            fs::rename(&here, here.with_file_name("renamed")).unwrap();
            std::os::unix::fs::symlink("renamed", here.with_file_name("symlink")).unwrap();
            for name in ["link", "renamed", "symlink"] {
                assert_eq!(fs::read(here.with_file_name(name)).unwrap(), b"ours", "{transport:?}, {name}");
            }
            fs::remove_dir_all(served.export().join(directory)).unwrap();
        }
    }
}

/// The output of git(1) in a directory, with the repository's configuration only.
fn git(directory: &Path, words: &[&str]) -> String {
    let mut command = Command::new("git");
    command.arg("-C").arg(directory).args(words).env("GIT_CONFIG_GLOBAL", "/dev/null");
    for who in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{who}_NAME"), "test").env(format!("GIT_{who}_EMAIL"), "test@localhost");
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "git {words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The transport is the data's: the calls for names and attributes are the same with each. An Open over the
/// lane takes the place of an ACCESS over the wire, and of calls to create and read files.
#[test]
fn git_status_sends_the_same_calls_on_every_transport() {
    let served = Served::with(FILES_ONLY);
    let repository = served.export().join("repository");
    for directory in ["one", "two", "three"] {
        let directory = repository.join(directory);
        fs::create_dir_all(&directory).unwrap();
        for path in names(&directory) {
            fs::write(&path, "a small file").unwrap();
            // git reads files again that are as young as its index.
            File::options().write(true).open(&path).unwrap().set_modified(UNIX_EPOCH).unwrap();
        }
    }
    git(&repository, &["init", "-q"]);
    git(&repository, &["add", "."]);
    git(&repository, &["commit", "-q", "-m", "all"]);
    // A mount lists a directory again that had changed within a tick of the server's clock before.
    let changed = fs::metadata(repository.join(".git")).unwrap();
    let changed = UNIX_EPOCH + Duration::new(changed.ctime() as u64, changed.ctime_nsec() as u32);
    wait_for("the next tick", || changed.elapsed().is_ok_and(|since| since > Duration::from_millis(100)));
    let of_data = [Access, Create, Setattr, Read];
    let measured = TRANSPORTS.map(|transport| {
        // A granted file's descriptor tells its atime; without noatime the wire alone would fetch it.
        let options = MountOptions { noatime: true, ..calls_only() };
        let mounted = served.mount_by(Version::V3, transport, options);
        // The second run uses the mount's cache.
        ["cold", "warm"].map(|when| {
            let before = mounted.mount.session().counters();
            assert_eq!(git(&mounted.path("repository"), &["status", "--porcelain"]), "");
            let after = mounted.mount.session().counters();
            let of = |procedure| after.calls(procedure) - before.calls(procedure);
            let all = Operation::ALL.iter().copied().filter(|one| !of_data.contains(one));
            let names: Vec<_> = all.map(|one| (one, of(one))).filter(|(_, count)| *count > 0).collect();
            let opens = lane_messages(&after) - lane_messages(&before);
            (format!("{when}: {names:?}"), opens + of_data.map(of).iter().sum::<u64>())
        })
    });
    let wire = TRANSPORTS.iter().position(|transport| *transport == Transport::Wire).unwrap();
    for (transport, measured_here) in TRANSPORTS.iter().zip(&measured) {
        for ((names, data), (wire_names, wire_data)) in measured_here.iter().zip(&measured[wire]) {
            assert_eq!(names, wire_names, "{transport:?}");
            assert!(data <= wire_data, "{transport:?}, {names}: {data} for data, {wire_data} by the wire");
        }
    }
}
