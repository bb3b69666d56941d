//! Byte-range locks of a delegation's holder: after a recall the client sends its locks to the server before
//! it returns the delegation, and keeps them. Neither a local process nor another client gets a conflicting
//! lock in between.

mod common;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;

use common::Scratch;
use common::called::{answer, call};
use common::v4::{ANYBODY, NFS_OK, Session, get};
use proto::nfs4::*;
use samehost_server::Server;
use store::FileLock;
use xdr::Opaque;

const DELAY: u32 = Nfsstat4::Delay as u32;
const DENIED: u32 = Nfsstat4::Denied as u32;
const READ_DELEG: u32 = SHARE_ACCESS_READ | SHARE_ACCESS_WANT_READ_DELEG;
const WRITE_DELEG: u32 = SHARE_ACCESS_BOTH | SHARE_ACCESS_WANT_WRITE_DELEG;
const READ: NfsLockType4 = NfsLockType4::Read;
const WRITE: NfsLockType4 = NfsLockType4::Write;

/// A server with a file `f`, and clients with back channels; the handle of the export.
fn start<const N: usize>(scratch: &Scratch, names: [&str; N]) -> (Server, Vec<u8>, [Session; N]) {
    let server = scratch.serve(ANYBODY);
    std::fs::write(scratch.at("f"), "data").unwrap();
    let sessions = names.map(|name| {
        let mut session = Session::callable(&server, 2, name.as_bytes());
        session.reclaim_complete();
        session
    });
    let mut walker = Session::new(&server, 2, b"walker");
    let root = walker.walk(&scratch.export());
    (server, root, sessions)
}

/// OPEN of `f`: the open, the delegation, if there is one, and the handle.
fn open_f(
    session: &mut Session,
    root: &[u8],
    access: u32,
) -> Result<(Stateid4, Option<Stateid4>, Vec<u8>), u32> {
    session.open_with(root, OpenClaim4::Null(Opaque(b"f")), false, access, 0)
}

/// LOCK of some bytes for a new lock owner, or its error status.
fn lock(
    session: &mut Session,
    file: &[u8],
    open: Stateid4,
    owner: &[u8],
    locktype: NfsLockType4,
    (offset, length): (u64, u64),
) -> Result<Stateid4, u32> {
    let lock_owner = StateOwner4 { clientid: session.clientid, owner: Opaque(owner) };
    let locker =
        Locker4::New(OpenToLockOwner4 { open_seqid: 0, open_stateid: open, lock_seqid: 0, lock_owner });
    let args = Lock4Args { locktype, reclaim: false, offset, length, locker };
    let (status, body) = session.on(file, Operation::Lock, &args);
    if status == NFS_OK { Ok(get(&body)) } else { Err(status) }
}

fn unlock(session: &mut Session, file: &[u8], lock_stateid: Stateid4, (offset, length): (u64, u64)) {
    let lock_stateid = Stateid4 { seqid: 0, ..lock_stateid };
    let args = Locku4Args { locktype: WRITE, seqid: 0, lock_stateid, offset, length };
    assert_eq!(session.on(file, Operation::Locku, &args).0, NFS_OK);
}

/// LOCKT of a byte.
fn test(session: &mut Session, file: &[u8], locktype: NfsLockType4, offset: u64) -> u32 {
    let owner = StateOwner4 { clientid: session.clientid, owner: Opaque(b"tester") };
    session.on(file, Operation::Lockt, &Lockt4Args { locktype, offset, length: 1, owner }).0
}

fn expect_recall(session: &mut Session, delegation: Stateid4) {
    let recall = call(session);
    let args: CbRecall4Args<'_> = get(&recall.args);
    assert_eq!((recall.operation, args.stateid), (CB_RECALL, delegation));
    answer(session, &recall, &[]);
}

fn delegreturn(session: &mut Session, file: &[u8], delegation: Stateid4) {
    let returned = session.on(file, Operation::Delegreturn, &Stateid4Args { stateid: delegation });
    assert_eq!(returned.0, NFS_OK);
}

