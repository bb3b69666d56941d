//! Delegations over TCP: a client gets a delegation, a conflicting access recalls it over the client's own
//! connection, and one that isn't returned is revoked. The clients are implemented by the test, which checks
//! every byte of a callback.

mod common;

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::Duration;

use common::called::{answer, call};
use common::local::{lane, open, run, user};
use common::v4::{ANYBODY, NFS_OK, Ops, PUTFH, SEQUENCE, Session, compound, get};
use common::{Client, Scratch, encoded, wait_for, what};
use lane::{Access, OpenStatus, Target};
use proto::nfs3::{
    Createhow3, Getattr3Args, Getattr3Res, Link3Args, Lookup3Args, Lookup3Res, Nfsstat3, Outcome, Procedure,
    Rename3Args, Sattr3, Setattr3Args,
};
use proto::nfs4::*;
use samehost_server::{Config, Server};
use xdr::{Array, Decoder, Opaque};

/// Leases that run out in a test. A busy machine does a few requests within one.
const LEASE: Duration = Duration::from_secs(10);
const DELAY: u32 = Nfsstat4::Delay as u32;
const READ_DELEG: u32 = SHARE_ACCESS_READ | SHARE_ACCESS_WANT_READ_DELEG;
const WRITE_DELEG: u32 = SHARE_ACCESS_BOTH | SHARE_ACCESS_WANT_WRITE_DELEG;

/// A client with a back channel, and the handle of the export.
fn session(server: &Server, scratch: &Scratch, name: &[u8]) -> (Session, Vec<u8>) {
    let mut session = Session::callable(server, 2, name);
    session.reclaim_complete();
    let root = session.walk(&scratch.export());
    (session, root)
}

/// OPEN of `f`; the delegation, if there is one, and the handle.
fn open_f(session: &mut Session, root: &[u8], access: u32) -> Result<(Option<Stateid4>, Vec<u8>), u32> {
    let opened = session.open_with(root, OpenClaim4::Null(Opaque(b"f")), false, access, 0);
    opened.map(|(_, delegation, handle)| (delegation, handle))
}

/// Receives the recall of `delegation` and replies with success.
fn expect_recall(session: &mut Session, delegation: Stateid4, file: &[u8]) {
    let recall = call(session);
    let args: CbRecall4Args<'_> = get(&recall.args);
    assert_eq!((recall.operation, args.stateid, args.fh.0), (CB_RECALL, delegation, file));
    answer(session, &recall, &[]);
}

/// The attributes in CB_GETATTR.
const WRITTEN: Bitmap4 = Bitmap4::of(&[attributes::CHANGE, attributes::SIZE]);

/// Runs `access`, which makes the server send CB_GETATTR to the holder; the reply has this change attribute
/// and size, or nothing.
fn with_cb_getattr<T: Send>(
    holder: &mut Session,
    file: &[u8],
    written: &[u64],
    access: impl FnOnce() -> T + Send,
) -> T {
    std::thread::scope(|scope| {
        let accessing = scope.spawn(access);
        let callback = call(holder);
        let args: CbGetattr4Args<'_> = get(&callback.args);
        assert_eq!((callback.operation, args.fh.0), (CB_GETATTR, file));
        let values: Vec<u8> = written.iter().flat_map(|value| value.to_be_bytes()).collect();
        let attrmask = if written.is_empty() { Bitmap4::EMPTY } else { WRITTEN };
        let obj_attributes = Fattr4 { attrmask, attr_vals: Opaque(&values) };
        answer(holder, &callback, &encoded(&CbGetattr4ResOk { obj_attributes }));
        accessing.join().unwrap()
    })
}

fn delegreturn(session: &mut Session, delegation: Stateid4, file: &[u8]) -> u32 {
    let ops = session
        .sequence(false)
        .op(Operation::Putfh, &Putfh4Args { object: Opaque(file) })
        .op(Operation::Delegreturn, &Stateid4Args { stateid: delegation });
    session.run(&ops).status
}

/// SEQUENCE alone: its status flags.
fn flags(session: &mut Session) -> u32 {
    let ops = session.sequence(false);
    let done = session.run(&ops);
    let (status, body) = done.after(&[]);
    assert_eq!(status, NFS_OK);
    get::<Sequence4ResOk>(body).status_flags
}

