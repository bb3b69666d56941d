//! The errors of NFSv4.0 against RFC 7530's table (section 13.2): clients without sessions, owners with
//! sequence numbers, and state ids that name their client.

use std::path::Path;
use std::time::Duration;

use proto::nfs4::Nfsstat4 as S;
use proto::nfs4::Operation as Op;
use proto::nfs4::*;
use samehost_server::{Config, Server};
use xdr::{Encode, Opaque};

use super::common::v4::{ANYBODY, NFS_OK, Ops, PUTFH, Session, compound, get};
use super::common::v40::Old;
use super::common::{Client, Scratch, encoded, sys, wait_for};
use super::table::Table;
use super::{ANY, BAD, create, named, nothing, one, read, readdir, rename, setattr, write};

/// The errors that RFC 7530's table allows.
const RFC: &str = include_str!("rfc7530.txt");

/// A client of 4.0 and its owners: `opener` and `locker`.
struct Bench {
    wire: Client,
    table: Table,
    clientid: u64,
    /// The last sequence numbers that were used up.
    opener: u32,
    locker: u32,
}

/// Whether a failure doesn't use up the owner's sequence number (RFC 7530 section 9.1.7).
const fn leaves_the_number(status: S) -> bool {
    matches!(
        status,
        S::StaleClientid
            | S::StaleStateid
            | S::BadStateid
            | S::BadSeqid
            | S::Badxdr
            | S::Resource
            | S::Nofilehandle
    )
}

fn setclientid(id: &[u8]) -> Setclientid4Args<'_> {
    Setclientid4Args {
        client: NfsClientId4 { verifier: *b"verifier", id: Opaque(id) },
        cb_program: 0x4000_0000,
        cb_location: Netaddr4 { netid: Opaque(b"tcp"), addr: Opaque(b"127.0.0.1.0.0") },
        callback_ident: 0,
    }
}

/// SETCLIENTID without its confirmation.
fn propose(wire: &mut Client, id: &[u8]) -> SetclientidConfirm4Args {
    let done = compound(wire, 0, &Ops::new().op(Op::Setclientid, &setclientid(id)));
    let Setclientid4ResOk { clientid, setclientid_confirm } = get(done.after(&[]).1);
    SetclientidConfirm4Args { clientid, setclientid_confirm }
}

/// OPEN of `f` by an owner of this client.
fn open<'a>(clientid: u64, owner: &'a [u8], claim: OpenClaim4<'a>, seqid: u32) -> Open4Args<'a> {
    Open4Args {
        seqid,
        share_access: SHARE_ACCESS_READ,
        share_deny: 0,
        owner: StateOwner4 { clientid, owner: Opaque(owner) },
        openhow: Openflag4::Nocreate,
        claim,
    }
}

const F: OpenClaim4<'_> = OpenClaim4::Null(Opaque(b"f"));

/// A state id of the same run that the server has never returned.
fn unknown(id: Stateid4) -> Stateid4 {
    let mut unknown = id;
    unknown.other[4..].fill(0xee);
    unknown
}

const fn close(open_stateid: Stateid4, seqid: u32) -> Close4Args {
    Close4Args { seqid, open_stateid }
}

const fn confirm(open_stateid: Stateid4, seqid: u32) -> OpenConfirm4Args {
    OpenConfirm4Args { open_stateid, seqid }
}

const fn downgrade(open_stateid: Stateid4, seqid: u32, share_access: u32) -> OpenDowngrade4Args {
    OpenDowngrade4Args { open_stateid, seqid, share_access, share_deny: 0 }
}

fn first_lock(open_stateid: Stateid4, open_seqid: u32, clientid: u64, length: u64) -> Lock4Args<'static> {
    let lock_owner = StateOwner4 { clientid, owner: Opaque(b"locker") };
    let new = OpenToLockOwner4 { open_seqid, open_stateid, lock_seqid: 0, lock_owner };
    let locktype = NfsLockType4::Write;
    Lock4Args { locktype, reclaim: false, offset: 0, length, locker: Locker4::New(new) }
}

const fn next_lock(lock_stateid: Stateid4, lock_seqid: u32, length: u64) -> Lock4Args<'static> {
    let locker = Locker4::Existing(ExistLockOwner4 { lock_stateid, lock_seqid });
    Lock4Args { locktype: NfsLockType4::Write, reclaim: false, offset: 0, length, locker }
}

