//! NFSv4.1 and 4.2 over TCP: whole COMPOUNDs in, exact results out; and a restart under a client that has files open and locked.

mod common;

use common::{Client, Scratch, encoded};
use proto::nfs4::*;
use rpc::message::ReplyStatus;
use samehost_server::Server;
use xdr::{Array, Decode, Decoder, Encode, Encoder, Opaque};

const NFS_OK: u32 = Nfsstat4::Ok as u32;

/// A COMPOUND in the making.
struct Ops {
    count: u32,
    encoder: Encoder,
}

impl Ops {
    const fn new() -> Self {
        Self { count: 0, encoder: Encoder::new() }
    }

    fn op(mut self, operation: Operation, args: &impl Encode) -> Self {
        self.count += 1;
        self.encoder.u32(operation.number());
        self.encoder.put(args);
        self
    }

    fn minor(&self, minor: u32) -> Vec<u8> {
        let mut to = Encoder::new();
        to.opaque(b"tag");
        to.u32(minor);
        to.u32(self.count);
        to.raw(self.encoder.as_slice());
        to.into_vec()
    }
}

/// A COMPOUND's results: its status, and each operation's number, status and the rest.
struct Done {
    status: u32,
    bytes: Vec<u8>,
}

impl Done {
    /// Skips the results of `operations`, which have succeeded and have bodies of so many bytes; the next one's status, and its
    /// body.
    fn after(&self, operations: &[(Operation, usize)]) -> (u32, &[u8]) {
        let mut from = Decoder::new(&self.bytes);
        assert_eq!((from.u32().unwrap(), from.opaque(100).unwrap()), (self.status, &b"tag"[..]));
        let count = from.u32().unwrap() as usize;
        assert!(count > operations.len(), "{count} results, status {}", self.status);
        for (operation, length) in operations {
            assert_eq!((from.u32().unwrap(), from.u32().unwrap()), (operation.number(), NFS_OK));
            for _ in 0..length / 4 {
                from.u32().unwrap();
            }
        }
        let _number = from.u32().unwrap();
        (from.u32().unwrap(), from.rest())
    }
}

/// A client of NFSv4 with a session of one slot.
struct Session {
    wire: Client,
    id: Sessionid4,
    clientid: u64,
    sequence: u32,
    minor: u32,
}

const SEQUENCE: (Operation, usize) = (Operation::Sequence, 36);
const PUTFH: (Operation, usize) = (Operation::Putfh, 0);

fn compound(wire: &mut Client, minor: u32, ops: &Ops) -> Done {
    let (status, results) = wire.raw(PROGRAM, VERSION, COMPOUND, &ops.minor(minor));
    assert_eq!(status, ReplyStatus::Success);
    Done { status: u32::from_be_bytes(results.0[..4].try_into().unwrap()), bytes: results.0 }
}

fn get<'a, T: Decode<'a>>(bytes: &'a [u8]) -> T {
    Decoder::new(bytes).get().unwrap()
}

fn channel() -> ChannelAttrs4 {
    ChannelAttrs4 {
        headerpadsize: 0,
        maxrequestsize: 1 << 20,
        maxresponsesize: 1 << 20,
        maxresponsesize_cached: 4096,
        maxoperations: 16,
        maxrequests: 1,
        rdma_ird: Array(vec![]),
    }
}

impl Session {
    fn new(server: &Server, minor: u32, owner: &[u8]) -> Self {
        let mut wire = Client::new(server);
        let args = ExchangeId4Args {
            clientowner: ClientOwner4 { verifier: *b"verifier", ownerid: Opaque(owner) },
            flags: EXCHGID_USE_NON_PNFS,
            state_protect: StateProtect4A::None,
            client_impl_id: Array(vec![]),
        };
        let done = compound(&mut wire, minor, &Ops::new().op(Operation::ExchangeId, &args));
        let (status, body) = done.after(&[]);
        assert_eq!(status, NFS_OK);
        let exchanged: ExchangeId4ResOk<'_> = get(body);
        let args = CreateSession4Args {
            clientid: exchanged.clientid,
            sequence: exchanged.sequenceid,
            flags: 0,
            fore_chan_attrs: channel(),
            back_chan_attrs: channel(),
            cb_program: 0x4000_0000,
            sec_parms: Array(vec![CallbackSecParms4::None]),
        };
        let done = compound(&mut wire, minor, &Ops::new().op(Operation::CreateSession, &args));
        let (status, body) = done.after(&[]);
        assert_eq!(status, NFS_OK);
        let created: CreateSession4ResOk = get(body);
        assert_eq!(created.fore_chan_attrs.maxrequests, 1);
        Self { wire, id: created.sessionid, clientid: exchanged.clientid, sequence: 0, minor }
    }