/// A server with a file `f`, and two clients.
fn two(scratch: &Scratch) -> (Server, (Session, Vec<u8>), Session) {
    let server = scratch.serve(ANYBODY);
    std::fs::write(scratch.at("f"), "data").unwrap();
    let (one, other) = (session(&server, scratch, b"one"), session(&server, scratch, b"other").0);
    (server, one, other)
}

#[test]
fn another_clients_open_recalls_a_delegation() {
    let scratch = Scratch::new();
    let (_server, (mut one, root), mut other) = two(&scratch);
    let (delegation, file) = open_f(&mut one, &root, READ_DELEG).unwrap();
    let delegation = delegation.expect("there is no writer");
    assert!(open_f(&mut other, &root, READ_DELEG).unwrap().0.is_some(), "readers share");
    assert_eq!(open_f(&mut other, &root, SHARE_ACCESS_WRITE).err(), Some(DELAY));
    expect_recall(&mut one, delegation, &file);
    assert_eq!(open_f(&mut other, &root, SHARE_ACCESS_WRITE).err(), Some(DELAY), "not returned yet");
    // The holder opens the file by the delegation that it is about to return.
    let by = OpenClaimDelegateCur4 { delegate_stateid: delegation, file: Opaque(b"f") };
    one.open_shared(&root, OpenClaim4::DelegateCur(by), false, SHARE_ACCESS_READ, 0).unwrap();
    one.open_shared(&file, OpenClaim4::DelegCurFh(delegation), false, SHARE_ACCESS_READ, 0).unwrap();
    assert_eq!(delegreturn(&mut one, delegation, &file), NFS_OK);
    assert_eq!(delegreturn(&mut one, delegation, &file), Nfsstat4::BadStateid as u32);
    open_f(&mut other, &root, SHARE_ACCESS_WRITE).unwrap();
    assert_eq!(open_f(&mut one, &root, READ_DELEG).unwrap().0, None, "a client writes");
}

#[test]
fn version_3_recalls_delegations() {
    let scratch = Scratch::new();
    let (server, (mut one, root), _) = two(&scratch);
    let mut old = Client::new(&server);
    let (delegation, file) = open_f(&mut one, &root, READ_DELEG).unwrap();
    let delegation = delegation.unwrap();
    assert_eq!(old.read(&file, 0, 10).unwrap().0, b"data", "reading is no conflict");
    assert_eq!(old.create(&root, "f").as_ref(), Ok(&file), "nor is an open that creates nothing");
    let written = old.write(&file, 0, b"DATA").into_result().err().map(|(status, _)| status);
    assert_eq!(written, Some(Nfsstat3::Jukebox));
    expect_recall(&mut one, delegation, &file);
    let truncation = Createhow3::Unchecked(Sattr3 { size: Some(0), ..Sattr3::default() });
    assert_eq!(old.create_how(&root, "f", truncation), Err(Nfsstat3::Jukebox));
    let removed = old.remove(&root, "f").into_result().err().map(|(status, _)| status);
    assert_eq!(removed, Some(Nfsstat3::Jukebox));
    assert_eq!(delegreturn(&mut one, delegation, &file), NFS_OK);
    old.write(&file, 0, b"DATA").into_result().unwrap();
    old.remove(&root, "f").into_result().unwrap();
}