const fn unlock(lock_stateid: Stateid4, seqid: u32, length: u64) -> Locku4Args {
    Locku4Args { locktype: NfsLockType4::Write, seqid, lock_stateid, offset: 0, length }
}

const fn test(clientid: u64, length: u64) -> Lockt4Args<'static> {
    let owner = StateOwner4 { clientid, owner: Opaque(b"tester") };
    Lockt4Args { locktype: NfsLockType4::Write, offset: 0, length, owner }
}

const fn release(clientid: u64) -> ReleaseLockowner4Args<'static> {
    ReleaseLockowner4Args { lock_owner: StateOwner4 { clientid, owner: Opaque(b"locker") } }
}

impl Bench {
    fn new(server: &Server, id: &[u8]) -> Self {
        let mut wire = Client::new(server);
        let proposed = propose(&mut wire, id);
        let done = compound(&mut wire, 0, &Ops::new().op(Op::SetclientidConfirm, &proposed));
        assert_eq!(done.status, NFS_OK);
        Self { wire, table: Table::default(), clientid: proposed.clientid, opener: 0, locker: 0 }
    }

    /// Runs `before`, which succeeds, and `op`; the result of `op`.
    fn run(&mut self, before: &[(Op, Vec<u8>)], op: Op, args: &[u8]) -> super::common::v4::Done {
        let mut ops = Ops::new();
        for (op, args) in before.iter().map(|(op, args)| (*op, args.as_slice())).chain([(op, args)]) {
            ops.count += 1;
            ops.encoder.u32(op.number());
            ops.encoder.raw(args);
        }
        compound(&mut self.wire, 0, &ops)
    }

    fn fails(&mut self, before: &[(Op, Vec<u8>)], op: Op, args: &[u8], status: S) {
        let done = self.run(before, op, args);
        assert_eq!(done.count() as usize, before.len() + 1, "it is {op:?} that fails");
        self.table.note(op, status, done.status);
    }

    /// `op` as the only operation.
    fn alone(&mut self, op: Op, args: &impl Encode, status: S) {
        self.fails(&[], op, &encoded(args), status);
    }

    /// `op` on the file of a handle.
    fn at(&mut self, file: &[u8], op: Op, args: &impl Encode, status: S) {
        self.fails(&[(Op::Putfh, encoded(&Putfh4Args { object: Opaque(file) }))], op, &encoded(args), status);
    }

    /// The same with the opener's next sequence number.
    fn opens<A: Encode>(&mut self, file: &[u8], op: Op, args: impl FnOnce(u32) -> A, status: S) {
        self.at(file, op, &args(self.opener + 1), status);
        self.opener += u32::from(!leaves_the_number(status));
    }

    /// The same with the locker's next sequence number.
    fn locks<A: Encode>(&mut self, file: &[u8], op: Op, args: impl FnOnce(u32) -> A, status: S) {
        self.at(file, op, &args(self.locker + 1), status);
        self.locker += u32::from(!leaves_the_number(status));
    }

    /// `op` on a file, which succeeds; the body of its result.
    fn done(&mut self, file: &[u8], op: Op, args: &impl Encode) -> Vec<u8> {
        let before = [(Op::Putfh, encoded(&Putfh4Args { object: Opaque(file) }))];
        let done = self.run(&before, op, &encoded(args));
        let (status, body) = done.after(&[PUTFH]);
        assert_eq!(status, NFS_OK, "{op:?}");
        body.to_vec()
    }

    /// OPEN of `f` by the opener, with its state id.
    fn open_f(&mut self, root: &[u8], share_access: u32, share_deny: u32) -> Stateid4 {
        self.opener += 1;
        let args = Open4Args { share_access, share_deny, ..open(self.clientid, b"opener", F, self.opener) };
        get::<Open4ResOk<'_>>(&self.done(root, Op::Open, &args)).stateid
    }

    /// OPEN of `f` by a new open owner; its state id before and after OPEN_CONFIRM.
    fn open_first(&mut self, root: &[u8], file: &[u8], share_access: u32) -> (Stateid4, Stateid4) {
        let first = self.open_f(root, share_access, 0);
        self.opener += 1;
        (first, get(&self.done(file, Op::OpenConfirm, &confirm(first, self.opener))))
    }

