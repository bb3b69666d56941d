//! Files created over the lane: the same results as with CREATE, SETATTR and an Open.

mod common;

use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt, chown, symlink};

use common::local::{lane, open, run, user};
use common::v4::{ANYBODY, Session};
use common::{Client, Scratch};
use lane::{Access, CreateMode, Lane, LaneCredential, NewFile, OpenStatus, OpenedGrant, Target};
use proto::nfs3;
use proto::nfs4::{OpenClaim4, SHARE_ACCESS_READ};
use rustix::fs::{Timespec, Timestamps, UTIME_NOW, futimens};
use xdr::Opaque;

const ACCESSES: [Access; 3] = [Access::Read, Access::Write, Access::ReadWrite];

/// An Open that makes `name`, of mode 640.
async fn make(
    lane: &Lane,
    directory: &[u8],
    name: &str,
    how: CreateMode,
    access: Access,
    who: &LaneCredential,
) -> Result<OpenedGrant, OpenStatus> {
    let new = NewFile { directory, name: name.as_bytes(), mode: 0o640, how };
    open(lane, Target::New(new), access, who).await
}

#[test]
fn an_open_that_creates_equals_create_and_causes_no_calls_on_the_wire() {
    let scratch = Scratch::new();
    let server = scratch.serve(ANYBODY);
    let mut client = Client::new(&server);
    let root = client.mnt(&scratch.export()).unwrap();
    let directory = scratch.at("d");
    std::fs::create_dir(&directory).unwrap();
    chown(&directory, Some(1000), Some(77)).unwrap();
    // New files get the directory's group.
    std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o2755)).unwrap();
    let at = client.lookup(&root, "d");
    run(async {
        let lane = lane(&scratch, &mut client).await;
        for (number, access) in ACCESSES.into_iter().enumerate() {
            for (name, how) in [("u", CreateMode::Unchecked), ("x", CreateMode::Exclusive([number as u8; 8]))]
            {
                let name = format!("{name}{number}");
                let before = std::fs::metadata(&directory).unwrap();
                let made = make(&lane, &at, &name, how, access, &user(1000, 1000, &[])).await.unwrap();
                let there = std::fs::metadata(directory.join(&name)).unwrap();
                assert_eq!((there.uid(), there.gid(), there.mode() & 0o7777), (1000, 77, 0o640));
                assert_eq!(made.attributes.file.fileid, there.ino());
                let flags = rustix::fs::fcntl_getfl(&made.grant).unwrap();
                let mode = (flags & rustix::fs::OFlags::RWMODE).bits();
                assert_eq!(mode, number as u32, "exactly the requested mode");
                // They show a client that no other client has changed the directory.
                let changed = made.directory.unwrap();
                let (was, is) = (changed.before.unwrap(), changed.after.unwrap());
                assert_eq!(
                    (was.mtime.seconds, i64::from(was.mtime.nanoseconds)),
                    (before.mtime(), before.mtime_nsec())
                );
                let now = std::fs::metadata(&directory).unwrap();
                assert_eq!(
                    (is.mtime.seconds, i64::from(is.mtime.nanoseconds)),
                    (now.mtime(), now.mtime_nsec())
                );
            }
        }
        let counters = server.status().counters;
        assert_eq!((counters["wire"]["CREATE"].ops, counters["wire"]["SETATTR"].ops), (0, 0));
    });
}

#[test]
fn refusals_are_those_of_create_on_the_wire() {
    let refusals = [
        ("*(ro,insecure,no_root_squash)", 0o777, user(0, 0, &[]), OpenStatus::ReadOnly),
        ("*(rw,insecure,root_squash)", 0o755, user(0, 0, &[]), OpenStatus::Access),
        ("*(rw,insecure,all_squash)", 0o755, user(1000, 1000, &[]), OpenStatus::Access),
        ("*(rw,insecure,no_root_squash)", 0o755, user(1000, 1000, &[]), OpenStatus::Access),
        ("*(rw,insecure,no_lane)", 0o777, user(0, 0, &[]), OpenStatus::NoLane),
    ];
    for (clients, mode, who, status) in refusals {
        let scratch = Scratch::new();
        let server = scratch.serve(clients);
        let mut client = Client::new(&server);
        let root = client.mnt(&scratch.export()).unwrap();
        std::fs::create_dir(scratch.at("d")).unwrap();
        std::fs::set_permissions(scratch.at("d"), PermissionsExt::from_mode(mode)).unwrap();
        let at = client.lookup(&root, "d");
        run(async {
            let lane = lane(&scratch, &mut client).await;
            for access in ACCESSES {
                for how in [CreateMode::Unchecked, CreateMode::Exclusive([1; 8])] {
                    let refused = make(&lane, &at, "f", how, access, &who).await;
                    assert_eq!(refused.map(drop), Err(status), "{clients}, {access:?}, {how:?}");
                }
            }
        });
        assert_eq!(std::fs::read_dir(scratch.at("d")).unwrap().count(), 0, "{clients}: nothing was made");
    }
}

