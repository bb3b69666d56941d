//! Blocking locks over TCP: the next client in the queue gets CB_NOTIFY_LOCK when another client or a local
//! process has released the lock.

mod common;

use std::time::Duration;

use common::Scratch;
use common::called::{answer, call};
use common::v4::{ANYBODY, NFS_OK, Session, get};
use proto::nfs4::*;
use samehost_server::{Config, Server};
use store::FileLock;
use xdr::Opaque;

const DENIED: u32 = Nfsstat4::Denied as u32;

/// A client with the export's file `f` open.
struct Locker {
    session: Session,
    file: Vec<u8>,
    open: Stateid4,
}

impl Locker {
    fn new(server: &Server, scratch: &Scratch, name: &[u8]) -> Self {
        let mut session = Session::callable(server, 1, name);
        session.reclaim_complete();
        let root = session.walk(&scratch.export());
        let args = Open4Args {
            seqid: 0,
            share_access: SHARE_ACCESS_BOTH | SHARE_ACCESS_WANT_NO_DELEG,
            share_deny: 0,
            owner: StateOwner4 { clientid: session.clientid, owner: Opaque(b"opener") },
            openhow: Openflag4::Nocreate,
            claim: OpenClaim4::Null(Opaque(b"f")),
        };
        let (status, body) = session.on(&root, Operation::Open, &args);
        assert_eq!(status, NFS_OK);
        let opened: Open4ResOk<'_> = get(&body);
        assert_ne!(opened.rflags & RESULT_MAY_NOTIFY_LOCK, 0, "the client has a back channel");
        let open = opened.stateid;
        let file = session.lookup(&root, b"f").unwrap();
        Self { session, file, open }
    }

    /// A blocking LOCK of the whole file.
    fn lock(&mut self) -> Result<Stateid4, u32> {
        let lock_owner = StateOwner4 { clientid: self.session.clientid, owner: Opaque(b"locker") };
        let new = OpenToLockOwner4 { open_seqid: 0, open_stateid: self.open, lock_seqid: 0, lock_owner };
        let (locktype, locker) = (NfsLockType4::Writew, Locker4::New(new));
        let args = Lock4Args { locktype, reclaim: false, offset: 0, length: u64::MAX, locker };
        let (status, body) = self.session.on(&self.file, Operation::Lock, &args);
        if status == NFS_OK { Ok(get(&body)) } else { Err(status) }
    }

    fn unlock(&mut self, lock_stateid: Stateid4) {
        let locktype = NfsLockType4::Write;
        let args = Locku4Args { locktype, seqid: 0, lock_stateid, offset: 0, length: u64::MAX };
        assert_eq!(self.session.on(&self.file, Operation::Locku, &args).0, NFS_OK);
    }

    /// Receives CB_NOTIFY_LOCK.
    fn is_notified(&mut self) {
        let received = call(&mut self.session);
        let args: CbNotifyLock4Args<'_> = get(&received.args);
        assert_eq!((received.operation, args.fh.0), (CB_NOTIFY_LOCK, &self.file[..]));
        assert_eq!(
            (args.lock_owner.clientid, args.lock_owner.owner.0),
            (self.session.clientid, &b"locker"[..])
        );
        answer(&mut self.session, &received, &[]);
    }
}

/// A server whose lease, and a client's turn for a lock, is longer than any test.
fn serve(scratch: &Scratch) -> Server {
    let lease = Duration::from_secs(3600);
    Server::start(Config { lease, ..scratch.config(ANYBODY) }).unwrap()
}

#[test]
fn clients_that_wait_for_a_lock_are_notified_in_order() {
    let scratch = Scratch::new();
    let server = serve(&scratch);
    std::fs::write(scratch.at("f"), "data").unwrap();
    let [mut one, mut two, mut three] = [b"a", b"b", b"c"].map(|name| Locker::new(&server, &scratch, name));
    let held = one.lock().unwrap();
    assert_eq!((two.lock(), three.lock()), (Err(DENIED), Err(DENIED)));
    one.unlock(held);
    assert_eq!((three.lock(), one.lock()), (Err(DENIED), Err(DENIED)), "it isn't their turn");
    two.is_notified();
    let held = two.lock().unwrap();
    two.unlock(held);
    three.is_notified();
    three.lock().unwrap();
}

#[test]
fn a_client_is_notified_when_a_local_process_unlocks() {
    let scratch = Scratch::new();
    let server = serve(&scratch);
    std::fs::write(scratch.at("f"), "data").unwrap();
    let mut one = Locker::new(&server, &scratch, b"one");
    let local = std::fs::File::options().write(true).open(scratch.at("f")).unwrap().into();
    assert!(store::lock(&local, &FileLock { first: 5, last: 5, exclusive: true }).unwrap());
    assert_eq!(one.lock(), Err(DENIED));
    drop(local);
    one.is_notified();
    one.lock().unwrap();
}

/// The server doesn't see the local process unlock, and another client asks at once.
#[test]
fn nobody_overtakes_a_client_that_waits_for_a_local_process() {
    let scratch = Scratch::new();
    let server = serve(&scratch);
    std::fs::write(scratch.at("f"), "data").unwrap();
    let (mut one, mut two) = (Locker::new(&server, &scratch, b"one"), Locker::new(&server, &scratch, b"two"));
    for _ in 0..5 {
        let local = std::fs::File::options().write(true).open(scratch.at("f")).unwrap().into();
        assert!(store::lock(&local, &FileLock { first: 5, last: 5, exclusive: true }).unwrap());
        assert_eq!(one.lock(), Err(DENIED));
        drop(local);
        assert_eq!(two.lock(), Err(DENIED), "it is the other one's turn");
        for locker in [&mut one, &mut two] {
            locker.is_notified();
            let id = locker.lock().unwrap();
            locker.unlock(id);
        }
    }
}