    fn lookup(&mut self, at: &[u8], name: &str) -> Vec<u8> {
        let before = [
            (Op::Putfh, encoded(&Putfh4Args { object: Opaque(at) })),
            (Op::Lookup, encoded(&named(name.as_bytes()))),
        ];
        let done = self.run(&before, Op::Getfh, &[]);
        get::<NfsFh4<'_>>(done.after(&[PUTFH, (Op::Lookup, 0)]).1).0.to_vec()
    }

    fn walk(&mut self, path: &Path) -> Vec<u8> {
        let done = self.run(&[(Op::Putrootfh, vec![])], Op::Getfh, &[]);
        let top = get::<NfsFh4<'_>>(done.after(&[(Op::Putrootfh, 0)]).1).0.to_vec();
        let parts = path.to_str().unwrap().split('/').filter(|part| !part.is_empty());
        parts.fold(top, |at, part| self.lookup(&at, part))
    }

    fn as_user(&mut self, uid: u32, with: impl FnOnce(&mut Self)) {
        let before = std::mem::replace(&mut self.wire.credential, sys(uid, uid, &[]));
        with(self);
        self.wire.credential = before;
    }
}

#[test]
fn errors_of_version_0_are_those_of_the_rfc_and_the_documentation() {
    let scratch = Scratch::new();
    let server = scratch.serve(ANYBODY);
    std::fs::write(scratch.at("f"), "0123456789").unwrap();
    std::fs::create_dir(scratch.at("d")).unwrap();
    std::fs::create_dir(scratch.at("closed")).unwrap();
    let closed = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(scratch.at("closed"), closed).unwrap();
    std::os::unix::fs::symlink("f", scratch.at("l")).unwrap();
    let mut b = Bench::new(&server, b"one");
    let root = b.walk(&scratch.export());
    let [file, directory, link, closed] = ["f", "d", "l", "closed"].map(|name| b.lookup(&root, name));

    requests(&mut b, [&root, &file, &directory, &link]);
    clients(&mut b, &root, &file);
    let first = opens(&mut b, [&root, &file, &directory, &link, &closed]);
    let mut rival = Bench::new(&server, b"two");
    locks(&mut b, &mut rival, [&root, &file, &directory], first);
    drop(rival);
    unreachable(&mut b.table, &server, &scratch);
    drop(server);
    expiry(&mut b.table);
    b.table.check(RFC, &[]);
}

/// Operations of every minor version for which 4.0 has another error, and arguments that can't be decoded.
fn requests(b: &mut Bench, [root, file, directory, link]: [&[u8]; 4]) {
    let on_root: &[(Op, Vec<u8>)] = &[(Op::Putfh, encoded(&Putfh4Args { object: Opaque(root) }))];
    for (op, args) in [
        (Op::Open, encoded(&open(b.clientid, b"opener", F, 1))),
        (Op::OpenConfirm, encoded(&confirm(BAD, 1))),
        (Op::OpenDowngrade, encoded(&downgrade(BAD, 1, 1))),
        (Op::Close, encoded(&close(BAD, 1))),
        (Op::Lock, encoded(&first_lock(BAD, 1, b.clientid, 1))),
        (Op::Lockt, encoded(&test(b.clientid, 1))),
        (Op::Locku, encoded(&unlock(BAD, 1, 1))),
        (Op::Read, encoded(&read(ANY))),
        (Op::Write, encoded(&write(ANY))),
        (Op::Setattr, encoded(&setattr(nothing()))),
        (Op::Getattr, encoded(&Getattr4Args { attr_request: Bitmap4::EMPTY })),
        (Op::Lookup, encoded(&named(b"x"))),
        (Op::Create, encoded(&create(NfsFtype4::Dir, b"x", nothing()))),
        (Op::Remove, encoded(&named(b"x"))),
        (Op::Readdir, encoded(&readdir(0, 4096, Bitmap4::EMPTY))),
        (Op::Delegreturn, encoded(&Stateid4Args { stateid: BAD })),
    ] {
        b.fails(&[], op, &args, S::Nofilehandle);
        b.fails(on_root, op, &[], S::Badxdr);
    }
    for op in [Op::Setclientid, Op::SetclientidConfirm, Op::Renew, Op::ReleaseLockowner] {
        b.fails(&[], op, &[], S::Badxdr);
    }
    b.fails(&[], Op::Rename, &encoded(&rename(b"a", b"b")), S::Nofilehandle);
    b.fails(&[], Op::Restorefh, &[], S::Restorefh);
    b.at(root, Op::Openattr, &false, S::Notsupp);
    b.at(root, Op::Delegpurge, &Clientid4Args { clientid: b.clientid }, S::Notsupp);
    b.at(file, Op::Readlink, &(), S::Inval);
    for (op, args) in [(Op::Read, encoded(&read(ANY))), (Op::Write, encoded(&write(ANY)))] {
        for (at, status) in [(directory, S::Isdir), (link, S::Inval)] {
            b.fails(&[(Op::Putfh, encoded(&Putfh4Args { object: Opaque(at) }))], op, &args, status);
        }
    }
}

