//! The errors of NFSv4.1 and 4.2, and of 4.0 (`v40`), as far as they can be provoked without a failing disk.
//! Each is one that the RFCs allow for the operation (rfc.txt and rfc7530.txt have their tables), and the
//! tables of docs/nfs4.md have these and no others.

#[path = "../common/mod.rs"]
mod common;
mod data;
mod lost;
mod names;
mod sessions;
mod states;
mod table;
mod v40;

use common::v4::{ANYBODY, Ops, Session, compound, get};
use common::{Scratch, encoded};
use proto::nfs4::Nfsstat4 as S;
use proto::nfs4::Operation as Op;
use proto::nfs4::*;
use samehost_server::{Config, OPERATIONS, Server};
use table::{Beyond, Table};
use xdr::{Array, Encode, Opaque};

/// The errors that the RFCs' tables allow: "OPERATION: ERROR ERROR", from RFC 8881 section 15.2, RFC
/// 7530 section 13.2, RFC 7862 section 11.2 and RFC 8276 section 8.4.5.
const RFCS: &str = include_str!("rfc.txt");

/// Errors that no table has, and why they are right.
const BEYOND: [Beyond; 11] = [
    (Op::CopyNotify, S::Notsupp, "optional (RFC 7862 section 13)"),
    (Op::SetSsv, S::Notsupp, "only for clients with SP4_SSV, which the server grants to none"),
    (Op::Copy, S::Notsupp, "from another server: COPY's parts are optional (RFC 7862 section 13)"),
    (Op::Copy, S::Xdev, "between exports: clients copy by themselves then; CLONE's table has it"),
    (Op::ExchangeId, S::Perm, "RFC 8881 section 18.35.4 requires it (case 9)"),
    (Op::Listxattrs, S::Badxdr, "the table forgot it"),
    (Op::Listxattrs, S::BadCookie, "as READDIR"),
    (Op::Listxattrs, S::Toosmall, "RFC 8276 section 8.4.3.3 requires it"),
    (Op::OffloadCancel, S::Nofilehandle, "it needs the current file"),
    (Op::OffloadStatus, S::Nofilehandle, "it needs the current file"),
    (Op::Seek, S::Nxio, "RFC 7862 section 15.11.3 requires it"),
];

const ANY: Stateid4 = Stateid4 { seqid: 0, other: [0; 12] };
/// A state id that the server has never returned.
const BAD: Stateid4 = Stateid4 { seqid: 1, other: [9; 12] };

struct Bench {
    session: Session,
    table: Table,
}

impl Bench {
    /// SEQUENCE and `before`, which succeed, and then `op`, which fails with `status`.
    fn fails(&mut self, before: &[(Op, Vec<u8>)], op: Op, args: &[u8], status: S) {
        let found = self.status_of(before, op, args);
        self.table.note(op, status, found);
    }

    /// As `fails`, repeated while the server answers NFS4ERR_DELAY.
    fn fails_finally(&mut self, op: Op, args: &[u8], status: S) {
        let found = loop {
            match self.status_of(&[], op, args) {
                found if found == S::Delay as u32 => std::thread::yield_now(),
                found => break found,
            }
        };
        self.table.note(op, status, found);
    }

    /// The status of `op`, after SEQUENCE and `before`, which succeed.
    fn status_of(&mut self, before: &[(Op, Vec<u8>)], op: Op, args: &[u8]) -> u32 {
        let mut ops = self.session.sequence(false);
        for (op, args) in before.iter().map(|(op, args)| (*op, args.as_slice())).chain([(op, args)]) {
            ops.count += 1;
            ops.encoder.u32(op.number());
            ops.encoder.raw(args);
        }
        let done = self.session.run(&ops);
        assert_eq!(done.count(), ops.count, "it is {op:?} that fails");
        done.status
    }

    /// `op` on the file of a handle.
    fn at(&mut self, file: &[u8], op: Op, args: &impl Encode, status: S) {
        self.fails(&[(Op::Putfh, encoded(&Putfh4Args { object: Opaque(file) }))], op, &encoded(args), status);
    }

    /// `op` on a saved and a current file.
    fn between(&mut self, saved: &[u8], current: &[u8], op: Op, args: &impl Encode, status: S) {
        let put = |file| (Op::Putfh, encoded(&Putfh4Args { object: Opaque(file) }));
        self.fails(&[put(saved), (Op::Savefh, vec![]), put(current)], op, &encoded(args), status);
    }