#[test]
fn squashed_root_creates_anonymous_files_and_cannot_write_readable_ones() {
    let scratch = Scratch::new();
    let server = scratch.serve("*(rw,insecure,root_squash)");
    let mut client = Client::new(&server);
    let root = client.mnt(&scratch.export()).unwrap();
    std::fs::create_dir(scratch.at("d")).unwrap();
    std::fs::set_permissions(scratch.at("d"), PermissionsExt::from_mode(0o777)).unwrap();
    let at = client.lookup(&root, "d");
    run(async {
        let lane = lane(&scratch, &mut client).await;
        let made =
            make(&lane, &at, "f", CreateMode::Unchecked, Access::Read, &user(0, 0, &[])).await.unwrap();
        assert_eq!(std::fs::metadata(scratch.at("d/f")).unwrap().uid(), 65534);
        let chmod = rustix::fs::fchmod(made.grant.as_fd(), rustix::fs::Mode::from_raw_mode(0o777));
        assert_eq!(chmod, Err(rustix::io::Errno::ROFS));
    });
}

#[test]
fn only_the_creators_retry_opens_the_file_on_either_data_path() {
    let scratch = Scratch::new();
    let server = scratch.serve(ANYBODY);
    let mut client = Client::new(&server);
    let root = client.mnt(&scratch.export()).unwrap();
    let (mine, other) = (CreateMode::Exclusive([1; 8]), CreateMode::Exclusive([2; 8]));
    run(async {
        let lane = lane(&scratch, &mut client).await;
        let root_user = user(0, 0, &[]);
        let made = make(&lane, &root, "f", mine, Access::Write, &root_user).await.unwrap();
        let wire = |client: &mut Client, verifier| {
            client.create_how(&root, "f", nfs3::Createhow3::Exclusive(verifier))
        };
        assert_eq!(wire(&mut client, [1; 8]), Ok(made.handle.clone()));
        assert_eq!(wire(&mut client, [2; 8]), Err(nfs3::Nfsstat3::Exist));
        let again = make(&lane, &root, "f", mine, Access::Write, &root_user).await.unwrap();
        assert_eq!(again.handle, made.handle);
        let refused = make(&lane, &root, "f", other, Access::Write, &root_user).await.map(drop);
        assert_eq!(refused, Err(OpenStatus::TryWire), "the wire says EXIST");
        // Its creator has it, and sets the times, which ends the retry's special case.
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        futimens(&made.grant, &Timestamps { last_access: now, last_modification: now }).unwrap();
        assert_eq!(wire(&mut client, [1; 8]), Err(nfs3::Nfsstat3::Exist));
        // A file created over the wire is found over the lane.
        let by_wire = client.create_how(&root, "g", nfs3::Createhow3::Exclusive([1; 8])).unwrap();
        let found = make(&lane, &root, "g", mine, Access::ReadWrite, &root_user).await.unwrap();
        assert_eq!(found.handle, by_wire);
    });
}

#[test]
fn an_existing_file_is_opened_unchanged_or_left_to_the_wire() {
    let scratch = Scratch::new();
    let server = scratch.serve(ANYBODY);
    let mut client = Client::new(&server);
    std::fs::write(scratch.at("f"), "data").unwrap();
    std::fs::set_permissions(scratch.at("f"), PermissionsExt::from_mode(0o604)).unwrap();
    std::fs::create_dir(scratch.at("d")).unwrap();
    symlink("f", scratch.at("l")).unwrap();
    let mut session = Session::new(&server, 2, b"one");
    session.reclaim_complete();
    let root = session.walk(&scratch.export());
    run(async {
        let lane = lane(&scratch, &mut client).await;
        let as_root = user(0, 0, &[]);
        let open =
            async |name| make(&lane, &root, name, CreateMode::Unchecked, Access::Write, &as_root).await;
        let opened = open("f").await.unwrap();
        assert_eq!((opened.attributes.file.size, opened.attributes.file.mode), (4, 0o604));
        assert_eq!(std::fs::read(scratch.at("f")).unwrap(), b"data");
        for name in ["d", "l", ".", "..", ""] {
            assert_eq!(open(name).await.map(drop), Err(OpenStatus::TryWire), "{name:?}");
        }
        drop(opened);
        lane.flush();
        common::wait_for("the release", || server.status().grants.open == 0);
        // A grant counts as an open, also with a request to create the file.
        let denied = OpenClaim4::Null(Opaque(b"f"));
        session.open_shared(&root, denied, false, SHARE_ACCESS_READ, 2).unwrap();
        assert_eq!(open("f").await.map(drop), Err(OpenStatus::TryWire));
        let _new = open("new").await.unwrap();
        let denied = OpenClaim4::Null(Opaque(b"new"));
        assert!(session.open_shared(&root, denied, false, SHARE_ACCESS_READ, 2).is_err());
    });
}