/// A request without permission recalls no delegation, over any transport.
#[test]
fn a_refused_request_recalls_nothing() {
    let scratch = Scratch::new();
    let server = scratch.serve(ANYBODY);
    std::fs::create_dir(scratch.at("d")).unwrap();
    for (name, mode) in [("d/f", 0o600), ("d/g", 0o644), ("d", 0o755)] {
        if name != "d" {
            std::fs::write(scratch.at(name), "data").unwrap();
        }
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(scratch.at(name), mode).unwrap();
    }
    let (mut one, _) = session(&server, &scratch, b"one");
    let dir = one.walk(&scratch.at("d"));
    let mut delegated = |name| {
        let opened = one.open_with(&dir, OpenClaim4::Null(Opaque(name)), false, WRITE_DELEG, 0);
        let (_, delegation, handle) = opened.unwrap();
        (delegation.unwrap(), handle)
    };
    let (_, file) = delegated(b"f");
    let (other_delegation, other_file) = delegated(b"g");

    let mut user_1000 = Client::new(&server).with_user(1000, 1000, &[]);
    let refused = |status: u32| {
        let refusals = [Nfsstat3::Acces as u32, Nfsstat3::Perm as u32];
        assert!(refusals.contains(&status), "{status}");
    };
    assert_eq!(user_1000.read(&file, 0, 4), Err(Nfsstat3::Acces));
    refused(user_1000.write(&file, 0, b"x").into_result().unwrap_err().0 as u32);
    refused(user_1000.remove(&dir, "f").into_result().unwrap_err().0 as u32);
    for new_attributes in [
        Sattr3 { mode: Some(0o666), ..Sattr3::default() },
        Sattr3 { size: Some(0), ..Sattr3::default() },
        Sattr3 { mtime: proto::nfs3::SetTime::SetToServerTime, ..Sattr3::default() },
    ] {
        let args = Setattr3Args { object: Opaque(&file), new_attributes, guard: None };
        refused(user_1000.nfs(Procedure::Setattr, &args).status());
    }
    let rename = Rename3Args { from: what(&dir, b"f"), to: what(&dir, b"h") };
    refused(user_1000.nfs(Procedure::Rename, &rename).status());
    let link = Link3Args { file: Opaque(&file), link: what(&dir, b"h") };
    refused(user_1000.nfs(Procedure::Link, &link).status());

    let putfh = |file: &[u8]| Ops::new().op(Operation::Putfh, &Putfh4Args { object: Opaque(file) });
    let write = Write4Args {
        stateid: Stateid4::default(),
        offset: 0,
        stable: StableHow4::Unstable,
        data: Opaque(b"x"),
    };
    let truncation = Setattr4Args {
        stateid: Stateid4::default(),
        obj_attributes: Fattr4 { attrmask: Bitmap4::of(&[attributes::SIZE]), attr_vals: Opaque(&[0; 8]) },
    };
    let read = Read4Args { stateid: Stateid4::default(), offset: 0, count: 4 };
    for ops in [
        putfh(&file).op(Operation::Read, &read),
        putfh(&file).op(Operation::Write, &write),
        putfh(&file).op(Operation::Setattr, &truncation),
        putfh(&dir).op(Operation::Remove, &Name4Args { name: Opaque(b"f") }),
    ] {
        refused(compound(&mut user_1000, 0, &ops).status);
    }
    let mut other = Session::from(Client::new(&server).with_user(1000, 1000, &[]), 2, b"other");
    other.reclaim_complete();
    for access in [SHARE_ACCESS_READ, SHARE_ACCESS_BOTH] {
        let opened = other.open_shared(&dir, OpenClaim4::Null(Opaque(b"f")), false, access, 0);
        refused(opened.unwrap_err());
    }
    run(async {
        let mut client = Client::new(&server);
        let lane = lane(&scratch, &mut client).await;
        for access in [Access::Read, Access::Write] {
            let opened = open(&lane, Target::Handle(&file), access, &user(1000, 1000, &[])).await;
            assert_eq!(opened.err(), Some(OpenStatus::Access));
        }
    });
    // Recalls are sent in their order: the first one is for the permitted read.
    assert_eq!(user_1000.read(&other_file, 0, 4), Err(Nfsstat3::Jukebox));
    expect_recall(&mut one, other_delegation, &other_file);
}

#[test]
fn a_local_process_recalls_delegations() {
    let scratch = Scratch::new();
    let (_server, (mut one, root), _) = two(&scratch);
    let (delegation, file) = open_f(&mut one, &root, READ_DELEG).unwrap();
    let delegation = delegation.unwrap();
    assert_eq!(std::fs::read(scratch.at("f")).unwrap(), b"data", "reading is no conflict");
    let path = scratch.at("f");
    std::thread::scope(|scope| {
        // Blocks until the delegation is returned.
        let writer = scope.spawn(|| std::fs::File::options().append(true).open(&path).unwrap().write(b"!"));
        expect_recall(&mut one, delegation, &file);
        assert!(!writer.is_finished());
        assert_eq!(delegreturn(&mut one, delegation, &file), NFS_OK);
        assert_eq!(writer.join().unwrap().unwrap(), 1);
    });
}

/// Runs a program on files as another process: this process is the server.
fn another_process(program: &str, arguments: &[&std::path::Path]) {
    assert!(std::process::Command::new(program).args(arguments).status().unwrap().success());
}

