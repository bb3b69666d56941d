//! Locks that a server stores with the service manager, whose part the test plays: local processes can't get
//! a client's locks while the server is down, the client reclaims them, and unreclaimed locks are released.

mod common;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use common::manager::Manager;
use common::v4::{ANYBODY, NFS_OK, Session, get};
use common::{Scratch, wait_for};
use proto::nfs4::*;
use samehost_server::{Config, Server};
use store::FileLock;
use xdr::Opaque;

/// LOCK by one owner; the status if it isn't granted.
fn lock(
    session: &mut Session,
    file: &[u8],
    open: Stateid4,
    owner: &[u8],
    (locktype, offset, length): (NfsLockType4, u64, u64),
    reclaim: bool,
) -> Result<Stateid4, u32> {
    let lock_owner = StateOwner4 { clientid: session.clientid, owner: Opaque(owner) };
    let locker =
        Locker4::New(OpenToLockOwner4 { open_seqid: 0, open_stateid: open, lock_seqid: 0, lock_owner });
    let args = Lock4Args { locktype, reclaim, offset, length, locker };
    let (status, body) = session.on(file, Operation::Lock, &args);
    if status == NFS_OK { Ok(get(&body)) } else { Err(status) }
}

fn unlock(session: &mut Session, file: &[u8], lock_stateid: Stateid4) {
    let lock_stateid = Stateid4 { seqid: 0, ..lock_stateid };
    let args =
        Locku4Args { locktype: NfsLockType4::Write, seqid: 0, lock_stateid, offset: 0, length: u64::MAX };
    assert_eq!(session.on(file, Operation::Locku, &args).0, NFS_OK);
}

fn open(path: &Path) -> OwnedFd {
    File::options().read(true).write(true).open(path).unwrap().into()
}

/// The bytes of `bytes` that a local process can lock exclusively.
fn free(local: &OwnedFd, bytes: &[u64]) -> Vec<u64> {
    let lock = |byte| FileLock { first: byte, last: byte, exclusive: true };
    bytes.iter().copied().filter(|byte| store::test_lock(local, &lock(*byte)).unwrap().is_none()).collect()
}

#[test]
fn a_clients_locks_hold_while_the_server_is_down_and_until_they_are_reclaimed() {
    const WRITE: NfsLockType4 = NfsLockType4::Write;
    const READ: NfsLockType4 = NfsLockType4::Read;
    let scratch = Scratch::new();
    let mut manager = Manager::new(&scratch);
    let mut config = Config { lease: Duration::from_secs(3600), ..scratch.config(ANYBODY) };
    let server = Server::start(config.clone()).unwrap();
    config.listen = server.local_addrs();
    server.stop();
    std::fs::write(scratch.at("f"), "data").unwrap();
    std::fs::write(scratch.at("g"), "data").unwrap();
    let start = |manager: &mut Manager| {
        let config = Config { lock_store: Some(manager.store(100)), ..config.clone() };
        Server::start(config).unwrap()
    };
    let server = start(&mut manager);
    let mut one = Session::callable(&server, 2, b"one");
    one.reclaim_complete();
    let root = one.walk(&scratch.export());
    let claim = |name| OpenClaim4::Null(Opaque(name));
    let access = SHARE_ACCESS_BOTH | SHARE_ACCESS_WANT_NO_DELEG;
    let (f, file) = one.open_shared(&root, claim(b"f"), false, access, 0).unwrap();
    // Each of these two owners has an open file description of its own, and their ranges overlap.
    lock(&mut one, &file, f, b"a", (READ, 0, 10), false).unwrap();
    lock(&mut one, &file, f, b"b", (READ, 5, 10), false).unwrap();
    lock(&mut one, &file, f, b"b", (WRITE, 20, 10), false).unwrap();
    let gone = lock(&mut one, &file, f, b"gone", (WRITE, 40, 1), false).unwrap();
    unlock(&mut one, &file, gone);
    let stateid = Stateid4 { seqid: 0, ..gone };
    assert_eq!(one.on(&file, Operation::FreeStateid, &Stateid4Args { stateid }).0, NFS_OK);
    // These share the description that the lease is on.
    let access = SHARE_ACCESS_BOTH | SHARE_ACCESS_WANT_WRITE_DELEG;
    let (g, delegation, delegated_file) = one.open_with(&root, claim(b"g"), false, access, 0).unwrap();
    delegation.expect("no other client has it open");
    lock(&mut one, &delegated_file, g, b"a", (WRITE, 0, 10), false).unwrap();
    lock(&mut one, &delegated_file, g, b"b", (WRITE, 10, 10), false).unwrap();
    // Without stop(): as if the server was killed.
    drop(server);
    assert_eq!(manager.names().len(), 3);
    let local = open(&scratch.at("f"));
    let all = [0, 5, 14, 20, 29, 40];
    assert_eq!(free(&local, &all), [40]);

    let server = start(&mut manager);
    // The lease ended with the server, or its successor released it.
    let other_local = open(&scratch.at("g"));
    assert_eq!(free(&local, &all), [40]);
    assert_eq!(free(&other_local, &[0, 9, 10, 19, 20]), [20]);
    let mut one = Session::callable(&server, 2, b"one");
    let (f, _) = one.open(&file, OpenClaim4::Previous(0), false).unwrap();
    let b = lock(&mut one, &file, f, b"b", (READ, 5, 10), true).unwrap();
    lock(&mut one, &file, f, b"b", (WRITE, 20, 5), true).unwrap();
    let (g, _) = one.open(&delegated_file, OpenClaim4::Previous(0), false).unwrap();
    let a = lock(&mut one, &delegated_file, g, b"a", (WRITE, 0, 10), true).unwrap();
    assert_eq!(free(&local, &all), [40], "more reclaims may follow");
    one.reclaim_complete();
    // Released: the first owner's locks, and those that the second owner hasn't reclaimed.
    wait_for("the end of the grace period", || free(&local, &all) == [0, 29, 40]);
    wait_for("the other file", || free(&other_local, &[0, 9, 10, 19, 20]) == [10, 19, 20]);
    wait_for("unreclaimed locks to be removed", || manager.names().len() == 2);
    unlock(&mut one, &file, b);
    unlock(&mut one, &delegated_file, a);
    assert_eq!((free(&local, &all), free(&other_local, &[0, 9])), (all.to_vec(), vec![0, 9]));
    one.close(&file, f);
    one.close(&delegated_file, g);
    assert_eq!(manager.names(), Vec::<String>::new());
}

