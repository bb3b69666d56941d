//! What a mount by NFSv4 has cached holds while the change attribute stays the same, whatever the size and
//! the times say.
//!
//! Two things have several changes at one time. An ext4 filesystem with inodes of 128 bytes stores whole
//! seconds. And a proxy puts the ctimes from before a change into the server's replies, as if its clock had
//! stood still.

mod support;

use std::collections::HashMap;
use std::fs::{self, File, FileTimes};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use client::{Follow, OpenOptions, Operation, Version};
use parking_lot::Mutex;
use samehost_mount::MountOptions;
use support::{Mounted, Served, Transport, proxy, wait_for};

/// `nfstime4`.
type Time = [u8; 12];

/// The ctime of a file on the server.
fn ctime(path: &Path) -> Time {
    let status = fs::metadata(path).unwrap();
    let mut time = [0; 12];
    time[..8].copy_from_slice(&status.ctime().to_be_bytes());
    time[8..].copy_from_slice(&u32::try_from(status.ctime_nsec()).unwrap().to_be_bytes());
    time
}

/// A server whose clock stands still, for the ctimes of some files.
struct StandingClock {
    served: Served,
    /// What the server tells in place of these times.
    told: Arc<Mutex<HashMap<Time, Time>>>,
    port: u16,
}

impl StandingClock {
    fn new() -> Self {
        let served = Served::without_tree();
        let told = Arc::<Mutex<HashMap<Time, Time>>>::default();
        let replaced = Arc::clone(&told);
        let port = proxy(served.port(), move |reply| replace(reply, &replaced.lock()));
        Self { served, told, port }
    }

    fn mount(&self) -> Mounted {
        let forever = Duration::from_secs(3600);
        let mut options = MountOptions::default();
        let times = &mut options.attributes;
        for time in [&mut times.file_min, &mut times.file_max, &mut times.directory_min] {
            *time = forever;
        }
        self.served.mount_through(self.port, options)
    }

    /// Makes a change on the server that shows neither in the size nor in the times of `path`.
    fn change(&self, path: &Path, change: impl FnOnce()) {
        let (before, first) = (fs::metadata(path).unwrap(), ctime(path));
        change();
        File::open(path)
            .unwrap()
            .set_times(FileTimes::new().set_modified(before.modified().unwrap()))
            .unwrap();
        assert_eq!(fs::metadata(path).unwrap().len(), before.len());
        assert_ne!(ctime(path), first);
        let mut told = self.told.lock();
        let first = told.get(&first).copied().unwrap_or(first);
        told.insert(ctime(path), first);
    }
}

/// Replaces times in a reply.
fn replace(reply: &mut [u8], told: &HashMap<Time, Time>) {
    let last = reply.len().saturating_sub(size_of::<Time>());
    for at in (0..=last).step_by(4) {
        if let Some(time) = reply.get_mut(at..at + size_of::<Time>())
            && let Some(told) = told.get(&*time)
        {
            time.copy_from_slice(told);
        }
    }
}