#[test]
fn local_changes_of_name_or_mode_recall_delegations() {
    let scratch = Scratch::new();
    let (_server, (mut one, root), _) = two(&scratch);
    let (from, to) = (scratch.at("f"), scratch.at("g"));
    let changes: [(&str, &[&std::path::Path]); 5] = [
        ("ln", &[&from, &to]),
        ("chmod", &["600".as_ref(), &from]),
        ("touch", &[&from]),
        ("mv", &[&from, &to]),
        ("rm", &[&from]),
    ];
    for (program, arguments) in changes {
        [&from, &to].iter().for_each(|old| drop(std::fs::remove_file(old)));
        std::fs::write(&from, "data").unwrap();
        let (delegation, file) = open_f(&mut one, &root, READ_DELEG).unwrap();
        another_process(program, arguments);
        expect_recall(&mut one, delegation.unwrap_or_else(|| panic!("{program}")), &file);
        assert_eq!(delegreturn(&mut one, delegation.unwrap(), &file), NFS_OK);
    }
}

/// SAVEFH of one, and an operation on the other.
fn on_two(
    session: &mut Session,
    saved: &[u8],
    current: &[u8],
    operation: Operation,
    args: &impl xdr::Encode,
) {
    let ops = session
        .sequence(false)
        .op(Operation::Putfh, &Putfh4Args { object: Opaque(saved) })
        .op(Operation::Savefh, &())
        .op(Operation::Putfh, &Putfh4Args { object: Opaque(current) })
        .op(operation, args);
    assert_eq!(session.run(&ops).status, NFS_OK, "{operation:?}");
}

#[test]
fn a_holder_that_changes_its_files_name_or_mode_keeps_its_delegation() {
    let scratch = Scratch::new();
    let (_server, (mut one, root), mut other) = two(&scratch);
    let rename = |session: &mut Session, from: &[u8], to: &[u8]| {
        let args = Rename4Args { oldname: Opaque(from), newname: Opaque(to) };
        on_two(session, &root, &root, Operation::Rename, &args);
    };
    for access in [READ_DELEG, WRITE_DELEG] {
        for name in ["f", "last"] {
            // New files, without earlier conflicts.
            drop(std::fs::remove_file(scratch.at(name)));
            std::fs::write(scratch.at(name), "data").unwrap();
        }
        let (delegation, file) = open_f(&mut one, &root, access).unwrap();
        let delegation = delegation.expect("nobody has it open");
        let claim = OpenClaim4::Null(Opaque(b"last"));
        let (_, last, last_file) = one.open_with(&root, claim, false, access, 0).unwrap();
        assert_eq!(one.set(&file, attributes::MODE, &0o640_u32), NFS_OK);
        rename(&mut one, b"f", b"g");
        on_two(&mut one, &file, &root, Operation::Link, &Name4Args { name: Opaque(b"h") });
        assert_eq!(one.on(&root, Operation::Remove, &Name4Args { name: Opaque(b"h") }).0, NFS_OK);
        rename(&mut one, b"g", b"f");
        // Events arrive in order: when this recall is there, earlier changes have been processed.
        another_process("chmod", &["600".as_ref(), &scratch.at("last")]);
        expect_recall(&mut one, last.unwrap(), &last_file);
        assert_eq!(delegreturn(&mut one, last.unwrap(), &last_file), NFS_OK);
        // Another client's change recalls the delegation, and so does a local process's right after one of
        // the holder's.
        if access == READ_DELEG {
            let args = Rename4Args { oldname: Opaque(b"f"), newname: Opaque(b"g") };
            let ops = other
                .sequence(false)
                .op(Operation::Putfh, &Putfh4Args { object: Opaque(&root) })
                .op(Operation::Savefh, &())
                .op(Operation::Rename, &args);
            assert_eq!(other.run(&ops).status, DELAY);
        } else {
            rename(&mut one, b"f", b"g");
            another_process("mv", &[&scratch.at("g"), &scratch.at("f")]);
        }
        expect_recall(&mut one, delegation, &file);
        assert_eq!(delegreturn(&mut one, delegation, &file), NFS_OK);
    }
}