    /// `op` without a session, as the only operation.
    fn alone(&mut self, op: Op, args: &impl Encode, status: S) {
        let done = compound(&mut self.session.wire, 2, &Ops::new().op(op, args));
        self.table.note(op, status, done.status);
    }

    fn as_user<T>(&mut self, uid: u32, with: impl FnOnce(&mut Self) -> T) -> T {
        let before = std::mem::replace(&mut self.session.wire.credential, common::sys(uid, uid, &[]));
        let result = with(self);
        self.session.wire.credential = before;
        result
    }
}

const fn named(name: &[u8]) -> Name4Args<'_> {
    Name4Args { name: Opaque(name) }
}

const fn rename<'a>(from: &'a [u8], to: &'a [u8]) -> Rename4Args<'a> {
    Rename4Args { oldname: Opaque(from), newname: Opaque(to) }
}

const fn nothing<'a>() -> Fattr4<'a> {
    Fattr4 { attrmask: Bitmap4::EMPTY, attr_vals: Opaque(&[]) }
}

const fn one(number: u32, value: &[u8]) -> Fattr4<'_> {
    Fattr4 { attrmask: Bitmap4::of(&[number]), attr_vals: Opaque(value) }
}

const fn create<'a>(kind: NfsFtype4, name: &'a [u8], createattrs: Fattr4<'a>) -> Create4Args<'a> {
    Create4Args { objtype: Createtype4::Other(kind as u32), objname: Opaque(name), createattrs }
}

const fn setattr(obj_attributes: Fattr4<'_>) -> Setattr4Args<'_> {
    Setattr4Args { stateid: ANY, obj_attributes }
}

fn open<'a>(clientid: u64, claim: OpenClaim4<'a>, openhow: Openflag4<'a>) -> Open4Args<'a> {
    let owner = StateOwner4 { clientid, owner: Opaque(b"opener") };
    Open4Args { seqid: 0, share_access: SHARE_ACCESS_READ, share_deny: 0, owner, openhow, claim }
}

const fn read(stateid: Stateid4) -> Read4Args {
    Read4Args { stateid, offset: 0, count: 10 }
}

const fn write(stateid: Stateid4) -> Write4Args<'static> {
    Write4Args { stateid, offset: 0, stable: StableHow4::Unstable, data: Opaque(b"x") }
}

const fn range(stateid: Stateid4, length: u64) -> Allocate4Args {
    Allocate4Args { stateid, offset: 0, length }
}

const fn seek(stateid: Stateid4, offset: u64, what: u32) -> Seek4Args {
    Seek4Args { stateid, offset, what }
}

fn copy<'a>(src_stateid: Stateid4, dst_stateid: Stateid4, src_offset: u64) -> Copy4Args<'a> {
    Copy4Args {
        src_stateid,
        dst_stateid,
        src_offset,
        dst_offset: 0,
        count: 0,
        consecutive: true,
        synchronous: true,
        source_server: Array(vec![]),
    }
}

const fn clone(src_stateid: Stateid4, dst_stateid: Stateid4) -> Clone4Args {
    Clone4Args { src_stateid, dst_stateid, src_offset: 0, dst_offset: 0, count: 0 }
}

const fn readdir(cookie: u64, maxcount: u32, attr_request: Bitmap4) -> Readdir4Args {
    Readdir4Args { cookie, cookieverf: [0; 8], dircount: 100, maxcount, attr_request }
}

fn lock(open: Stateid4, owner: &[u8], clientid: u64, length: u64, reclaim: bool) -> Lock4Args<'_> {
    let new = OpenToLockOwner4 {
        open_seqid: 0,
        open_stateid: open,
        lock_seqid: 0,
        lock_owner: StateOwner4 { clientid, owner: Opaque(owner) },
    };
    Lock4Args { locktype: NfsLockType4::Write, reclaim, offset: 0, length, locker: Locker4::New(new) }
}

