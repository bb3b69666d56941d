//! Replies against their bounds, for every operation of the server's table: no reply is longer than the
//! session allows, and an operation that fails with NFS4ERR_REP_TOO_BIG or NFS4ERR_REP_TOO_BIG_TO_CACHE
//! hasn't been executed (RFC 8881 section 2.10.6.4). The table's other claims are checked on the way.

mod common;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use common::v4::{ANYBODY, NFS_OK, Ops, Session, channel, compound, get};
use common::{Client, Scratch, encoded};
use proto::nfs4::Operation as Op;
use proto::nfs4::*;
use samehost_server::{MaxResult, OPERATIONS, OperationSpec, Position, Server};
use xdr::{Array, Encode, Opaque};

/// What RPC puts before a result: a session's bounds count it.
const RPC_HEADER: usize = 24;
/// Handles put again and again, so that the smallest session has room for what stands before the operation,
/// but for no more.
const FILLERS: usize = 8;
const ANY: Stateid4 = Stateid4 { seqid: 0, other: [0; 12] };
const BAD: Stateid4 = Stateid4 { seqid: 1, other: [9; 12] };

/// No delegation: this test's own look at the files would recall one for writing.
const READ: u32 = SHARE_ACCESS_READ | SHARE_ACCESS_WANT_NO_DELEG;
const BOTH: u32 = SHARE_ACCESS_BOTH | SHARE_ACCESS_WANT_NO_DELEG;

/// Operations of a COMPOUND after SEQUENCE, with their arguments; the last one is looked at.
type Request = Vec<(Op, Vec<u8>)>;

/// A server, a client of it with a session that has room for everything, and names that weren't used yet.
struct Rig {
    scratch: Scratch,
    server: Server,
    wide: Session,
    root: Vec<u8>,
    made: u32,
    /// The number of the client's next CREATE_SESSION.
    next_session: u32,
}

impl Rig {
    fn new() -> Self {
        let scratch = Scratch::new();
        let server = scratch.serve(ANYBODY);
        let mut wide = Session::callable(&server, 2, b"client");
        wide.reclaim_complete();
        let root = wide.walk(&scratch.export());
        Self { scratch, server, wide, root, made: 0, next_session: 2 }
    }

    /// A name that nothing has.
    fn name(&mut self) -> Vec<u8> {
        self.made += 1;
        format!("n{}", self.made).into_bytes()
    }

    /// A file with a little in it: its name and handle.
    fn file(&mut self) -> (Vec<u8>, Vec<u8>) {
        let name = self.name();
        std::fs::write(self.scratch.at(std::str::from_utf8(&name).unwrap()), "0123456789").unwrap();
        let handle = self.wide.lookup(&self.root, &name).unwrap();
        (name, handle)
    }

    /// An open file: its state id and handle.
    fn opened(&mut self) -> (Stateid4, Vec<u8>) {
        let (name, _) = self.file();
        let root = self.root.clone();
        self.wide.open_shared(&root, OpenClaim4::Null(Opaque(&name)), false, BOTH, 0).unwrap()
    }

    /// A session of the same client whose replies have these bounds.
    fn narrow(&mut self, response: usize, cached: usize) -> Session {
        let fore_chan_attrs = ChannelAttrs4 {
            maxresponsesize: response as u32,
            maxresponsesize_cached: cached as u32,
            ..channel()
        };
        let args = CreateSession4Args {
            clientid: self.wide.clientid,
            sequence: self.next_session,
            flags: 0,
            fore_chan_attrs,
            back_chan_attrs: channel(),
            cb_program: 0x4000_0000,
            sec_parms: Array(vec![CallbackSecParms4::None]),
        };
        self.next_session += 1;
        let mut wire = Client::new(&self.server);
        let done = compound(&mut wire, 2, &Ops::new().op(Op::CreateSession, &args));
        let created: CreateSession4ResOk = get(done.after(&[]).1);
        let given = created.fore_chan_attrs;
        assert_eq!((given.maxresponsesize, given.maxresponsesize_cached), (response as u32, cached as u32));
        Session { wire, id: created.sessionid, clientid: self.wide.clientid, sequence: 0, minor: 2 }
    }

    fn destroy(&mut self, session: &Session) {
        let ops =
            self.wide.sequence(false).op(Op::DestroySession, &DestroySession4Args { sessionid: session.id });
        assert_eq!(self.wide.run(&ops).status, NFS_OK);
    }