/// The holder has opened the file by itself, and then changed its mode. The server learns of the open when
/// the delegation is recalled.
#[test]
fn a_mode_that_the_holder_has_changed_takes_no_open_from_it() {
    let scratch = Scratch::new();
    let (_server, (mut one, root), _) = two(&scratch);
    let owner = common::sys(1000, 1000, &[]);
    std::os::unix::fs::chown(scratch.at("f"), Some(1000), Some(1000)).unwrap();
    one.wire.credential = owner.clone();
    let (delegation, file) = open_f(&mut one, &root, WRITE_DELEG).unwrap();
    let delegate_stateid = delegation.expect("nobody has it open");
    assert_eq!(one.set(&file, attributes::MODE, &0o444_u32), NFS_OK);
    let by_name = || OpenClaim4::DelegateCur(OpenClaimDelegateCur4 { delegate_stateid, file: Opaque(b"f") });
    one.open(&root, by_name(), false).unwrap();
    one.open(&file, OpenClaim4::DelegCurFh(delegate_stateid), false).unwrap();
    // The mode binds those who open it now, and other users in any case.
    let access = Some(Nfsstat4::Access as u32);
    assert_eq!(one.open(&file, OpenClaim4::Fh, false).err(), access);
    one.wire.credential = common::sys(2000, 2000, &[]);
    assert_eq!(one.open(&root, by_name(), false).err(), access);
    assert_eq!(one.open(&file, OpenClaim4::DelegCurFh(delegate_stateid), false).err(), access);
    // It takes a delegation that the client still has.
    one.wire.credential = owner;
    assert_eq!(delegreturn(&mut one, delegate_stateid, &file), NFS_OK);
    assert_ne!(one.open(&root, by_name(), false).err(), None);
}