/// Operations on the current file, with valid arguments.
fn on_a_file() -> Vec<(Op, Vec<u8>)> {
    let guarded = Openflag4::Nocreate;
    let id = |args: &Stateid4Args| encoded(args);
    vec![
        (Op::Access, encoded(&Access4Args { access: 1 })),
        (Op::Close, encoded(&Close4Args { seqid: 0, open_stateid: BAD })),
        (Op::Commit, encoded(&Commit4Args { offset: 0, count: 0 })),
        (Op::Create, encoded(&create(NfsFtype4::Dir, b"x", nothing()))),
        (Op::Getattr, encoded(&Getattr4Args { attr_request: Bitmap4::EMPTY })),
        (Op::Getfh, vec![]),
        (Op::Lock, encoded(&lock(BAD, b"o", 1, 1, false))),
        (Op::Lookup, encoded(&named(b"x"))),
        (Op::Lookupp, vec![]),
        (Op::Nverify, encoded(&Verify4Args { obj_attributes: nothing() })),
        (Op::Open, encoded(&open(1, OpenClaim4::Null(Opaque(b"x")), guarded))),
        (Op::Read, encoded(&read(ANY))),
        (Op::Readdir, encoded(&readdir(0, 4096, Bitmap4::EMPTY))),
        (Op::Readlink, vec![]),
        (Op::Remove, encoded(&named(b"x"))),
        (Op::Savefh, vec![]),
        (Op::Secinfo, encoded(&named(b"x"))),
        (Op::SecinfoNoName, encoded(&SecinfoStyle4::CurrentFh)),
        (Op::Setattr, encoded(&setattr(nothing()))),
        (Op::Verify, encoded(&Verify4Args { obj_attributes: nothing() })),
        (Op::Write, encoded(&write(ANY))),
        (Op::Allocate, encoded(&range(ANY, 1))),
        (Op::Deallocate, encoded(&range(ANY, 1))),
        (Op::IoAdvise, encoded(&IoAdvise4Args { stateid: ANY, offset: 0, count: 0, hints: Bitmap4::EMPTY })),
        (Op::Seek, encoded(&seek(ANY, 0, 0))),
        (Op::ReadPlus, encoded(&read(ANY))),
        (Op::OffloadStatus, id(&Stateid4Args { stateid: BAD })),
        (Op::OffloadCancel, id(&Stateid4Args { stateid: BAD })),
        (Op::Getxattr, encoded(&Xattr4Args { name: Opaque(b"x") })),
        (Op::Listxattrs, encoded(&Listxattrs4Args { cookie: 0, maxcount: 1000 })),
        (Op::Removexattr, encoded(&Xattr4Args { name: Opaque(b"x") })),
        (Op::Setxattr, encoded(&setxattr(SetxattrOption4::Either, b"x"))),
        (Op::Lockt, encoded(&lockt(1, 1))),
        (Op::Locku, encoded(&locku(BAD, 1))),
        (Op::OpenDowngrade, encoded(&downgrade(BAD, 0))),
        (Op::Delegreturn, id(&Stateid4Args { stateid: BAD })),
        (Op::WantDelegation, encoded(&want(SHARE_ACCESS_WANT_READ_DELEG, DelegClaim4::Fh))),
    ]
}

/// Operations on no file or on two files, with valid arguments.
fn on_no_file() -> Vec<(Op, Vec<u8>)> {
    vec![
        (Op::Rename, encoded(&rename(b"a", b"b"))),
        (Op::Link, encoded(&named(b"a"))),
        (Op::Copy, encoded(&copy(ANY, ANY, 0))),
        (Op::Clone, encoded(&clone(ANY, ANY))),
        (Op::Putfh, encoded(&Putfh4Args { object: Opaque(b"x") })),
        (Op::Putrootfh, vec![]),
        (Op::Putpubfh, vec![]),
        (Op::Restorefh, vec![]),
        (Op::FreeStateid, encoded(&Stateid4Args { stateid: BAD })),
        (Op::TestStateid, encoded(&TestStateid4Args { stateids: Array(vec![BAD]) })),
        (Op::ReclaimComplete, encoded(&ReclaimComplete4Args { one_fs: false })),
        (Op::BackchannelCtl, encoded(&BackchannelCtl4Args { cb_program: 1, sec_parms: Array(vec![]) })),
    ]
}

const fn lockt(clientid: u64, length: u64) -> Lockt4Args<'static> {
    let owner = StateOwner4 { clientid, owner: Opaque(b"o") };
    Lockt4Args { locktype: NfsLockType4::Write, offset: 0, length, owner }
}

const fn locku(lock_stateid: Stateid4, length: u64) -> Locku4Args {
    Locku4Args { locktype: NfsLockType4::Write, seqid: 0, lock_stateid, offset: 0, length }
}

const fn downgrade(open_stateid: Stateid4, share_deny: u32) -> OpenDowngrade4Args {
    OpenDowngrade4Args { open_stateid, seqid: 0, share_access: 3, share_deny }
}