#[test]
fn locks_are_granted_although_the_manager_has_no_room() {
    let scratch = Scratch::new();
    let mut manager = Manager::new(&scratch);
    let lock_store = Some(manager.store(1));
    let server = Server::start(Config { lock_store, ..scratch.config(ANYBODY) }).unwrap();
    std::fs::write(scratch.at("f"), "data").unwrap();
    let mut one = Session::new(&server, 2, b"one");
    one.reclaim_complete();
    let root = one.walk(&scratch.export());
    let (f, file) = one.open(&root, OpenClaim4::Null(Opaque(b"f")), false).unwrap();
    for (byte, owner) in [b"a", b"b"].iter().enumerate() {
        lock(&mut one, &file, f, *owner, (NfsLockType4::Write, byte as u64, 1), false).unwrap();
    }
    assert_eq!(manager.names().len(), 1);
    assert_eq!(free(&open(&scratch.at("f")), &[0, 1, 2]), [2]);
    one.close(&file, f);
    assert_eq!(manager.names().len(), 0);
    // There's room again.
    let (f, _) = one.open(&root, OpenClaim4::Null(Opaque(b"f")), false).unwrap();
    lock(&mut one, &file, f, b"c", (NfsLockType4::Write, 0, 1), false).unwrap();
    assert_eq!(manager.names().len(), 1);
}

#[test]
fn the_locks_of_a_removed_export_do_not_wait_for_the_manager() {
    let scratch = Scratch::new();
    let mut manager = Manager::new(&scratch);
    let list = scratch.dir.path().join("exports");
    let other = scratch.dir.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let other = format!("{} {ANYBODY}\n", other.display());
    std::fs::write(&list, format!("{other}{} {ANYBODY}\n", scratch.export().display())).unwrap();
    let mut config = Config { lock_store: Some(manager.store(100)), ..scratch.config("") };
    (config.exports, config.export_files) = (vec![], vec![list.clone()]);
    let server = Server::start(config).unwrap();
    std::fs::write(scratch.at("f"), "data").unwrap();
    let mut one = Session::new(&server, 2, b"one");
    one.reclaim_complete();
    let root = one.walk(&scratch.export());
    let (f, file) = one.open(&root, OpenClaim4::Null(Opaque(b"f")), false).unwrap();
    for (byte, owner) in [b"a", b"b"].iter().enumerate() {
        lock(&mut one, &file, f, *owner, (NfsLockType4::Write, byte as u64, 1), false).unwrap();
    }
    let local = open(&scratch.at("f"));
    assert_eq!((manager.names().len(), free(&local, &[0, 1, 2])), (2, vec![2]));
    std::fs::write(&list, other).unwrap();
    server.reload().unwrap();
    // The manager has its copies open, and hasn't read yet that it is to close them.
    assert_eq!(manager.kept.len(), 2);
    wait_for("the locks", || free(&local, &[0, 1, 2]) == [0, 1, 2]);
    wait_for("the removals", || manager.names().is_empty());
}
