//! Local processes with grants and clients of NFSv4 on the same files: a grant counts as an open. (What it
//! means for delegations is among their tests.)

mod common;

use std::time::Duration;

use common::local::{lane, open, run, user};
use common::v4::{ANYBODY, NFS_OK, Session};
use common::{Client, Scratch};
use lane::{Access, Lane, OpenStatus, Target};
use proto::nfs3;
use proto::nfs4::*;
use samehost_server::{Config, Server};
use xdr::Opaque;

const SHARE_DENY_READ: u32 = 1;
const SHARE_DENY_WRITE: u32 = 2;
const SHARE_DENIED: u32 = Nfsstat4::ShareDenied as u32;

/// A client of NFSv4 that has nothing to reclaim, and the handle of the export.
fn session(server: &Server, scratch: &Scratch, name: &[u8]) -> (Session, Vec<u8>) {
    let mut session = Session::new(server, 2, name);
    session.reclaim_complete();
    let root = session.walk(&scratch.export());
    (session, root)
}

/// OPEN of `f` for reading, against `deny`.
fn open_f(session: &mut Session, root: &[u8], deny: u32) -> Result<(Stateid4, Vec<u8>), u32> {
    session.open_shared(root, OpenClaim4::Null(Opaque(b"f")), false, SHARE_ACCESS_READ, deny)
}

/// The status of a refused Open by root.
async fn refused(lane: &Lane, target: Target<'_>, access: Access) -> Option<OpenStatus> {
    open(lane, target, access, &user(0, 0, &[])).await.err()
}

#[test]
fn a_grant_and_a_deny_mode_exclude_each_other() {
    let scratch = Scratch::new();
    let server = scratch.serve(ANYBODY);
    let mut client = Client::new(&server);
    std::fs::write(scratch.at("f"), "data").unwrap();
    let (mut session, root) = session(&server, &scratch, b"one");
    let entry = Target::Entry { directory: &root, name: b"f" };
    run(async {
        let lane = lane(&scratch, &mut client).await;
        let (id, file) = open_f(&mut session, &root, SHARE_DENY_WRITE).unwrap();
        // The lane takes NFSv4's handles: they are the files' own.
        for target in [entry, Target::Handle(&file)] {
            assert_eq!(refused(&lane, target, Access::Write).await, Some(OpenStatus::TryWire));
            assert_eq!(refused(&lane, target, Access::ReadWrite).await, Some(OpenStatus::TryWire));
            assert_eq!(refused(&lane, target, Access::Read).await, None);
        }
        session.close(&file, id);
        let granted = open(&lane, entry, Access::Write, &user(0, 0, &[])).await.unwrap();
        assert_eq!(granted.handle, file);
        assert_eq!(open_f(&mut session, &root, SHARE_DENY_WRITE).err(), Some(SHARE_DENIED));
        assert_eq!(open_f(&mut session, &root, SHARE_DENY_BOTH).err(), Some(SHARE_DENIED));
        let (id, _) = open_f(&mut session, &root, 0).unwrap();
        session.close(&file, id);
        drop(granted);
        lane.flush();
        common::wait_for("the releases", || server.status().grants.open == 0);
        open_f(&mut session, &root, SHARE_DENY_BOTH).unwrap();
        assert_eq!(refused(&lane, entry, Access::Read).await, Some(OpenStatus::TryWire));
    });
}

/// Access that the lane refuses must not be available over the wire.
#[test]
fn a_deny_mode_holds_for_version_3_too() {
    let scratch = Scratch::new();
    let server = scratch.serve(ANYBODY);
    let mut client = Client::new(&server);
    std::fs::write(scratch.at("f"), "data").unwrap();
    std::fs::write(scratch.at("g"), "data").unwrap();
    let (mut session, root) = session(&server, &scratch, b"one");
    let (id, file) = open_f(&mut session, &root, SHARE_DENY_WRITE).unwrap();
    let later = |outcome: nfs3::Write3Res| matches!(outcome, nfs3::Outcome::Fail(nfs3::Nfsstat3::Jukebox, _));
    assert!(later(client.write(&file, 0, b"x")));
    assert_eq!(client.read(&file, 0, 4).unwrap().0, b"data");
    let other = client.lookup(&root, "g");
    assert!(!later(client.write(&other, 0, b"x")));
    session.close(&file, id);
    assert!(!later(client.write(&file, 0, b"x")));
    open_f(&mut session, &root, SHARE_DENY_READ).unwrap();
    assert_eq!(client.read(&file, 0, 4), Err(nfs3::Nfsstat3::Jukebox));
}