const fn want(want: u32, claim: DelegClaim4) -> WantDelegation4Args {
    WantDelegation4Args { want, claim }
}

const fn setxattr(option: SetxattrOption4, key: &[u8]) -> Setxattr4Args<'_> {
    Setxattr4Args { option, key: Opaque(key), value: Opaque(b"v") }
}

#[test]
fn errors_are_those_of_the_rfcs_and_the_documentation() {
    let waits = std::thread::spawn(lost::revoked);
    let scratch = Scratch::new();
    let other = Scratch::new();
    let exports = vec![
        format!("{} {ANYBODY}", scratch.export().display()),
        format!("{} {ANYBODY}", other.export().display()),
        format!("{} *(ro,insecure,no_root_squash)", scratch.run_dir().with_file_name("ro").display()),
    ];
    std::fs::create_dir_all(scratch.run_dir().with_file_name("ro")).unwrap();
    let server = Server::start(Config { exports, ..scratch.config("") }).unwrap();
    for (path, text) in [("f", "0123456789"), ("g", ""), ("d/inner", "")] {
        std::fs::create_dir_all(scratch.at("d")).unwrap();
        std::fs::write(scratch.at(path), text).unwrap();
    }
    std::fs::create_dir(scratch.at("empty")).unwrap();
    std::fs::create_dir(scratch.at("closed")).unwrap();
    std::fs::write(scratch.at("closed/f"), "").unwrap();
    let mode = |path: &str, mode| {
        std::fs::set_permissions(scratch.at(path), std::os::unix::fs::PermissionsExt::from_mode(mode))
            .unwrap();
    };
    [("closed", 0o700), ("f", 0o644), ("d", 0o755)].into_iter().for_each(|(path, bits)| mode(path, bits));
    std::os::unix::fs::symlink("f", scratch.at("l")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        scratch.at("p"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o644),
        0,
    )
    .unwrap();
    let mut session = Session::new(&server, 2, b"one");
    session.reclaim_complete();
    let mut rival = Session::new(&server, 2, b"two");
    rival.reclaim_complete();
    let root = session.walk(&scratch.export());
    let [file, directory, link, fifo, closed, empty] =
        ["f", "d", "l", "p", "closed", "empty"].map(|name| session.lookup(&root, name.as_bytes()).unwrap());
    let elsewhere = session.walk(&other.export());
    let read_only = session.walk(&scratch.run_dir().with_file_name("ro"));
    let pseudo = session.walk(std::path::Path::new("/"));
    let clientid = session.clientid;
    let mut b = Bench { session, table: Table::default() };

    names::handles(&mut b, &scratch, &root);
    names::names(&mut b, &root, &file, &directory);
    kinds(&mut b, [&root, &file, &directory, &link, &fifo]);
    attributes_of(&mut b, &root, &file, &pseudo);
    rights(&mut b, [&root, &file, &closed, &read_only, &pseudo], clientid);
    directories(&mut b, &root, &file, &elsewhere, &empty);
    states::states(&mut b, &mut rival, &root, &file, clientid);
    data::holes_and_copies(&mut b, &file, &elsewhere);
    data::xattrs(&mut b, &file);
    sessions::sessions(&mut b, clientid);
    for spec in OPERATIONS.iter().filter(|spec| !spec.is_supported(spec.minors.0)) {
        b.at(&file, spec.operation, &(), S::Notsupp);
    }
    let lost = [waits, std::thread::spawn(lost::restarted)].map(|table| table.join().unwrap());
    lost.into_iter().for_each(|table| b.table.add(table));
    b.table.check(RFCS, &BEYOND);
}