#[test]
fn the_holder_of_a_write_delegation_writes_and_local_readers_wait() {
    let scratch = Scratch::new();
    let (_server, (mut one, root), _) = two(&scratch);
    let (delegation, file) = open_f(&mut one, &root, WRITE_DELEG).unwrap();
    let delegation = delegation.unwrap();
    for round in 0..3 {
        let args = Write4Args {
            stateid: delegation,
            offset: 4,
            stable: StableHow4::FileSync,
            data: Opaque(b" more"),
        };
        let ops = one
            .sequence(false)
            .op(Operation::Putfh, &Putfh4Args { object: Opaque(&file) })
            .op(Operation::Write, &args)
            .op(Operation::Read, &Read4Args { stateid: delegation, offset: 0, count: 100 });
        let done = one.run(&ops);
        let (status, body) = done.after(&[SEQUENCE, PUTFH, (Operation::Write, 16)]);
        assert_eq!(
            (status, get::<Read4ResOk<'_>>(body).data.0),
            (NFS_OK, &b"data more"[..]),
            "round {round}"
        );
    }
    let reader = std::fs::File::options().read(true).custom_flags(libc_nonblock()).open(scratch.at("f"));
    assert_eq!(reader.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    expect_recall(&mut one, delegation, &file);
    assert_eq!(delegreturn(&mut one, delegation, &file), NFS_OK);
    assert_eq!(std::fs::read(scratch.at("f")).unwrap(), b"data more");
}

fn libc_nonblock() -> i32 {
    rustix::fs::OFlags::NONBLOCK.bits() as i32
}

#[test]
fn the_holder_is_asked_for_its_attributes() {
    let scratch = Scratch::new();
    let (_server, (mut one, root), mut other) = two(&scratch);
    let (delegation, file) = open_f(&mut one, &root, WRITE_DELEG).unwrap();
    let getattr = |session: &mut Session| {
        let ops = session
            .sequence(false)
            .op(Operation::Putfh, &Putfh4Args { object: Opaque(&file) })
            .op(Operation::Getattr, &Getattr4Args { attr_request: WRITTEN });
        let done = session.run(&ops);
        let (status, body) = done.after(&[SEQUENCE, PUTFH]);
        assert_eq!(status, NFS_OK);
        let found: Fattr4<'_> = get(body);
        let mut values = Decoder::new(found.attr_vals.0);
        (values.u64().unwrap(), values.u64().unwrap())
    };
    let (change, size) = getattr(&mut one);
    assert_eq!(size, 4);
    for (written, seen) in [([change, 4], 4), ([change + 1, 500], 500)] {
        let found = with_cb_getattr(&mut one, &file, &written, || getattr(&mut other));
        assert_eq!((found.1, found.0 == change), (seen, seen == 4));
    }
    assert_eq!(delegreturn(&mut one, delegation.unwrap(), &file), NFS_OK);
    assert_eq!(getattr(&mut other).1, 4, "from the file again");
}

#[test]
fn the_holder_is_asked_for_other_versions_and_for_directory_listings() {
    let scratch = Scratch::new();
    let (server, (mut one, root), mut other) = two(&scratch);
    let (delegation, file) = open_f(&mut one, &root, WRITE_DELEG).unwrap();
    let change = u64::from_be_bytes(one.attribute(&file, attributes::CHANGE).try_into().unwrap());
    let mut old = Client::new(&server);
    let version_3 = with_cb_getattr(&mut one, &file, &[change + 1, 500], || old.getattr(&file).size);
    assert_eq!(version_3, 500);
    let version_0 = with_cb_getattr(&mut one, &file, &[change + 2, 600], || {
        let ops = Ops::new()
            .op(Operation::Putfh, &Putfh4Args { object: Opaque(&file) })
            .op(Operation::Getattr, &Getattr4Args { attr_request: Bitmap4::of(&[attributes::SIZE]) });
        let done = compound(&mut old, 0, &ops);
        let (status, body) = done.after(&[PUTFH]);
        assert_eq!(status, NFS_OK);
        get::<u64>(get::<Fattr4<'_>>(body).attr_vals.0)
    });
    assert_eq!(version_0, 600);
    let listed = with_cb_getattr(&mut one, &file, &[change + 3, 700], || {
        let attr_request = Bitmap4::of(&[attributes::SIZE]);
        let all =
            Readdir4Args { cookie: 0, cookieverf: [0; 8], dircount: 1000, maxcount: 4096, attr_request };
        other.on(&root, Operation::Readdir, &all).1
    });
    assert!(listed.windows(8).any(|bytes| bytes == 700_u64.to_be_bytes()), "{listed:x?}");
    // NFSv3's optional attributes are left out for this file.
    let args = Lookup3Args { what: common::what(&root, b"f") };
    match old.nfs(Procedure::Lookup, &args).get::<Lookup3Res<'_>>() {
        Outcome::Ok(found) => assert!(found.obj_attributes.is_none() && found.dir_attributes.is_some()),
        Outcome::Fail(status, _) => panic!("{status:?}"),
    }
    // A holder that doesn't reply with attributes must return the delegation.
    let refused = with_cb_getattr(&mut one, &file, &[], || {
        let results = old.nfs(Procedure::Getattr, &Getattr3Args { object: Opaque(&file) });
        results.get::<Getattr3Res>().into_result().err().map(|(status, ())| status)
    });
    assert_eq!(refused, Some(Nfsstat3::Jukebox));
    expect_recall(&mut one, delegation.unwrap(), &file);
    assert_eq!(delegreturn(&mut one, delegation.unwrap(), &file), NFS_OK);
    assert_eq!(old.getattr(&file).size, 4);
}

#[test]
fn a_delegation_that_is_not_returned_is_revoked() {
    let scratch = Scratch::new();
    let server = Server::start(Config { lease: LEASE, ..scratch.config(ANYBODY) }).unwrap();
    std::fs::write(scratch.at("f"), "data").unwrap();
    let (mut one, root) = session(&server, &scratch, b"one");
    let (mut other, _) = session(&server, &scratch, b"other");
    let (delegation, file) = open_f(&mut one, &root, READ_DELEG).unwrap();
    let delegation = delegation.unwrap();
    assert_eq!(open_f(&mut other, &root, SHARE_ACCESS_WRITE).err(), Some(DELAY));
    expect_recall(&mut one, delegation, &file);
    // The holder stays alive, but doesn't return the delegation.
    wait_for("the other's open", || {
        flags(&mut one);
        open_f(&mut other, &root, SHARE_ACCESS_WRITE).is_ok()
    });
    assert_eq!(flags(&mut one), SEQ4_RECALLABLE_STATE_REVOKED);
    let ids = TestStateid4Args { stateids: Array(vec![delegation]) };
    let ops = one.sequence(false).op(Operation::TestStateid, &ids);
    let done = one.run(&ops);
    let (_, body) = done.after(&[SEQUENCE]);
    assert_eq!(body, [1, Nfsstat4::DelegRevoked as u32].map(u32::to_be_bytes).concat());
    let ops = one.sequence(false).op(Operation::FreeStateid, &Stateid4Args { stateid: delegation });
    assert_eq!(one.run(&ops).status, NFS_OK);
    assert_eq!(flags(&mut one), 0);
}

#[test]
fn a_client_that_ignores_recalls_delays_a_local_process_once() {
    let scratch = Scratch::new();
    let server = Server::start(Config { lease: LEASE, ..scratch.config(ANYBODY) }).unwrap();
    ["f", "g", "h"].iter().for_each(|name| std::fs::write(scratch.at(name), "data").unwrap());
    let (mut one, root) = session(&server, &scratch, b"one");
    let delegated = |session: &mut Session, name: &[u8]| {
        let opened = session.open_with(&root, OpenClaim4::Null(Opaque(name)), false, READ_DELEG, 0);
        opened.map(|(_, delegation, file)| (delegation, file)).unwrap()
    };
    let (delegation, file) = delegated(&mut one, b"f");
    let (other, other_file) = delegated(&mut one, b"g");
    let path = scratch.at("f");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| std::fs::File::options().append(true).open(&path).map(drop));
        // It acknowledges the recall, and doesn't return the delegation.
        expect_recall(&mut one, delegation.unwrap(), &file);
        // Its other delegation is recalled now, so that it isn't revoked as well.
        expect_recall(&mut one, other.unwrap(), &other_file);
        assert_eq!(delegreturn(&mut one, other.unwrap(), &other_file), NFS_OK);
        writer.join().unwrap().unwrap();
    });
    // Neither that client nor another one of the same host gets a delegation of any file.
    let mut again = session(&server, &scratch, b"again").0;
    for session in [&mut one, &mut again] {
        assert!([b"f", b"g", b"h"].iter().all(|name| delegated(session, *name).0.is_none()));
    }
    for name in ["f", "g", "h"] {
        let mut at_once = std::fs::File::options();
        at_once.append(true).custom_flags(libc_nonblock()).open(scratch.at(name)).unwrap();
    }
}

