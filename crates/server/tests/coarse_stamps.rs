//! Coarse time stamps, which don't show every change. On ext4 with inodes of 128 bytes, which store whole
//! seconds, a file's mode and contents are changed within the second of an earlier access, so that its ctime
//! stays the same. All readers, over any transport, and caches validated by the change attribute, must see
//! the change.

mod common;

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::time::Duration;

use common::disk::Disk;
use common::v4::Session;
use common::{Client, Scratch};
use lane::{Access, OpenStatus, PrefetchTargets, Target};
use proto::nfs3::Nfsstat3;
use proto::nfs4::*;
use samehost_server::{Config, Server};
use xdr::Opaque;

const VICTIM: u32 = 2000;
const READER: u32 = 1000;
/// The number of the attribute `change` (RFC 8881 section 5.8.1.4).
const CHANGE: u32 = 3;
/// How often a change is repeated until it falls into the second of the access before.
const TRIES: usize = 20;

struct Rig {
    scratch: Scratch,
    server: Server,
    disk: Disk,
}

impl Rig {
    fn new(options: &str) -> Self {
        let (scratch, disk) = (Scratch::new(), Disk::ext4(&["-I", "128"]));
        let export = format!("{} *(rw,insecure,{options})", disk.path().display());
        let server = Server::start(Config { exports: vec![export], ..scratch.config("") }).unwrap();
        Self { scratch, server, disk }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.disk.path().join(name)
    }

    /// Creates a file that all users may read, calls `look` when the file has settled, removes other users'
    /// permissions, overwrites it, and calls `after`. Repeats this until all of it has happened with the same
    /// ctime.
    fn in_one_second(&self, mut look: impl FnMut(&str), mut after: impl FnMut(&str)) {
        for number in 0..TRIES {
            let name = format!("f{number}");
            let path = self.at(&name);
            std::fs::write(&path, "for all").unwrap();
            std::os::unix::fs::chown(&path, Some(VICTIM), Some(VICTIM)).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
            let before = std::fs::metadata(&path).unwrap();
            assert_eq!(before.ctime_nsec(), 0, "this filesystem keeps seconds");
            // Longer than a clock tick: by the tick alone the file would count as settled.
            std::thread::sleep(Duration::from_millis(60));
            look(&name);
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            std::fs::write(&path, "private").unwrap();
            after(&name);
            if std::fs::metadata(&path).unwrap().ctime() == before.ctime() {
                return;
            }
        }
        panic!("the clock advanced in each of {TRIES} tries");
    }
}

#[test]
fn a_version_3_reader_loses_access_at_once() {
    let rig = Rig::new("no_root_squash");
    let mut client = Client::new(&rig.server);
    let root = client.mnt(rig.disk.path()).unwrap();
    let client = std::cell::RefCell::new(client.with_user(READER, READER, &[]));
    let read = |name: &str| {
        let mut client = client.borrow_mut();
        let file = client.lookup(&root, name);
        client.read(&file, 0, 100).map(|(data, _)| data)
    };
    let look = |name: &str| assert_eq!(read(name).as_deref(), Ok(&b"for all"[..]));
    rig.in_one_second(look, |name| assert_eq!(read(name), Err(Nfsstat3::Acces)));
}

#[test]
fn an_open_and_a_read_of_version_4_are_refused_at_once() {
    let rig = Rig::new("no_root_squash");
    let wire = Client::new(&rig.server).with_user(READER, READER, &[]);
    let mut session = Session::from(wire, 2, b"reader");
    session.reclaim_complete();
    let root = session.walk(rig.disk.path());
    let session = std::cell::RefCell::new(session);
    let open = |name: &str| {
        let claim = OpenClaim4::Null(Opaque(name.as_bytes()));
        session.borrow_mut().open_shared(&root, claim, false, SHARE_ACCESS_READ, 0)
    };
    // A READ without an open is checked as version 3's.
    let read = |name: &str| {
        let mut session = session.borrow_mut();
        let file = session.lookup(&root, name.as_bytes()).unwrap();
        let anonymous = Stateid4 { seqid: 0, other: [0; 12] };
        session.on(&file, Operation::Read, &Read4Args { stateid: anonymous, offset: 0, count: 100 }).0
    };
    let look = |name: &str| {
        let (id, file) = open(name).unwrap();
        session.borrow_mut().close(&file, id);
        assert_eq!(read(name), Nfsstat4::Ok as u32);
    };
    rig.in_one_second(look, |name| {
        assert_eq!(open(name).err(), Some(Nfsstat4::Access as u32));
        assert_eq!(read(name), Nfsstat4::Access as u32);
    });
}