/// Operations on the wrong kind of file.
fn kinds(b: &mut Bench, [root, file, directory, link, fifo]: [&[u8]; 5]) {
    let clientid = b.session.clientid;
    for (at, status) in [(file, S::Notdir), (link, S::Symlink)] {
        b.at(at, Op::Lookup, &named(b"x"), status);
        b.at(at, Op::Lookupp, &(), status);
        b.at(at, Op::Secinfo, &named(b"x"), S::Notdir);
        b.at(at, Op::Open, &open(clientid, OpenClaim4::Null(Opaque(b"x")), Openflag4::Nocreate), status);
    }
    for (op, args) in [
        (Op::Create, encoded(&create(NfsFtype4::Dir, b"x", nothing()))),
        (Op::Readdir, encoded(&readdir(0, 4096, Bitmap4::EMPTY))),
        (Op::Remove, encoded(&named(b"x"))),
    ] {
        b.fails(&[(Op::Putfh, encoded(&Putfh4Args { object: Opaque(file) }))], op, &args, S::Notdir);
    }
    b.between(file, file, Op::Link, &named(b"x"), S::Notdir);
    b.between(file, root, Op::Rename, &rename(b"a", b"b"), S::Notdir);
    for (at, status) in [(directory, S::Isdir), (link, S::Symlink), (fifo, S::WrongType)] {
        for (op, args) in [
            (Op::Read, encoded(&read(ANY))),
            (Op::ReadPlus, encoded(&read(ANY))),
            (Op::Write, encoded(&write(ANY))),
            (Op::Allocate, encoded(&range(ANY, 1))),
            (Op::Deallocate, encoded(&range(ANY, 1))),
            (Op::Seek, encoded(&seek(ANY, 0, 0))),
        ] {
            b.fails(&[(Op::Putfh, encoded(&Putfh4Args { object: Opaque(at) }))], op, &args, status);
        }
        b.between(file, at, Op::Copy, &copy(ANY, ANY, 0), status);
        b.between(file, at, Op::Clone, &clone(ANY, ANY), status);
        b.at(at, Op::Open, &open(clientid, OpenClaim4::Fh, Openflag4::Nocreate), status);
    }
    b.at(directory, Op::Commit, &Commit4Args { offset: 0, count: 0 }, S::Isdir);
    b.at(link, Op::Commit, &Commit4Args { offset: 0, count: 0 }, S::Symlink);
    b.at(file, Op::Readlink, &(), S::WrongType);
    b.at(root, Op::Create, &create(NfsFtype4::Reg, b"x", nothing()), S::Badtype);
    let size = 5_u64.to_be_bytes();
    b.at(directory, Op::Setattr, &setattr(one(attributes::SIZE, &size)), S::Isdir);
}