#[test]
fn a_grant_and_a_delegation_exclude_each_other() {
    let scratch = Scratch::new();
    let (server, (mut one, root), _) = two(&scratch);
    let mut client = Client::new(&server);
    let entry = Target::Entry { directory: &root, name: b"f" };
    run(async {
        let lane = lane(&scratch, &mut client).await;
        let granted = async |target, access| open(&lane, target, access, &user(0, 0, &[])).await;
        let writer = granted(entry, Access::ReadWrite).await.unwrap();
        let (none, file) = open_f(&mut one, &root, READ_DELEG).unwrap();
        assert_eq!(none, None, "a local process writes");
        drop(writer);
        lane.flush();
        wait_for("the release", || server.status().grants.open == 0);
        let delegation = open_f(&mut one, &root, READ_DELEG).unwrap().0.expect("nobody has it open");
        // By NFSv4's handle as well as by name.
        for target in [entry, Target::Handle(&file)] {
            drop(granted(target, Access::Read).await.expect("readers share"));
            assert_eq!(granted(target, Access::Write).await.err(), Some(OpenStatus::TryWire));
        }
        expect_recall(&mut one, delegation, &file);
        assert_eq!(delegreturn(&mut one, delegation, &file), NFS_OK);
        drop(granted(Target::Handle(&file), Access::Write).await.unwrap());
    });
}