/// A client without permission to write can't deny access to others over NFSv4, NFSv3 or the lane.
#[test]
fn a_deny_mode_needs_permission_to_write() {
    let scratch = Scratch::new();
    let read_only = "127.0.0.2(ro,insecure,no_root_squash)";
    let server = scratch.serve(&format!("127.0.0.1(rw,insecure,no_root_squash,async) {read_only}"));
    let mut client = Client::new(&server);
    let root = client.mnt(&scratch.export()).unwrap();
    for (name, mode) in [("f", 0o644), ("shared", 0o666)] {
        std::fs::write(scratch.at(name), "data").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(scratch.at(name), mode).unwrap();
    }
    let reader = Client::new(&server).with_user(1000, 1000, &[]);
    let elsewhere = Client::from(&server, [127, 0, 0, 2].into(), 0);
    for (wire, name) in [(reader, &b"reader"[..]), (elsewhere, b"elsewhere")] {
        let mut session = Session::from(wire, 2, name);
        session.reclaim_complete();
        for deny in [SHARE_DENY_READ, SHARE_DENY_WRITE, SHARE_DENY_BOTH] {
            assert_eq!(open_f(&mut session, &root, deny).err(), Some(Nfsstat4::Access as u32), "{deny}");
        }
        open_f(&mut session, &root, 0).unwrap();
    }
    let file = client.lookup(&root, "f");
    assert!(matches!(client.write(&file, 0, b"data"), nfs3::Outcome::Ok(_)));
    run(async {
        let lane = lane(&scratch, &mut client).await;
        assert_eq!(refused(&lane, Target::Handle(&file), Access::ReadWrite).await, None);
    });
    // With permission to write it can.
    let mut writer = Session::from(Client::new(&server).with_user(1000, 1000, &[]), 2, b"writer");
    writer.reclaim_complete();
    let shared = OpenClaim4::Null(Opaque(b"shared"));
    writer.open_shared(&root, shared, false, SHARE_ACCESS_READ, SHARE_DENY_BOTH).unwrap();
}

#[test]
fn the_grants_of_a_process_end_with_it() {
    let scratch = Scratch::new();
    let server = scratch.serve(ANYBODY);
    let mut client = Client::new(&server);
    std::fs::write(scratch.at("f"), "data").unwrap();
    let (mut session, root) = session(&server, &scratch, b"one");
    run(async {
        let lane = lane(&scratch, &mut client).await;
        let entry = Target::Entry { directory: &root, name: b"f" };
        let _granted = open(&lane, entry, Access::Read, &user(0, 0, &[])).await.unwrap();
        assert_eq!(open_f(&mut session, &root, SHARE_DENY_READ).err(), Some(SHARE_DENIED));
        // As if it had been killed: nothing is released.
        lane.end();
        common::wait_for("the end of the lane", || open_f(&mut session, &root, SHARE_DENY_READ).is_ok());
    });
}

#[test]
fn a_silent_client_is_expired_for_a_grant_only_if_the_grant_is_permitted() {
    let scratch = Scratch::new();
    let lease = Duration::from_secs(1);
    let server = Server::start(Config { lease, ..scratch.config(ANYBODY) }).unwrap();
    let mut client = Client::new(&server);
    for name in ["f", "g"] {
        std::fs::write(scratch.at(name), "data").unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(scratch.at(name), private).unwrap();
    }
    let (mut first, root) = session(&server, &scratch, b"first");
    let (_, file) = open_f(&mut first, &root, SHARE_DENY_BOTH).unwrap();
    let (mut second, _) = session(&server, &scratch, b"second");
    let g = OpenClaim4::Null(Opaque(b"g"));
    second.open_shared(&root, g, false, SHARE_ACCESS_READ, SHARE_DENY_BOTH).unwrap();
    run(async {
        let lane = lane(&scratch, &mut client).await;
        let of = |name| Target::Entry { directory: &root, name };
        // The second client's last request is later: when its lease has expired, so has the first client's.
        while let Some(status) = refused(&lane, of(b"g"), Access::Read).await {
            assert_eq!(status, OpenStatus::TryWire);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let stranger = open(&lane, of(b"f"), Access::Read, &user(1000, 1000, &[])).await;
        assert_eq!(stranger.err(), Some(OpenStatus::Access));
        let ops = first.sequence(false).op(Operation::Putfh, &Putfh4Args { object: Opaque(&file) });
        assert_eq!(first.run(&ops).status, NFS_OK, "its state is unchanged");
    });
}

#[test]
fn nothing_is_granted_before_old_clients_have_reclaimed() {
    let scratch = Scratch::new();
    let mut config = scratch.config(ANYBODY);
    let server = Server::start(config.clone()).unwrap();
    // Client records belong to the server of an address.
    config.listen = server.local_addrs();
    server.stop();
    let server = Server::start(config.clone()).unwrap();
    std::fs::write(scratch.at("f"), "data").unwrap();
    let (mut session, root) = session(&server, &scratch, b"one");
    let (_, file) = open_f(&mut session, &root, SHARE_DENY_WRITE).unwrap();
    drop(server);
    let server = Server::start(config).unwrap();
    let mut client = Client::new(&server);
    run(async {
        let lane = lane(&scratch, &mut client).await;
        let target = Target::Handle(&file);
        assert_eq!(refused(&lane, target, Access::Read).await, Some(OpenStatus::TryWire));
        let mut session = Session::new(&server, 2, b"one");
        let claim = OpenClaim4::Previous(0);
        session.open_shared(&file, claim, false, SHARE_ACCESS_READ, SHARE_DENY_WRITE).unwrap();
        session.reclaim_complete();
        assert_eq!(refused(&lane, target, Access::Read).await, None);
        assert_eq!(refused(&lane, target, Access::Write).await, Some(OpenStatus::TryWire));
    });
}