/// A local process's open, which waits for the return of conflicting delegations.
fn local(path: &Path) -> OwnedFd {
    File::options().read(true).write(true).open(path).unwrap().into()
}

/// Whether a local process can lock the byte exclusively.
fn can_lock(local: &OwnedFd, byte: u64) -> bool {
    let locked = store::lock(local, &FileLock { first: byte, last: byte, exclusive: true }).unwrap();
    store::unlock(local, byte, byte).unwrap();
    locked
}

#[test]
fn the_holders_locks_during_a_recall_exclude_local_processes() {
    let scratch = Scratch::new();
    let (_server, root, [mut one]) = start(&scratch, ["one"]);
    let (open, delegation, file) = open_f(&mut one, &root, WRITE_DELEG).unwrap();
    let delegation = delegation.expect("nobody has it open");
    let early = lock(&mut one, &file, open, b"early", WRITE, (50, 1)).unwrap();
    let path = scratch.at("f");
    std::thread::scope(|scope| {
        let opening = scope.spawn(|| {
            let local = local(&path);
            let got = [0, 9, 20, 27, 40, 50, 60].map(|byte| can_lock(&local, byte));
            (local, got)
        });
        expect_recall(&mut one, delegation);
        // As the kernel's client does: it opens and locks by the delegation, and then returns it.
        let claim = OpenClaim4::DelegCurFh(delegation);
        let (open, _) = one.open_shared(&file, claim, false, SHARE_ACCESS_BOTH, 0).unwrap();
        let a = lock(&mut one, &file, open, b"a", WRITE, (0, 10)).unwrap();
        let b = lock(&mut one, &file, open, b"b", READ, (20, 10)).unwrap();
        let c = lock(&mut one, &file, open, b"c", READ, (25, 16)).unwrap();
        assert_eq!(lock(&mut one, &file, open, b"d", WRITE, (9, 1)), Err(DENIED));
        assert_eq!(test(&mut one, &file, WRITE, 40), DENIED);
        assert_eq!(test(&mut one, &file, WRITE, 60), NFS_OK);
        assert!(!opening.is_finished());
        delegreturn(&mut one, &file, delegation);
        let (local, got) = opening.join().unwrap();
        assert_eq!(got, [false, false, false, false, false, false, true]);
        unlock(&mut one, &file, b, (0, u64::MAX));
        assert_eq!([20, 27].map(|byte| can_lock(&local, byte)), [true, false], "the third owner has it, too");
        unlock(&mut one, &file, a, (0, 5));
        assert_eq!([4, 5].map(|byte| can_lock(&local, byte)), [true, false]);
        for held in [a, c, early] {
            unlock(&mut one, &file, held, (0, u64::MAX));
        }
        assert!([0, 9, 27, 50].iter().all(|byte| can_lock(&local, *byte)));
        // In the other direction.
        assert!(store::lock(&local, &FileLock { first: 0, last: 0, exclusive: true }).unwrap());
        assert_eq!(lock(&mut one, &file, open, b"a", WRITE, (0, 1)), Err(DENIED));
        assert_eq!(test(&mut one, &file, READ, 0), DENIED);
    });
}

#[test]
fn another_clients_open_waits_for_the_return_and_its_locks_conflict_with_the_holders() {
    let scratch = Scratch::new();
    let (_server, root, [mut one, mut other]) = start(&scratch, ["one", "other"]);
    let (_, delegation, file) = open_f(&mut one, &root, WRITE_DELEG).unwrap();
    let delegation = delegation.unwrap();
    assert_eq!(open_f(&mut other, &root, SHARE_ACCESS_BOTH).err(), Some(DELAY));
    expect_recall(&mut one, delegation);
    let claim = OpenClaim4::DelegCurFh(delegation);
    let (open, _) = one.open_shared(&file, claim, false, SHARE_ACCESS_BOTH, 0).unwrap();
    let held = lock(&mut one, &file, open, b"a", WRITE, (0, 10)).unwrap();
    assert_eq!(open_f(&mut other, &root, SHARE_ACCESS_BOTH).err(), Some(DELAY));
    delegreturn(&mut one, &file, delegation);
    let (theirs, ..) = open_f(&mut other, &root, SHARE_ACCESS_BOTH).unwrap();
    assert_eq!(lock(&mut other, &file, theirs, b"x", READ, (9, 1)), Err(DENIED));
    lock(&mut other, &file, theirs, b"x", WRITE, (10, 10)).unwrap();
    assert_eq!(lock(&mut one, &file, open, b"b", WRITE, (10, 1)), Err(DENIED));
    unlock(&mut one, &file, held, (0, u64::MAX));
    lock(&mut other, &file, theirs, b"y", WRITE, (0, 10)).unwrap();
    // The locks end with their open, although the file description stays open for the other owner's locks.
    one.close(&file, open);
}