/// With and without the read-only clone of the mount, by name, by handle, and by prefetch.
#[test]
fn the_lane_grants_nothing_after_a_revocation_of_permissions() {
    for options in ["no_root_squash", "root_squash"] {
        let rig = Rig::new(options);
        let mut client = Client::new(&rig.server);
        let root = client.mnt(rig.disk.path()).unwrap();
        common::local::run(async {
            let lane = common::local::lane(&rig.scratch, &mut client).await;
            let reader = common::local::user(READER, READER, &[]);
            let open = async |target: Target<'_>| {
                common::local::open(&lane, target, Access::Read, &reader).await.map(drop)
            };
            let prefetch = |targets: PrefetchTargets<'_>| {
                let (sender, receiver) = channel();
                lane.prefetch(&targets, &reader, Box::new(move |files| sender.send(files.len()).unwrap()))
                    .unwrap();
                receiver
            };
            for number in 0..TRIES {
                let name = format!("f{number}");
                let path = rig.at(&name);
                std::fs::write(&path, "for all").unwrap();
                std::os::unix::fs::chown(&path, Some(VICTIM), Some(VICTIM)).unwrap();
                std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
                let before = std::fs::metadata(&path).unwrap().ctime();
                std::thread::sleep(Duration::from_millis(60));
                let handle = client.lookup(&root, &name);
                let targets =
                    [Target::Entry { directory: &root, name: name.as_bytes() }, Target::Handle(&handle)];
                for target in targets {
                    assert_eq!(open(target).await, Ok(()), "{options}");
                }
                let entries =
                    prefetch(PrefetchTargets::Entries { directory: &root, names: vec![name.as_bytes()] });
                let handles = prefetch(PrefetchTargets::Handles(vec![&handle]));
                std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
                for target in targets {
                    assert_eq!(open(target).await, Err(OpenStatus::Access), "{options}");
                }
                // A grant given now could be validated by its ctime only.
                for given in [entries, handles] {
                    let given = tokio::task::spawn_blocking(move || given.recv().unwrap()).await.unwrap();
                    assert_eq!(given, 0, "{options}: the file has just changed");
                }
                if std::fs::metadata(&path).unwrap().ctime() == before {
                    return;
                }
            }
            panic!("the clock advanced in each of {TRIES} tries");
        });
    }
}

#[test]
fn a_change_attribute_changes_with_the_file_and_settles() {
    let rig = Rig::new("no_root_squash");
    let mut session = Session::new(&rig.server, 2, b"reader");
    session.reclaim_complete();
    let root = session.walk(rig.disk.path());
    let session = std::cell::RefCell::new(session);
    let change = |name: &str| {
        let mut session = session.borrow_mut();
        let file = session.lookup(&root, name.as_bytes()).unwrap();
        u64::from_be_bytes(session.attribute(&file, CHANGE).try_into().unwrap())
    };
    let seen = std::cell::Cell::new(0);
    rig.in_one_second(
        |name| seen.set(change(name)),
        |name| {
            let now = change(name);
            assert!(now > seen.get(), "{now} after {}", seen.get());
            seen.set(now);
            // Clients can cache again as soon as no change can be hidden any more.
            let last = std::cell::Cell::new(now);
            common::wait_for("the change attribute to settle", || {
                std::thread::sleep(Duration::from_millis(100));
                let now = change(name);
                now == last.replace(now)
            });
            assert!(last.get() > now);
        },
    );
}