#[test]
fn a_silent_clients_delegation_ends_for_a_grant() {
    let scratch = Scratch::new();
    let server = Server::start(Config { lease: LEASE, ..scratch.config(ANYBODY) }).unwrap();
    std::fs::write(scratch.at("f"), "data").unwrap();
    let (mut one, root) = session(&server, &scratch, b"one");
    let (delegation, file) = open_f(&mut one, &root, WRITE_DELEG).unwrap();
    let mut client = Client::new(&server);
    run(async {
        let lane = lane(&scratch, &mut client).await;
        let target = Target::Handle(&file);
        while let Err(status) = open(&lane, target, Access::Read, &user(0, 0, &[])).await {
            assert_eq!(status, OpenStatus::TryWire);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    expect_recall(&mut one, delegation.unwrap(), &file);
    // The delegation is gone: it ended with its client, or was revoked before that. A revocation may be
    // acknowledged, once.
    delegreturn(&mut one, delegation.unwrap(), &file);
    assert_ne!(delegreturn(&mut one, delegation.unwrap(), &file), NFS_OK);
}

#[test]
fn a_client_without_a_back_channel_is_informed_and_binds_another_connection() {
    let scratch = Scratch::new();
    let (server, (mut one, root), mut other) = two(&scratch);
    let (delegation, file) = open_f(&mut one, &root, READ_DELEG).unwrap();
    one.wire = Client::new(&server);
    wait_for("the old connection's end", || flags(&mut one) == SEQ4_CB_PATH_DOWN);
    assert_eq!(open_f(&mut other, &root, SHARE_ACCESS_WRITE).err(), Some(DELAY), "no recall is possible now");
    let args = BindConnToSession4Args {
        sessionid: one.id,
        dir: ChannelDirFromClient4::BackOrBoth,
        use_conn_in_rdma_mode: false,
    };
    let done = compound(&mut one.wire, 2, &Ops::new().op(Operation::BindConnToSession, &args));
    let (status, body) = done.after(&[]);
    assert_eq!((status, get::<BindConnToSession4ResOk>(body).dir), (NFS_OK, 3));
    expect_recall(&mut one, delegation.unwrap(), &file);
    assert_eq!(flags(&mut one), 0);
    assert_eq!(delegreturn(&mut one, delegation.unwrap(), &file), NFS_OK);
    open_f(&mut other, &root, SHARE_ACCESS_WRITE).unwrap();
}

#[test]
fn want_delegation_grants_without_an_open() {
    let scratch = Scratch::new();
    let (_server, (mut one, root), mut other) = two(&scratch);
    let file = one.lookup(&root, b"f").unwrap();
    let want = |session: &mut Session, want| {
        let args = WantDelegation4Args { want, claim: DelegClaim4::Fh };
        let (status, body) = session.on(&file, Operation::WantDelegation, &args);
        if status != NFS_OK {
            return Err(status);
        }
        Ok(match get::<OpenDelegation4<'_>>(&body) {
            OpenDelegation4::Read(given) => (1, given.stateid),
            OpenDelegation4::Write(given) => (2, given.stateid),
            OpenDelegation4::NoneExt(OpenNoneDelegation4::Contention(false)) => (3, Stateid4::default()),
            OpenDelegation4::NoneExt(OpenNoneDelegation4::Other(why)) => (100 + why, Stateid4::default()),
            given => panic!("{given:?}"),
        })
    };
    for none in [SHARE_ACCESS_WANT_NO_PREFERENCE, SHARE_ACCESS_WANT_NO_DELEG] {
        assert_eq!(want(&mut one, none), Err(Nfsstat4::Inval as u32));
    }
    let kind = |given: Result<(u32, Stateid4), u32>| given.map(|(kind, _)| kind);
    assert_eq!(kind(want(&mut one, SHARE_ACCESS_WANT_CANCEL)), Ok(100 + WND4_CANCELLED));
    let (given, delegation) = want(&mut one, SHARE_ACCESS_WANT_ANY_DELEG).unwrap();
    assert_eq!(given, 2, "nobody has it open");
    assert_eq!(kind(want(&mut one, SHARE_ACCESS_WANT_READ_DELEG)), Ok(100 + WND4_NOT_SUPP_UPGRADE));
    assert_eq!(kind(want(&mut other, SHARE_ACCESS_WANT_READ_DELEG)), Ok(3));
    // The client's own opens don't recall it, others' do.
    one.open(&root, OpenClaim4::Null(Opaque(b"f")), false).unwrap();
    assert_eq!(open_f(&mut other, &root, SHARE_ACCESS_READ).err(), Some(DELAY));
    expect_recall(&mut one, delegation, &file);
    assert_eq!(delegreturn(&mut one, delegation, &file), NFS_OK);
    open_f(&mut other, &root, SHARE_ACCESS_READ).unwrap();
    let args = WantDelegation4Args { want: SHARE_ACCESS_WANT_READ_DELEG, claim: DelegClaim4::Fh };
    let (status, _) = one.on(&root, Operation::WantDelegation, &args);
    assert_eq!(status, Nfsstat4::WrongType as u32, "directory delegations aren't supported");
}