/// Unknown clients, and those of another principal.
fn clients(b: &mut Bench, root: &[u8], file: &[u8]) {
    const NOBODY: u64 = 12345;
    b.alone(Op::Renew, &Clientid4Args { clientid: NOBODY }, S::StaleClientid);
    b.alone(Op::ReleaseLockowner, &release(NOBODY), S::StaleClientid);
    b.at(root, Op::Open, &open(NOBODY, b"opener", F, 1), S::StaleClientid);
    b.at(file, Op::Lockt, &test(NOBODY, 1), S::StaleClientid);
    let proposed = propose(&mut b.wire, b"three");
    b.alone(Op::Renew, &Clientid4Args { clientid: proposed.clientid }, S::StaleClientid);
    let wrong = SetclientidConfirm4Args { setclientid_confirm: *b"whatever", ..proposed };
    b.alone(Op::SetclientidConfirm, &wrong, S::StaleClientid);
    b.as_user(5, |b| b.alone(Op::SetclientidConfirm, &proposed, S::ClidInuse));
}

/// Open owners and their sequence numbers. Leaves `f` open for reading.
fn opens(b: &mut Bench, [root, file, directory, link, closed]: [&[u8]; 5]) -> Stateid4 {
    let clientid = b.clientid;
    let first = b.open_f(root, SHARE_ACCESS_READ, 0);
    b.at(file, Op::OpenConfirm, &confirm(first, b.opener + 7), S::BadSeqid);
    b.opens(file, Op::OpenConfirm, |seqid| confirm(BAD, seqid), S::StaleStateid);
    b.opens(file, Op::OpenConfirm, |seqid| confirm(unknown(first), seqid), S::BadStateid);
    b.opener += 1;
    let second: Stateid4 = get(&b.done(file, Op::OpenConfirm, &confirm(first, b.opener)));
    b.opens(file, Op::OpenConfirm, |seqid| confirm(first, seqid), S::OldStateid);
    b.as_user(5, |b| b.alone(Op::Setclientid, &setclientid(b"one"), S::ClidInuse));

    let by_name =
        |name: &'static [u8]| move |seqid| open(clientid, b"opener", OpenClaim4::Null(Opaque(name)), seqid);
    b.at(root, Op::Open, &by_name(b"f")(b.opener + 7), S::BadSeqid);
    b.opens(root, Op::Open, by_name(b"missing"), S::Noent);
    b.opens(root, Op::Open, by_name(b"d"), S::Isdir);
    b.opens(root, Op::Open, by_name(b"l"), S::Symlink);
    b.opens(root, Op::Open, by_name(b""), S::Inval);
    b.opens(root, Op::Open, by_name(b"."), S::Badname);
    b.opens(root, Op::Open, by_name(b"a/b"), S::Badchar);
    b.opens(root, Op::Open, by_name(&[b'x'; 300]), S::Nametoolong);
    b.opens(file, Op::Open, by_name(b"f"), S::Notdir);
    b.as_user(4000, |b| b.opens(closed, Op::Open, by_name(b"f"), S::Access));
    let guarded = |with| {
        let openhow = Openflag4::Create(Createhow4::Guarded(with));
        move |seqid| Open4Args { openhow, ..open(clientid, b"opener", F, seqid) }
    };
    b.opens(root, Op::Open, guarded(nothing()), S::Exist);
    b.opens(root, Op::Open, guarded(one(attributes::HIDDEN, &[0; 4])), S::Attrnotsupp);
    b.opens(root, Op::Open, |seqid| Open4Args { share_access: 0, ..by_name(b"f")(seqid) }, S::Inval);
    let previous = |seqid| open(clientid, b"opener", OpenClaim4::Previous(0), seqid);
    b.opens(file, Op::Open, previous, S::NoGrace);
    let by = OpenClaimDelegateCur4 { delegate_stateid: unknown(first), file: Opaque(b"f") };
    let by_delegation = |seqid| open(clientid, b"opener", OpenClaim4::DelegateCur(by), seqid);
    b.opens(root, Op::Open, by_delegation, S::BadStateid);

    for (id, status) in [(BAD, S::StaleStateid), (unknown(first), S::BadStateid), (first, S::OldStateid)] {
        b.opens(file, Op::Close, |seqid| close(id, seqid), status);
        b.opens(file, Op::OpenDowngrade, |seqid| downgrade(id, seqid, 1), status);
        b.opens(file, Op::Lock, |seqid| first_lock(id, seqid, clientid, 1), status);
        b.at(file, Op::Read, &read(id), status);
        b.at(file, Op::Write, &write(id), status);
        let size = 10_u64.to_be_bytes();
        let args = Setattr4Args { stateid: id, obj_attributes: one(attributes::SIZE, &size) };
        b.at(file, Op::Setattr, &args, status);
    }
    for (id, status) in [(BAD, S::StaleStateid), (unknown(first), S::BadStateid)] {
        b.at(file, Op::Delegreturn, &Stateid4Args { stateid: id }, status);
    }
    b.at(file, Op::Close, &close(second, b.opener + 7), S::BadSeqid);
    b.at(file, Op::OpenDowngrade, &downgrade(second, b.opener + 7, 1), S::BadSeqid);
    b.opens(file, Op::OpenDowngrade, |seqid| downgrade(second, seqid, 3), S::Inval);
    b.at(file, Op::Write, &write(second), S::Openmode);
    b.at(directory, Op::Commit, &Commit4Args { offset: 0, count: 0 }, S::Isdir);
    b.at(link, Op::Commit, &Commit4Args { offset: 0, count: 0 }, S::Symlink);
    second
}