#[test]
fn locks_made_under_a_delegation_end_with_their_open() {
    let scratch = Scratch::new();
    let (_server, root, [mut one]) = start(&scratch, ["one"]);
    let (open, delegation, file) = open_f(&mut one, &root, WRITE_DELEG).unwrap();
    let held = [b"a", b"b"].map(|owner| lock(&mut one, &file, open, owner, READ, (0, 10)).unwrap());
    delegreturn(&mut one, &file, delegation.unwrap());
    let local = local(&scratch.at("f"));
    assert!(!can_lock(&local, 0));
    unlock(&mut one, &file, held[0], (0, u64::MAX));
    let stateid = Stateid4 { seqid: 0, ..held[0] };
    assert_eq!(one.on(&file, Operation::FreeStateid, &Stateid4Args { stateid }).0, NFS_OK);
    assert!(!can_lock(&local, 0));
    one.close(&file, open);
    assert!(can_lock(&local, 0));
}

#[test]
fn a_lock_request_recalls_a_delegation_that_permits_local_locks() {
    let scratch = Scratch::new();
    let (_server, root, [mut one, mut other]) = start(&scratch, ["one", "other"]);
    let (_, delegation, file) = open_f(&mut one, &root, WRITE_DELEG).unwrap();
    let delegation = delegation.unwrap();
    assert_eq!(test(&mut one, &file, WRITE, 0), NFS_OK, "its own delegation");
    assert_eq!(test(&mut other, &file, READ, 0), DELAY);
    expect_recall(&mut one, delegation);
    let claim = OpenClaim4::DelegCurFh(delegation);
    let (open, _) = one.open_shared(&file, claim, false, SHARE_ACCESS_BOTH, 0).unwrap();
    lock(&mut one, &file, open, b"a", WRITE, (0, 1)).unwrap();
    delegreturn(&mut one, &file, delegation);
    assert_eq!([0, 1].map(|byte| test(&mut other, &file, READ, byte)), [DENIED, NFS_OK]);
}

#[test]
fn read_locks_recall_nothing_and_become_write_locks() {
    let scratch = Scratch::new();
    let (_server, root, [mut one, mut other, mut third]) = start(&scratch, ["one", "other", "third"]);
    let (_, delegation, file) = open_f(&mut one, &root, READ_DELEG).unwrap();
    let (open, none, _) = open_f(&mut other, &root, SHARE_ACCESS_READ | SHARE_ACCESS_WANT_NO_DELEG).unwrap();
    assert_eq!(none, None);
    lock(&mut other, &file, open, b"a", READ, (0, 10)).unwrap();
    let (.., delegated, _) = open_f(&mut third, &root, READ_DELEG).unwrap();
    assert!(delegated.is_some(), "no delegation has been recalled");
    delegreturn(&mut one, &file, delegation.unwrap());
    delegreturn(&mut third, &file, delegated.unwrap());
    let (open, ..) = open_f(&mut other, &root, SHARE_ACCESS_BOTH | SHARE_ACCESS_WANT_NO_DELEG).unwrap();
    lock(&mut other, &file, open, b"a", WRITE, (0, 5)).unwrap();
    let local = local(&scratch.at("f"));
    let shared = |byte| store::lock(&local, &FileLock { first: byte, last: byte, exclusive: false }).unwrap();
    assert_eq!([shared(0), shared(5)], [false, true]);
    assert!(!can_lock(&local, 6));
}