    fn sequence(&mut self, cachethis: bool) -> Ops {
        self.sequence += 1;
        let args = Sequence4Args {
            sessionid: self.id,
            sequenceid: self.sequence,
            slotid: 0,
            highest_slotid: 0,
            cachethis,
        };
        Ops::new().op(Operation::Sequence, &args)
    }

    fn run(&mut self, ops: &Ops) -> Done {
        compound(&mut self.wire, self.minor, ops)
    }

    fn reclaim_complete(&mut self) {
        let ops =
            self.sequence(false).op(Operation::ReclaimComplete, &ReclaimComplete4Args { one_fs: false });
        assert_eq!(self.run(&ops).status, NFS_OK);
    }

    /// The handle of a path from the root of all exports.
    fn walk(&mut self, path: &std::path::Path) -> Vec<u8> {
        let mut ops = self.sequence(false).op(Operation::Putrootfh, &());
        let mut before = vec![SEQUENCE, (Operation::Putrootfh, 0)];
        for part in path.to_str().unwrap().split('/').filter(|part| !part.is_empty()) {
            ops = ops.op(Operation::Lookup, &Name4Args { name: Opaque(part.as_bytes()) });
            before.push((Operation::Lookup, 0));
        }
        let done = self.run(&ops.op(Operation::Getfh, &()));
        let (status, body) = done.after(&before);
        assert_eq!(status, NFS_OK);
        get::<NfsFh4<'_>>(body).0.to_vec()
    }

    /// OPEN, and the handle of what was opened.
    fn open(&mut self, at: &[u8], claim: OpenClaim4<'_>, create: bool) -> Result<(Stateid4, Vec<u8>), u32> {
        let attributes =
            Fattr4 { attrmask: Bitmap4::of(&[attributes::MODE]), attr_vals: Opaque(&[0, 0, 1, 0xa4]) };
        let args = Open4Args {
            seqid: 0,
            share_access: SHARE_ACCESS_BOTH,
            share_deny: 0,
            owner: StateOwner4 { clientid: self.clientid, owner: Opaque(b"opener") },
            openhow: if create {
                Openflag4::Create(Createhow4::Guarded(attributes))
            } else {
                Openflag4::Nocreate
            },
            claim,
        };
        let ops = self
            .sequence(false)
            .op(Operation::Putfh, &Putfh4Args { object: Opaque(at) })
            .op(Operation::Open, &args)
            .op(Operation::Getfh, &());
        let done = self.run(&ops);
        let (status, body) = done.after(&[SEQUENCE, PUTFH]);
        if status != NFS_OK {
            return Err(status);
        }
        let opened: Open4ResOk<'_> = get(body);
        let length = encoded(&opened).len();
        let (status, body) = done.after(&[SEQUENCE, PUTFH, (Operation::Open, length)]);
        assert_eq!(status, NFS_OK);
        Ok((opened.stateid, get::<NfsFh4<'_>>(body).0.to_vec()))
    }

    fn lock(&mut self, file: &[u8], open: Stateid4, reclaim: bool) -> Result<Stateid4, u32> {
        let owner = StateOwner4 { clientid: self.clientid, owner: Opaque(b"locker") };
        let new = OpenToLockOwner4 { open_seqid: 0, open_stateid: open, lock_seqid: 0, lock_owner: owner };
        let args = Lock4Args {
            locktype: NfsLockType4::Write,
            reclaim,
            offset: 0,
            length: u64::MAX,
            locker: Locker4::New(new),
        };
        let ops = self
            .sequence(false)
            .op(Operation::Putfh, &Putfh4Args { object: Opaque(file) })
            .op(Operation::Lock, &args);
        let done = self.run(&ops);
        let (status, body) = done.after(&[SEQUENCE, PUTFH]);
        if status == NFS_OK { Ok(get(body)) } else { Err(status) }
    }
}

const ANYBODY: &str = "*(rw,insecure,no_root_squash,async)";

#[test]
fn a_file_is_made_written_read_and_closed() {
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
fn a_retry_is_answered_and_not_done_again() {
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

#[test]
fn operations_stand_where_they_may() {
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
        // 4.2's, and what no version has.
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
fn after_a_restart_who_had_something_gets_it_back_before_others() {
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
    // Not stop(): as if it had been killed.
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
        other.open(&root, open_it, false).expect("all have come back: the grace period is over");
    assert_eq!(other.lock(&file, theirs, false), Err(Nfsstat4::Denied as u32));
}

/// 4.0 has no sessions: an open owner's number tells a retry.
#[test]
fn in_version_0_an_owner_is_answered_once_for_each_number() {
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
    assert_eq!(compound(&mut wire, 0, &good).bytes, closed.bytes, "a retry of the last CLOSE");
}