/// Attributes that objects lack, that can't be set, and that can't be requested.
fn attributes_of(b: &mut Bench, root: &[u8], file: &[u8], pseudo: &[u8]) {
    let clientid = b.session.clientid;
    let hidden = one(attributes::HIDDEN, &[0; 4]);
    let guarded = |attrs| Openflag4::Create(Createhow4::Guarded(attrs));
    let new = |attrs| open(clientid, OpenClaim4::Null(Opaque(b"new")), guarded(attrs));
    b.at(file, Op::Setattr, &setattr(hidden), S::Attrnotsupp);
    // An attribute that no object has, and one that these lack: root has no quota.
    for none in [hidden, one(attributes::QUOTA_USED, &[0; 8])] {
        b.at(file, Op::Verify, &Verify4Args { obj_attributes: none }, S::Attrnotsupp);
        b.at(pseudo, Op::Nverify, &Verify4Args { obj_attributes: none }, S::Attrnotsupp);
    }
    b.at(root, Op::Open, &new(hidden), S::Attrnotsupp);
    b.at(root, Op::Create, &create(NfsFtype4::Dir, b"new", hidden), S::Attrnotsupp);
    let link_support = one(attributes::LINK_SUPPORT, &[0; 4]);
    b.at(file, Op::Setattr, &setattr(link_support), S::Inval);
    b.at(root, Op::Create, &create(NfsFtype4::Dir, b"new", link_support), S::Inval);
    b.at(root, Op::Open, &new(link_support), S::Inval);
    let write_only = Bitmap4::of(&[attributes::TIME_ACCESS_SET]);
    b.at(file, Op::Getattr, &Getattr4Args { attr_request: write_only }, S::Inval);
    b.at(root, Op::Readdir, &readdir(0, 4096, write_only), S::Inval);
    let set = Fattr4 { attrmask: write_only, attr_vals: Opaque(&[0; 4]) };
    b.at(file, Op::Verify, &Verify4Args { obj_attributes: set }, S::Inval);
    b.at(file, Op::Nverify, &Verify4Args { obj_attributes: set }, S::Inval);
    let owner = encoded(&Opaque::<'_, 100>(b"no such user"));
    let owner = one(attributes::OWNER, &owner);
    b.at(file, Op::Setattr, &setattr(owner), S::Badowner);
    b.at(root, Op::Create, &create(NfsFtype4::Dir, b"new", owner), S::Badowner);
    b.at(root, Op::Open, &new(owner), S::Badowner);
    let size = 10_u64.to_be_bytes();
    b.at(file, Op::Nverify, &Verify4Args { obj_attributes: one(attributes::SIZE, &size) }, S::Same);
    let size = 11_u64.to_be_bytes();
    b.at(file, Op::Verify, &Verify4Args { obj_attributes: one(attributes::SIZE, &size) }, S::NotSame);
    let huge = u64::MAX.to_be_bytes();
    b.at(file, Op::Setattr, &setattr(one(attributes::SIZE, &huge)), S::Fbig);
    b.at(pseudo, Op::Lookupp, &(), S::Noent);
    b.at(pseudo, Op::SecinfoNoName, &SecinfoStyle4::Parent, S::Noent);
}

/// Operations that a user has no permission for, and those that no user may do.
fn rights(b: &mut Bench, [root, file, closed, read_only, pseudo]: [&[u8]; 5], clientid: u64) {
    let mode = 0o777_u32.to_be_bytes();
    for at in [pseudo, read_only] {
        b.at(at, Op::Create, &create(NfsFtype4::Dir, b"x", nothing()), S::Rofs);
        b.at(at, Op::Setattr, &setattr(one(attributes::MODE, &mode)), S::Rofs);
    }
    b.at(pseudo, Op::Remove, &named(b"x"), S::Rofs);
    b.between(pseudo, pseudo, Op::Rename, &rename(b"a", b"b"), S::Rofs);
    b.between(file, pseudo, Op::Link, &named(b"x"), S::Rofs);
    let make = Openflag4::Create(Createhow4::Guarded(nothing()));
    for at in [read_only, pseudo] {
        b.at(at, Op::Open, &open(clientid, OpenClaim4::Null(Opaque(b"x")), make), S::Rofs);
    }
    b.at(pseudo, Op::Open, &open(clientid, OpenClaim4::Null(Opaque(b"x")), Openflag4::Nocreate), S::Noent);
    b.at(pseudo, Op::Open, &open(clientid, OpenClaim4::Fh, Openflag4::Nocreate), S::Isdir);
    b.as_user(4000, |b| {
        b.at(closed, Op::Lookup, &named(b"f"), S::Access);
        b.at(closed, Op::Secinfo, &named(b"f"), S::Access);
        b.at(closed, Op::Readdir, &readdir(0, 4096, Bitmap4::EMPTY), S::Access);
        b.at(closed, Op::Create, &create(NfsFtype4::Dir, b"x", nothing()), S::Access);
        b.at(closed, Op::Remove, &named(b"f"), S::Access);
        b.between(file, closed, Op::Link, &named(b"x"), S::Access);
        b.between(root, closed, Op::Rename, &rename(b"f", b"x"), S::Access);
        b.at(
            closed,
            Op::Open,
            &open(clientid, OpenClaim4::Null(Opaque(b"f")), Openflag4::Nocreate),
            S::Access,
        );
        b.at(file, Op::Write, &write(ANY), S::Access);
        b.at(file, Op::Allocate, &range(ANY, 1), S::Access);
        b.at(file, Op::Deallocate, &range(ANY, 1), S::Access);
        b.between(file, file, Op::Copy, &copy(ANY, ANY, 0), S::Access);
        b.at(file, Op::Setxattr, &setxattr(SetxattrOption4::Either, b"x"), S::Access);
        b.at(file, Op::Removexattr, &Xattr4Args { name: Opaque(b"x") }, S::Access);
        b.at(file, Op::Setattr, &setattr(one(attributes::MODE, &mode)), S::Perm);
        let size = 1_u64.to_be_bytes();
        b.at(file, Op::Setattr, &setattr(one(attributes::SIZE, &size)), S::Access);
    });
}

/// Pages of directories, other filesystems, directories in use.
fn directories(b: &mut Bench, root: &[u8], file: &[u8], elsewhere: &[u8], empty: &[u8]) {
    b.at(root, Op::Readdir, &readdir(1, 4096, Bitmap4::EMPTY), S::BadCookie);
    b.at(root, Op::Readdir, &readdir(0, 8, Bitmap4::EMPTY), S::Toosmall);
    b.at(root, Op::Remove, &named(b"d"), S::Notempty);
    b.between(file, elsewhere, Op::Link, &named(b"x"), S::Xdev);
    b.between(root, elsewhere, Op::Rename, &rename(b"f", b"x"), S::Xdev);
    // A directory into itself.
    b.between(root, empty, Op::Rename, &rename(b"empty", b"x"), S::Inval);
}