    /// Everything about the exported files that changes when they do.
    fn files(&self) -> BTreeMap<String, (u64, i64, i64, u64, Vec<u8>)> {
        let of = |path: &Path| {
            let found = std::fs::symlink_metadata(path).unwrap();
            let content = if found.is_file() { std::fs::read(path).unwrap() } else { Vec::new() };
            (found.len(), found.ctime(), found.ctime_nsec(), found.nlink(), content)
        };
        let entries = std::fs::read_dir(self.scratch.export()).unwrap().map(|entry| entry.unwrap().path());
        let all = entries.chain([self.scratch.export()]);
        all.map(|path| (path.display().to_string(), of(&path))).collect()
    }

    /// A client that isn't confirmed: its id, and the number for its CREATE_SESSION.
    fn newcomer(&mut self) -> (u64, u32) {
        let name = self.name();
        let ops = Ops::new().op(Op::ExchangeId, &exchange_id(&name));
        let done = compound(&mut Client::new(&self.server), 2, &ops);
        let exchanged: ExchangeId4ResOk<'_> = get(done.after(&[]).1);
        (exchanged.clientid, exchanged.sequenceid)
    }
}

fn exchange_id(name: &[u8]) -> ExchangeId4Args<'_> {
    ExchangeId4Args {
        clientowner: ClientOwner4 { verifier: *b"verifier", ownerid: Opaque(name) },
        flags: EXCHGID_USE_NON_PNFS,
        state_protect: StateProtect4A::None,
        client_impl_id: Array(vec![]),
    }
}

fn put(file: &[u8]) -> (Op, Vec<u8>) {
    (Op::Putfh, encoded(&Putfh4Args { object: Opaque(file) }))
}

/// The operation on a file.
fn on(file: &[u8], op: Op, args: &impl Encode) -> Request {
    vec![put(file), (op, encoded(args))]
}

/// The operation on a saved file and a current one.
fn between(saved: &[u8], current: &[u8], op: Op, args: &impl Encode) -> Request {
    vec![put(saved), (Op::Savefh, vec![]), put(current), (op, encoded(args))]
}

fn named(name: &[u8]) -> Name4Args<'_> {
    Name4Args { name: Opaque(name) }
}

/// A lock of the whole file, by a new owner.
fn lock(clientid: u64, open: Stateid4) -> Lock4Args<'static> {
    let owner = StateOwner4 { clientid, owner: Opaque(b"locker") };
    let new = OpenToLockOwner4 { open_seqid: 0, open_stateid: open, lock_seqid: 0, lock_owner: owner };
    let locker = Locker4::New(new);
    Lock4Args { locktype: NfsLockType4::Write, reclaim: false, offset: 0, length: u64::MAX, locker }
}