fn run(script: &str, at: &Path) -> String {
    let output = Command::new("sh").args(["-c", script]).current_dir(at).output().unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn an_open_sees_a_change_of_equal_size_and_times() {
    let server = StandingClock::new();
    let file = server.served.export().join("file");
    fs::write(&file, "first").unwrap();
    let mounted = server.mount();
    let read = || fs::read_to_string(mounted.path("file")).unwrap();
    let reads = || mounted.mount.session().counters().wire.reads;
    assert_eq!((read(), read()), ("first".to_owned(), "first".to_owned()));
    server.change(&file, || fs::write(&file, "other").unwrap());
    assert_eq!(read(), "other");
    // A change of the time of access is none.
    let before = reads();
    let accessed = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    let first = ctime(&file);
    File::open(&file).unwrap().set_times(FileTimes::new().set_accessed(accessed)).unwrap();
    assert_ne!(ctime(&file), first, "this one changes the ctime");
    assert_eq!(read(), "other");
    assert!(reads() > before, "and so it is a change");
    let before = reads();
    fs::read(&file).unwrap();
    assert!(fs::metadata(&file).unwrap().accessed().unwrap() > accessed);
    assert_eq!(read(), "other");
    assert_eq!(reads(), before, "this one doesn't");
}

#[test]
fn lists_and_names_of_extended_attributes_are_asked_for_again() {
    let server = StandingClock::new();
    let file = server.served.export().join("file");
    fs::write(&file, "text").unwrap();
    let mounted = server.mount();
    let calls = |operation| mounted.mount.session().counters().calls(operation);
    let listed = || run("getfattr -m - file | grep -v ^# | grep . || true", mounted.root());
    // An open brings the attributes.
    let open = || drop(File::open(mounted.path("file")).unwrap());
    assert_eq!((listed(), listed()), (String::new(), String::new()));
    let asked = [Operation::Getacl, Operation::Listxattrs].map(calls);
    open();
    assert_eq!(listed(), "");
    assert_eq!([Operation::Getacl, Operation::Listxattrs].map(calls), asked, "nothing has changed");
    server.change(&file, || {
        run("setfacl -m u:1234:r file && setfattr -n user.a -v 1 file", &server.served.export());
    });
    open();
    assert_eq!(listed(), "system.posix_acl_access\nuser.a\n");
}

#[test]
fn names_and_listings_are_asked_for_again() {
    let server = StandingClock::new();
    let directory = server.served.export().join("d");
    fs::create_dir(&directory).unwrap();
    // The kernel asks for each name in a directory that not everybody may search.
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
    for name in ["one", "two"] {
        fs::write(directory.join(name), name).unwrap();
    }
    // A directory that has just changed is listed again in any case.
    let changed = fs::metadata(&directory).unwrap().modified().unwrap();
    wait_for("its last change to be past", || {
        changed.elapsed().is_ok_and(|passed| passed > Duration::from_millis(200))
    });
    let mounted = server.mount();
    let inode = |name: &str| fs::metadata(mounted.path("d").join(name)).unwrap().ino();
    let calls = |operation| mounted.mount.session().counters().calls(operation);
    let list = || {
        let mut names: Vec<_> = fs::read_dir(mounted.path("d"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    assert_eq!((list(), list()), (vec!["one".into(), "two".into()], vec!["one".into(), "two".into()]));
    let (one, two) = (inode("one"), inode("two"));
    let asked = [Operation::Lookup, Operation::Readdirplus].map(calls);
    assert_eq!((inode("one"), inode("two"), list().len()), (one, two, 2));
    assert_eq!([Operation::Lookup, Operation::Readdirplus].map(calls), asked, "nothing has changed");
    server.change(&directory, || {
        run("mv one new && mv two one && mv new two", &directory);
    });
    assert_eq!(list(), ["one", "two"]);
    assert_eq!((inode("one"), inode("two")), (two, one));
    server.change(&directory, || {
        run("mv one six", &directory);
    });
    assert_eq!(list(), ["six", "two"]);
}

/// A filesystem with whole seconds, unmounted on drop.
struct CoarseDisk<'a>(&'a Path);

impl<'a> CoarseDisk<'a> {
    fn mount(at: &'a Path) -> Self {
        let image = at.with_extension("image");
        File::create(&image).unwrap().set_len(8 << 20).unwrap();
        for command in [
            Command::new("mkfs.ext4").args(["-q", "-I", "128"]).arg(&image),
            Command::new("mount").args(["-o", "loop"]).arg(&image).arg(at),
        ] {
            assert!(command.status().unwrap().success(), "{command:?}");
        }
        Self(at)
    }
}

impl Drop for CoarseDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0).status();
    }
}

/// Otherwise a change between the wire and a tree or a granted file would be taken for one of the file.
#[test]
fn over_each_way_a_file_has_the_same_change_attribute() {
    let mut served = Served::start();
    let export = served.export();
    let _disk = CoarseDisk::mount(&export);
    served.restart();
    fs::write(export.join("file"), "text").unwrap();
    let written = SystemTime::now();
    wait_for("the change attribute to settle", || {
        written.elapsed().is_ok_and(|passed| passed > Duration::from_millis(2_100))
    });
    let mut told = Vec::new();
    for (version, transport) in [
        (Version::V3, Transport::Wire),
        (Version::V4_2, Transport::Wire),
        (Version::V3, Transport::Served),
        (Version::V4_2, Transport::Served),
    ] {
        let mounted = served.mount_by(version, transport, MountOptions::default());
        let session = mounted.mount.session();
        samehost_mount::runtime().unwrap().block_on(async {
            let found = session.walk(b"file", Follow::No).await.unwrap();
            told.push(session.attributes(&found.handle).await.unwrap().change);
            let file =
                session.open_handle(&found.handle, b"file", &OpenOptions::new().read(true)).await.unwrap();
            told.extend(file.attributes_at_open().map(|then| then.change));
            told.extend(file.attributes_now().map(|now| now.unwrap().change));
        });
    }
    assert_eq!(told.len(), 9, "NFSv3 has no attributes at open, and only granted files are examined here");
    assert!(told.iter().all(|change| *change == told[0]), "{told:?}");
}

/// Over the wire, and where the mount's process examines the files itself. By NFSv3 such a change can't be
/// seen.
#[test]
fn an_open_sees_a_change_within_the_same_second() {
    let mut served = Served::start();
    let export = served.export();
    let _disk = CoarseDisk::mount(&export);
    served.restart();
    for transport in [Transport::Wire, Transport::Served] {
        let mounted = served.mount_by(Version::V4_2, transport, MountOptions::default());
        for number in 0.. {
            assert!(number < 20, "the clock advanced in each try");
            let (name, path) = (format!("f{number}"), export.join(format!("f{number}")));
            fs::write(&path, "first").unwrap();
            let before = fs::metadata(&path).unwrap();
            assert_eq!(before.ctime_nsec(), 0, "this filesystem keeps seconds");
            let read = || fs::read_to_string(mounted.path(&name)).unwrap();
            assert_eq!((read(), read()), ("first".to_owned(), "first".to_owned()));
            fs::write(&path, "other").unwrap();
            assert_eq!(read(), "other", "{transport:?}");
            if fs::metadata(&path).unwrap().ctime() == before.ctime() {
                break;
            }
        }
        fs::read_dir(&export).unwrap().flatten().for_each(|entry| drop(fs::remove_file(entry.path())));
    }
}