/// Lock owners and their sequence numbers.
fn locks(b: &mut Bench, rival: &mut Bench, [root, file, directory]: [&[u8]; 3], reading: Stateid4) {
    let clientid = b.clientid;
    b.at(file, Op::Lock, &first_lock(reading, b.opener + 7, clientid, 1), S::BadSeqid);
    b.opens(file, Op::Lock, |seqid| first_lock(reading, seqid, clientid, 1), S::Openmode);
    b.opens(file, Op::Lock, |seqid| first_lock(reading, seqid, clientid, 0), S::Inval);
    b.opens(file, Op::Lock, |seqid| first_lock(reading, seqid, 12345, 1), S::StaleClientid);
    b.opens(directory, Op::Lock, |seqid| first_lock(reading, seqid, clientid, 1), S::Isdir);
    let both = b.open_f(root, SHARE_ACCESS_BOTH, 0);
    let reclaim = |seqid| Lock4Args { reclaim: true, ..first_lock(both, seqid, clientid, 1) };
    b.opens(file, Op::Lock, reclaim, S::NoGrace);
    b.opener += 1;
    let old: Stateid4 = get(&b.done(file, Op::Lock, &first_lock(both, b.opener, clientid, 1)));
    b.locker += 1;
    let held: Stateid4 = get(&b.done(file, Op::Lock, &next_lock(old, b.locker, 5)));
    b.at(file, Op::Lock, &next_lock(held, b.locker + 7, 5), S::BadSeqid);
    b.at(file, Op::Locku, &unlock(held, b.locker + 7, 5), S::BadSeqid);
    for (id, status) in [(BAD, S::StaleStateid), (unknown(held), S::BadStateid), (old, S::OldStateid)] {
        b.locks(file, Op::Locku, |seqid| unlock(id, seqid, 1), status);
    }
    b.locks(file, Op::Locku, |seqid| unlock(held, seqid, 0), S::Inval);
    b.locks(directory, Op::Locku, |seqid| unlock(held, seqid, 1), S::Isdir);
    b.alone(Op::ReleaseLockowner, &release(clientid), S::LocksHeld);
    b.at(file, Op::Lockt, &test(clientid, 0), S::Inval);
    b.at(directory, Op::Lockt, &test(clientid, 1), S::Isdir);
    // Another client uses this one's state.
    let (_, theirs) = rival.open_first(root, file, SHARE_ACCESS_BOTH);
    std::mem::swap(&mut b.table, &mut rival.table);
    let id = rival.clientid;
    rival.opens(file, Op::Lock, |seqid| first_lock(theirs, seqid, id, 1), S::Denied);
    rival.at(file, Op::Lockt, &test(id, 1), S::Denied);
    let denying = |seqid| Open4Args { share_deny: 3, ..open(id, b"opener", F, seqid) };
    rival.opens(root, Op::Open, denying, S::ShareDenied);
    rival.opener += 1;
    rival.done(file, Op::Close, &close(theirs, rival.opener));
    std::mem::swap(&mut b.table, &mut rival.table);
}