/// A request with the operation as its last one, on files and states of its own.
fn request(rig: &mut Rig, spec: &OperationSpec) -> Request {
    let op = spec.operation;
    let clientid = rig.wide.clientid;
    let root = rig.root.clone();
    let (name, file) = rig.file();
    let fresh = rig.name();
    let mode = 0o600_u32.to_be_bytes();
    let mode = Fattr4 { attrmask: Bitmap4::of(&[attributes::MODE]), attr_vals: Opaque(&mode) };
    let size = 10_u64.to_be_bytes();
    let size = Fattr4 { attrmask: Bitmap4::of(&[attributes::SIZE]), attr_vals: Opaque(&size) };
    let beyond = Allocate4Args { stateid: ANY, offset: 10, length: 4096 };
    if !spec.is_supported(MinorVersion::V2) {
        return on(&file, op, &());
    }
    match op {
        Op::Access => on(&file, op, &Access4Args { access: 1 }),
        Op::Close => {
            let (open_stateid, file) = rig.opened();
            on(&file, op, &Close4Args { seqid: 0, open_stateid })
        }
        Op::Commit => on(&file, op, &Commit4Args { offset: 0, count: 0 }),
        Op::Create => {
            let objtype = Createtype4::Other(NfsFtype4::Dir as u32);
            on(&root, op, &Create4Args { objtype, objname: Opaque(&fresh), createattrs: mode })
        }
        Op::Delegreturn => {
            let access = SHARE_ACCESS_READ | SHARE_ACCESS_WANT_READ_DELEG;
            let claim = OpenClaim4::Null(Opaque(&name));
            let (_, delegation, file) = rig.wide.open_with(&root, claim, false, access, 0).unwrap();
            on(&file, op, &Stateid4Args { stateid: delegation.expect("no conflict") })
        }
        Op::Getattr => {
            let attr_request = Bitmap4::of(&[attributes::OWNER, attributes::OWNER_GROUP, attributes::ACL]);
            on(&file, op, &Getattr4Args { attr_request })
        }
        Op::Getfh | Op::Readlink | Op::Savefh => on(&file, op, &()),
        Op::Lookupp => on(&root, op, &()),
        Op::Link => between(&file, &root, op, &named(&fresh)),
        Op::Lock => {
            let (open, file) = rig.opened();
            on(&file, op, &lock(clientid, open))
        }
        Op::Lockt => {
            // A conflicting lock: the result has its owner.
            let (open, file) = rig.opened();
            rig.wide.lock(&file, open, false).unwrap();
            let owner = StateOwner4 { clientid, owner: Opaque(b"another") };
            on(&file, op, &Lockt4Args { locktype: NfsLockType4::Write, offset: 0, length: 1, owner })
        }
        Op::Locku => {
            let (open, file) = rig.opened();
            let lock_stateid = rig.wide.lock(&file, open, false).unwrap();
            let locktype = NfsLockType4::Write;
            on(&file, op, &Locku4Args { locktype, seqid: 0, lock_stateid, offset: 0, length: u64::MAX })
        }
        Op::Lookup | Op::Secinfo => on(&root, op, &named(&name)),
        Op::Verify => on(&file, op, &Verify4Args { obj_attributes: size }),
        Op::Nverify => on(&file, op, &Verify4Args { obj_attributes: mode }),
        Op::Open => {
            let args = Open4Args {
                seqid: 0,
                share_access: SHARE_ACCESS_READ | SHARE_ACCESS_WANT_READ_DELEG,
                share_deny: 0,
                owner: StateOwner4 { clientid, owner: Opaque(b"opener") },
                openhow: Openflag4::Create(Createhow4::Guarded(mode)),
                claim: OpenClaim4::Null(Opaque(&fresh)),
            };
            on(&root, op, &args)
        }
        Op::OpenDowngrade => {
            let (name, _) = rig.file();
            let claim = || OpenClaim4::Null(Opaque(&name));
            rig.wide.open_shared(&root, claim(), false, READ, 0).unwrap();
            let (open_stateid, file) = rig.wide.open_shared(&root, claim(), false, BOTH, 0).unwrap();
            let args =
                OpenDowngrade4Args { open_stateid, seqid: 0, share_access: SHARE_ACCESS_READ, share_deny: 0 };
            on(&file, op, &args)
        }
        Op::Putfh => vec![(op, encoded(&Putfh4Args { object: Opaque(&file) }))],
        Op::Putpubfh | Op::Putrootfh => vec![(op, vec![])],
        Op::Restorefh => between(&file, &root, op, &()),
        Op::Read | Op::ReadPlus => on(&file, op, &Read4Args { stateid: ANY, offset: 0, count: 10 }),
        Op::Readdir => {
            let attr_request = Bitmap4::of(&[attributes::FILEHANDLE]);
            on(
                &root,
                op,
                &Readdir4Args { cookie: 0, cookieverf: [0; 8], dircount: 8192, maxcount: 1500, attr_request },
            )
        }
        Op::Remove => on(&root, op, &named(&name)),
        Op::Rename => {
            between(&root, &root, op, &Rename4Args { oldname: Opaque(&name), newname: Opaque(&fresh) })
        }
        Op::Setattr => on(&file, op, &Setattr4Args { stateid: ANY, obj_attributes: mode }),
        Op::Write => {
            let stable = StableHow4::Unstable;
            on(&file, op, &Write4Args { stateid: ANY, offset: 3, stable, data: Opaque(b"written") })
        }
        Op::BackchannelCtl => {
            let sec_parms = Array(vec![CallbackSecParms4::None]);
            vec![(op, encoded(&BackchannelCtl4Args { cb_program: 0x4000_0000, sec_parms }))]
        }
        Op::BindConnToSession => {
            let dir = ChannelDirFromClient4::Fore;
            let sessionid = rig.wide.id;
            let args = BindConnToSession4Args { sessionid, dir, use_conn_in_rdma_mode: false };
            vec![(op, encoded(&args))]
        }
        Op::ExchangeId => vec![(op, encoded(&exchange_id(&fresh)))],
        Op::CreateSession => {
            let (clientid, sequence) = rig.newcomer();
            let args = CreateSession4Args {
                clientid,
                sequence,
                flags: 0,
                fore_chan_attrs: channel(),
                back_chan_attrs: channel(),
                cb_program: 0x4000_0000,
                sec_parms: Array(vec![CallbackSecParms4::None]),
            };
            vec![(op, encoded(&args))]
        }
        Op::DestroySession => {
            let sessionid = rig.narrow(4096, 4096).id;
            vec![(op, encoded(&DestroySession4Args { sessionid }))]
        }
        Op::DestroyClientid => {
            let (clientid, _) = rig.newcomer();
            vec![(op, encoded(&Clientid4Args { clientid }))]
        }
        Op::FreeStateid => {
            // A lock owner's that has no lock any more.
            let (open, file) = rig.opened();
            let lock_stateid = rig.wide.lock(&file, open, false).unwrap();
            let locktype = NfsLockType4::Write;
            let args = Locku4Args { locktype, seqid: 0, lock_stateid, offset: 0, length: u64::MAX };
            let (status, body) = rig.wide.on(&file, Op::Locku, &args);
            assert_eq!(status, NFS_OK);
            vec![(op, encoded(&Stateid4Args { stateid: get(&body) }))]
        }
        Op::ReclaimComplete => vec![(op, encoded(&ReclaimComplete4Args { one_fs: false }))],
        Op::SecinfoNoName => on(&file, op, &SecinfoStyle4::CurrentFh),
        Op::TestStateid => vec![(op, encoded(&TestStateid4Args { stateids: Array(vec![BAD; 4]) }))],
        Op::WantDelegation => {
            let want = SHARE_ACCESS_WANT_READ_DELEG;
            on(&file, op, &WantDelegation4Args { want, claim: DelegClaim4::Fh })
        }
        Op::Allocate => on(&file, op, &beyond),
        Op::Deallocate => on(&file, op, &Allocate4Args { offset: 0, length: 5, ..beyond }),
        Op::IoAdvise => {
            on(&file, op, &IoAdvise4Args { stateid: ANY, offset: 0, count: 0, hints: Bitmap4::EMPTY })
        }
        Op::Seek => on(&file, op, &Seek4Args { stateid: ANY, offset: 0, what: 1 }),
        Op::Copy => {
            let (_, from) = rig.file();
            let args = Copy4Args {
                src_stateid: ANY,
                dst_stateid: ANY,
                src_offset: 0,
                dst_offset: 10,
                count: 0,
                consecutive: true,
                synchronous: true,
                source_server: Array(vec![]),
            };
            between(&from, &file, op, &args)
        }
        Op::Clone => {
            let (_, from) = rig.file();
            let args =
                Clone4Args { src_stateid: ANY, dst_stateid: ANY, src_offset: 0, dst_offset: 0, count: 0 };
            between(&from, &file, op, &args)
        }
        Op::OffloadCancel | Op::OffloadStatus => on(&file, op, &Stateid4Args { stateid: BAD }),
        Op::Getxattr | Op::Removexattr => {
            let set =
                Setxattr4Args { option: SetxattrOption4::Create, key: Opaque(b"x"), value: Opaque(b"value") };
            rig.wide.on(&file, Op::Setxattr, &set);
            on(&file, op, &Xattr4Args { name: Opaque(b"x") })
        }
        Op::Setxattr => {
            let option = SetxattrOption4::Create;
            on(&file, op, &Setxattr4Args { option, key: Opaque(b"x"), value: Opaque(b"value") })
        }
        Op::Listxattrs => {
            for key in [&b"one"[..], b"two", b"three"] {
                let set =
                    Setxattr4Args { option: SetxattrOption4::Create, key: Opaque(key), value: Opaque(b"") };
                rig.wide.on(&file, Op::Setxattr, &set);
            }
            on(&file, op, &Listxattrs4Args { cookie: 0, maxcount: 1000 })
        }
        _ => panic!("this test has no request with {op}"),
    }
}

