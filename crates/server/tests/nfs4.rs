//! NFSv4 over TCP: whole COMPOUNDs in, exact results out; and a restart while a client has files open and
//! locked.

mod common;

use common::v4::{ANYBODY, NFS_OK, Ops, PUTFH, SEQUENCE, Session, compound, get};
use common::{Client, Scratch, encoded};
use proto::nfs4::*;
use rpc::message::ReplyStatus;
use samehost_server::Server;
use xdr::Opaque;

#[test]
fn a_file_is_created_written_read_and_closed() {
    let scratch = Scratch::new();
    let server = scratch.serve(ANYBODY);
    let mut session = Session::new(&server, 2, b"one");
    session.reclaim_complete();
    let root = session.walk(&scratch.export());
    let (id, file) = session.open(&root, OpenClaim4::Null(Opaque(b"f")), true).unwrap();
    let write = Write4Args { stateid: id, offset: 0, stable: StableHow4::Unstable, data: Opaque(b"hello") };
    let ops = session
        .sequence(false)
        .op(Operation::Putfh, &Putfh4Args { object: Opaque(&file) })
        .op(Operation::Write, &write)
        .op(Operation::Read, &Read4Args { stateid: id, offset: 1, count: 100 });
    let done = session.run(&ops);
    let (status, body) = done.after(&[SEQUENCE, PUTFH, (Operation::Write, 16)]);
    assert_eq!(
        (status, get::<Read4ResOk<'_>>(body)),
        (NFS_OK, Read4ResOk { eof: true, data: Opaque(b"ello") })
    );
    assert_eq!(std::fs::read(scratch.at("f")).unwrap(), b"hello");
    let counted = |name: &str| server.status().counters["wire"][name];
    assert_eq!(
        (counted("NFS4.WRITE").bytes, counted("NFS4.READ").bytes, counted("NFS4.OPEN").ops),
        (5, 4, 1)
    );
    assert_eq!(counted("NFS4.REMOVEXATTR").ops, 0);
    let close = Close4Args { seqid: 0, open_stateid: id };
    for expected in [Nfsstat4::Ok, Nfsstat4::BadStateid] {
        let ops = session
            .sequence(false)
            .op(Operation::Putfh, &Putfh4Args { object: Opaque(&file) })
            .op(Operation::Close, &close);
        assert_eq!(session.run(&ops).status, expected as u32);
    }
}

#[test]
fn a_retransmission_is_answered_and_not_executed_again() {
    let scratch = Scratch::new();
    let server = scratch.serve(ANYBODY);
    let mut session = Session::new(&server, 1, b"one");
    session.reclaim_complete();
    let root = session.walk(&scratch.export());
    std::fs::write(scratch.at("f"), "").unwrap();
    let remove = session
        .sequence(true)
        .op(Operation::Putfh, &Putfh4Args { object: Opaque(&root) })
        .op(Operation::Remove, &Name4Args { name: Opaque(b"f") });
    let first = session.run(&remove);
    assert_eq!(first.status, NFS_OK);
    std::fs::write(scratch.at("f"), "another").unwrap();
    assert_eq!(session.run(&remove).bytes, first.bytes);
    assert!(scratch.at("f").exists());
    session.sequence -= 1;
    let other = session
        .sequence(true)
        .op(Operation::Putfh, &Putfh4Args { object: Opaque(&root) })
        .op(Operation::Remove, &Name4Args { name: Opaque(b"g") });
    assert_eq!(session.run(&other).status, Nfsstat4::SeqFalseRetry as u32);
}

/// `sa_highest_slotid` is a property of the moment of sending (RFC 8881 section 18.46.3).
#[test]
fn a_retransmission_may_have_another_highest_slot() {
    let scratch = Scratch::new();
    let server = scratch.serve(ANYBODY);
    let mut session = Session::new(&server, 1, b"one");
    session.reclaim_complete();
    let root = session.walk(&scratch.export());
    let (sessionid, sequenceid) = (session.id, session.sequence + 1);
    let remove = |highest_slotid, cachethis, name| {
        let args = Sequence4Args { sessionid, sequenceid, slotid: 0, highest_slotid, cachethis };
        Ops::new()
            .op(Operation::Sequence, &args)
            .op(Operation::Putfh, &Putfh4Args { object: Opaque(&root) })
            .op(Operation::Remove, &Name4Args { name: Opaque(name) })
    };
    std::fs::write(scratch.at("f"), "").unwrap();
    let first = session.run(&remove(0, true, b"f"));
    assert_eq!(first.status, NFS_OK);
    std::fs::write(scratch.at("f"), "another").unwrap();
    for highest in [3, 0, 1] {
        assert_eq!(session.run(&remove(highest, true, b"f")).bytes, first.bytes);
    }
    let false_retry = Nfsstat4::SeqFalseRetry as u32;
    assert_eq!(session.run(&remove(3, true, b"g")).status, false_retry, "another name");
    assert_eq!(session.run(&remove(3, true, b"f").op(Operation::Getfh, &())).status, false_retry, "more");
    let other = compound(&mut session.wire, 2, &remove(0, true, b"f"));
    assert_eq!(other.status, false_retry, "another minor version");
    session.wire.credential = common::sys(1000, 1000, &[]);
    assert_eq!(session.run(&remove(0, true, b"f")).status, false_retry, "another user");
    assert!(scratch.at("f").exists());
}

#[test]
fn misplaced_operations_are_refused() {
    let scratch = Scratch::new();
    let server = scratch.serve(ANYBODY);
    let mut session = Session::new(&server, 1, b"one");
    let destroy = DestroySession4Args { sessionid: [0; 16] };
    let none = Ops::new();
    let cases = [
        (none.minor(1), Nfsstat4::Ok),
        (none.minor(0), Nfsstat4::Ok),
        (none.minor(3), Nfsstat4::MinorVersMismatch),
        (Ops::new().op(Operation::Putrootfh, &()).minor(1), Nfsstat4::OpNotInSession),
        (Ops::new().op(Operation::DestroySession, &destroy).minor(1), Nfsstat4::Badsession),
        (
            Ops::new().op(Operation::DestroySession, &destroy).op(Operation::Putrootfh, &()).minor(1),
            Nfsstat4::NotOnlyOp,
        ),
        (session.sequence(false).op(Operation::Getfh, &()).minor(1), Nfsstat4::Nofilehandle),
        // An operation of 4.2.
        (session.sequence(false).op(Operation::Seek, &()).minor(1), Nfsstat4::OpIllegal),
        (session.sequence(false).op(Operation::Lookup, &7_u32).minor(1), Nfsstat4::Badxdr),
    ];
    for (request, status) in cases {
        let (rpc, results) = session.wire.raw(PROGRAM, VERSION, COMPOUND, &request);
        assert_eq!((rpc, results.status()), (ReplyStatus::Success, status as u32));
    }
    let two = session.sequence(false);
    let mut twice = Ops { count: 2, encoder: two.encoder.clone() };
    twice.encoder.raw(two.encoder.as_slice());
    assert_eq!(session.run(&twice).status, Nfsstat4::SequencePos as u32);
}

#[test]
fn local_processes_and_clients_exclude_each_other() {
    let scratch = Scratch::new();
    let server = scratch.serve(ANYBODY);
    let mut session = Session::new(&server, 1, b"one");
    session.reclaim_complete();
    let root = session.walk(&scratch.export());
    let (id, file) = session.open(&root, OpenClaim4::Null(Opaque(b"f")), true).unwrap();
    let local = std::fs::File::options().read(true).write(true).open(scratch.at("f")).unwrap();
    let all = store::FileLock { first: 0, last: u64::MAX, exclusive: true };
    let local = std::os::fd::OwnedFd::from(local);
    assert!(store::lock(&local, &all).unwrap());
    assert_eq!(session.lock(&file, id, false), Err(Nfsstat4::Denied as u32));
    store::unlock(&local, 0, u64::MAX).unwrap();
    session.lock(&file, id, false).unwrap();
    assert!(!store::lock(&local, &all).unwrap());
    let mut other = Session::new(&server, 1, b"other");
    other.reclaim_complete();
    let (theirs, _) = other.open(&root, OpenClaim4::Null(Opaque(b"f")), false).unwrap();
    assert_eq!(other.lock(&file, theirs, false), Err(Nfsstat4::Denied as u32));
}

#[test]
fn after_a_restart_clients_reclaim_before_others_open() {
    let scratch = Scratch::new();
    let mut config = scratch.config(ANYBODY);
    let server = Server::start(config.clone()).unwrap();
    config.listen = server.local_addrs();
    server.stop();
    let server = Server::start(config.clone()).unwrap();
    let mut session = Session::new(&server, 1, b"one");
    session.reclaim_complete();
    let root = session.walk(&scratch.export());
    let (id, file) = session.open(&root, OpenClaim4::Null(Opaque(b"f")), true).unwrap();
    session.lock(&file, id, false).unwrap();
    // Without stop(): as if the server was killed.
    drop(server);
    let server = Server::start(config).unwrap();
    let mut other = Session::new(&server, 1, b"other");
    other.reclaim_complete();
    let open_it = OpenClaim4::Null(Opaque(b"f"));
    assert_eq!(other.open(&root, open_it, false), Err(Nfsstat4::Grace as u32));
    let reclaim = OpenClaim4::Previous(0);
    assert_eq!(other.open(&file, reclaim, false), Err(Nfsstat4::NoGrace as u32));
    let mut session = Session::new(&server, 1, b"one");
    let (id, _) = session.open(&file, reclaim, false).unwrap();
    session.lock(&file, id, true).unwrap();
    session.reclaim_complete();
    let (theirs, _) =
        other.open(&root, open_it, false).expect("all clients have reclaimed: the grace period is over");
    assert_eq!(other.lock(&file, theirs, false), Err(Nfsstat4::Denied as u32));
}

/// The server acts as a user who can't write to the state directory.
#[test]
fn opens_of_an_ordinary_user_can_be_reclaimed() {
    let scratch = Scratch::new();
    let mut config = scratch.config(ANYBODY);
    let server = Server::start(config.clone()).unwrap();
    config.listen = server.local_addrs();
    server.stop();
    let server = Server::start(config.clone()).unwrap();
    let mut session = Session::new(&server, 1, b"one");
    session.reclaim_complete();
    session.wire.credential = common::sys(1000, 1000, &[]);
    let root = session.walk(&scratch.export());
    let (_, file) = session.open(&root, OpenClaim4::Null(Opaque(b"f")), true).unwrap();
    drop(server);
    let server = Server::start(config).unwrap();
    let mut session = Session::new(&server, 1, b"one");
    session.wire.credential = common::sys(1000, 1000, &[]);
    session.open(&file, OpenClaim4::Previous(0), false).unwrap();
}

/// 4.0 has no sessions: the owner's sequence number identifies a retransmission.
#[test]
fn in_version_0_each_sequence_number_of_an_owner_is_executed_once() {
    let scratch = Scratch::new();
    let server = scratch.serve(ANYBODY);
    let mut wire = Client::new(&server);
    let args = Setclientid4Args {
        client: NfsClientId4 { verifier: *b"verifier", id: Opaque(b"me") },
        cb_program: 0x4000_0000,
        cb_location: Netaddr4 { netid: Opaque(b"tcp"), addr: Opaque(b"127.0.0.1.0.0") },
        callback_ident: 0,
    };
    let done = compound(&mut wire, 0, &Ops::new().op(Operation::Setclientid, &args));
    let set: Setclientid4ResOk = get(done.after(&[]).1);
    let Setclientid4ResOk { clientid, setclientid_confirm } = set;
    let renew = Ops::new().op(Operation::Renew, &Clientid4Args { clientid });
    assert_eq!(compound(&mut wire, 0, &renew).status, Nfsstat4::StaleClientid as u32, "unconfirmed");
    let confirm = SetclientidConfirm4Args { clientid, setclientid_confirm };
    let confirm = Ops::new().op(Operation::SetclientidConfirm, &confirm);
    assert_eq!(compound(&mut wire, 0, &confirm).status, NFS_OK);
    assert_eq!(compound(&mut wire, 0, &renew).status, NFS_OK);

    let mut walk = Ops::new().op(Operation::Putrootfh, &());
    let mut before = vec![(Operation::Putrootfh, 0)];
    for part in scratch.export().to_str().unwrap().split('/').filter(|part| !part.is_empty()) {
        walk = walk.op(Operation::Lookup, &Name4Args { name: Opaque(part.as_bytes()) });
        before.push((Operation::Lookup, 0));
    }
    let open = Open4Args {
        seqid: 5,
        share_access: SHARE_ACCESS_BOTH,
        share_deny: 0,
        owner: StateOwner4 { clientid, owner: Opaque(b"opener") },
        openhow: Openflag4::Create(Createhow4::Guarded(Fattr4::default())),
        claim: OpenClaim4::Null(Opaque(b"f")),
    };
    let walk = walk.op(Operation::Open, &open).op(Operation::Getfh, &());
    let first = compound(&mut wire, 0, &walk);
    assert_eq!(first.status, NFS_OK);
    assert_eq!(compound(&mut wire, 0, &walk).bytes, first.bytes, "not NFS4ERR_EXIST");
    let (_, body) = first.after(&before);
    let opened: Open4ResOk<'_> = get(body);
    assert_ne!(opened.rflags & RESULT_CONFIRM, 0, "the owner is new");
    before.push((Operation::Open, encoded(&opened).len()));
    let (_, body) = first.after(&before);
    let file = get::<NfsFh4<'_>>(body).0.to_vec();
    let on_file = || Ops::new().op(Operation::Putfh, &Putfh4Args { object: Opaque(&file) });
    let confirm = OpenConfirm4Args { open_stateid: opened.stateid, seqid: 6 };
    let confirm = on_file().op(Operation::OpenConfirm, &confirm);
    let done = compound(&mut wire, 0, &confirm);
    let confirmed: Stateid4 = get(done.after(&[PUTFH]).1);
    let close = |seqid| Close4Args { seqid, open_stateid: confirmed };
    let bad = on_file().op(Operation::Close, &close(9));
    assert_eq!(compound(&mut wire, 0, &bad).status, Nfsstat4::BadSeqid as u32);
    let good = on_file().op(Operation::Close, &close(7));
    let closed = compound(&mut wire, 0, &good);
    assert_eq!(closed.status, NFS_OK);
    assert_eq!(compound(&mut wire, 0, &good).bytes, closed.bytes, "a retransmission of the last CLOSE");
}