/// A client with a delegation whose callback path goes down.
fn unreachable(table: &mut Table, server: &Server, scratch: &Scratch) {
    std::fs::write(scratch.at("delegated"), "").unwrap();
    let (mut old, mut callee) = Old::new(server, b"callable");
    let root = old.walk(&scratch.export());
    callee.answer(&[]);
    let (given, _) = old.open_delegated(&root, b"delegated");
    assert_ne!(given, None);
    // A conflicting open finds out that the holder can't be called.
    let mut rival = Session::new(server, 1, b"wants it");
    rival.reclaim_complete();
    let opened = rival.open(&root, OpenClaim4::Null(Opaque(b"delegated")), false).err();
    assert_eq!(opened, Some(S::Delay as u32));
    let renew = Ops::new().op(Op::Renew, &Clientid4Args { clientid: old.clientid });
    callee.refuse();
    wait_for("the server to notice", || compound(&mut old.wire, 0, &renew).status != NFS_OK);
    table.note(Op::Renew, S::CbPathDown, compound(&mut old.wire, 0, &renew).status);
}

/// A client whose lease has expired loses its state to a conflicting open.
fn expiry(table: &mut Table) {
    let scratch = Scratch::new();
    let server = Server::start(Config { lease: Duration::from_secs(1), ..scratch.config(ANYBODY) }).unwrap();
    std::fs::write(scratch.at("f"), "").unwrap();
    let (mut bench, mut rival) = (Bench::new(&server, b"one"), Bench::new(&server, b"two"));
    let b = &mut bench;
    std::mem::swap(table, &mut b.table);
    let root = &b.walk(&scratch.export())[..];
    let file = &b.lookup(root, "f")[..];
    let clientid = b.clientid;
    let (_, open_both) = b.open_first(root, file, SHARE_ACCESS_BOTH);
    let before = [(Op::Putfh, encoded(&Putfh4Args { object: Opaque(root) }))];
    wait_for("the lease's end", || {
        rival.opener += 1;
        let args = Open4Args { share_deny: 3, ..open(rival.clientid, b"opener", F, rival.opener) };
        rival.run(&before, Op::Open, &encoded(&args)).status == NFS_OK
    });
    b.alone(Op::Renew, &Clientid4Args { clientid }, S::Expired);
    b.alone(Op::ReleaseLockowner, &release(clientid), S::Expired);
    b.at(root, Op::Open, &open(clientid, b"opener", F, b.opener + 1), S::Expired);
    b.at(file, Op::Close, &close(open_both, b.opener + 1), S::Expired);
    b.at(file, Op::OpenDowngrade, &downgrade(open_both, b.opener + 1, 1), S::Expired);
    b.at(file, Op::OpenConfirm, &confirm(open_both, b.opener + 1), S::Expired);
    b.at(file, Op::Lock, &first_lock(open_both, b.opener + 1, clientid, 1), S::Expired);
    b.at(file, Op::Lockt, &test(clientid, 1), S::Expired);
    b.at(file, Op::Locku, &unlock(open_both, 1, 1), S::Expired);
    b.at(file, Op::Read, &read(open_both), S::Expired);
    b.at(file, Op::Write, &write(open_both), S::Expired);
    std::mem::swap(table, &mut b.table);
}