/// Runs a request in a session: its status, how many results there are, and the reply's length as the
/// session's bounds count it.
fn run(session: &mut Session, request: &Request, cachethis: bool, root: &[u8]) -> (u32, u32, usize) {
    let mut ops = session.sequence(cachethis);
    for _ in 0..FILLERS {
        ops = ops.op(Op::Putfh, &Putfh4Args { object: Opaque(root) });
    }
    for (op, args) in request {
        ops.count += 1;
        ops.encoder.u32(op.number());
        ops.encoder.raw(args);
    }
    let done = session.run(&ops);
    (done.status, done.count(), done.bytes.len() + RPC_HEADER)
}

/// The operations that may stand behind SEQUENCE.
fn in_session() -> impl Iterator<Item = &'static OperationSpec> {
    OPERATIONS.iter().filter(|spec| spec.position != Position::First)
}

#[test]
fn operations_that_fail_with_rep_too_big_are_not_executed() {
    let mut rig = Rig::new();
    let root = rig.root.clone();
    for spec in in_session() {
        let op = spec.operation;
        let first = request(&mut rig, spec);
        let results = 1 + FILLERS as u32 + first.len() as u32;
        let (outcome, count, whole) = run(&mut rig.wide, &first, false, &root);
        assert_eq!(count, results, "{op} is reached");
        let supported = spec.is_supported(MinorVersion::V2);
        assert!(supported || outcome == Nfsstat4::Notsupp as u32, "{op}: {outcome}");
        // Down to where not even its number and its status fit.
        let (_, _, before) = run(&mut rig.wide, &first[..first.len() - 1].to_vec(), false, &root);
        let mut bounds = vec![whole - 1, (whole + before) / 2, before + 4];
        bounds.dedup();
        for bound in bounds {
            for cached in [false, true] {
                let request = request(&mut rig, spec);
                let mut narrow = if cached { rig.narrow(8192, bound) } else { rig.narrow(bound, 0) };
                let files = rig.files();
                let (status, _, length) = run(&mut narrow, &request, cached, &root);
                let what = format!("{op}, {bound} of {whole} bytes, cached: {cached}, status {status}");
                assert!(length <= bound, "{what}: {length} bytes");
                let too_big = if cached { Nfsstat4::RepTooBigToCache } else { Nfsstat4::RepTooBig };
                if status != too_big as u32 {
                    let fills = spec.max_result == MaxResult::FillsReply;
                    assert!(status == NFS_OK && fills && bound > before + 4, "{what}");
                }
                assert!(rig.files() == files, "{what}: it was executed");
                let again = run(&mut rig.wide, &request, false, &root);
                assert_eq!((again.0, again.1), (outcome, results), "{what}: for the first time");
                rig.destroy(&narrow);
            }
        }
    }
}

/// As above; a second RECLAIM_COMPLETE shows whether the first was executed.
#[test]
fn reclaim_complete_that_is_too_big_to_keep_is_not_executed() {
    let mut rig = Rig::new();
    rig.wide = Session::new(&rig.server, 2, b"another");
    let root = rig.root.clone();
    let spec = OPERATIONS.iter().find(|spec| spec.operation == Op::ReclaimComplete).unwrap();
    let request = request(&mut rig, spec);
    let (_, _, without) = run(&mut rig.wide, &vec![], false, &root);
    let mut narrow = rig.narrow(8192, without + 4);
    assert_eq!(run(&mut narrow, &request, true, &root).0, Nfsstat4::RepTooBigToCache as u32);
    assert_eq!(run(&mut rig.wide, &request, false, &root).0, NFS_OK);
    assert_eq!(run(&mut rig.wide, &request, false, &root).0, Nfsstat4::CompleteAlready as u32);
}

#[test]
fn operations_that_need_a_current_handle_fail_without_one() {
    let mut rig = Rig::new();
    for spec in in_session().filter(|spec| spec.is_supported(MinorVersion::V2)) {
        let (op, args) = request(&mut rig, spec).pop().unwrap();
        let mut ops = rig.wide.sequence(false);
        ops.count += 1;
        ops.encoder.u32(op.number());
        ops.encoder.raw(&args);
        let failed = rig.wide.run(&ops).status == Nfsstat4::Nofilehandle as u32;
        // RESTOREFH has that error for the saved handle.
        assert_eq!(failed, spec.needs_handle || op == Op::Restorefh, "{op}");
    }
}
