//! Callback paths of delegations: a client of 4.0 has a callback address, one of 4.1 the slots of a session's
//! back channel, and both are informed when callbacks fail.

mod common;

use common::called::{answer, call, refuse};
use common::v4::{ANYBODY, NFS_OK, Ops, PUTFH, Session, compound, get};
use common::v40::Old;
use common::{Client, Scratch, encoded, wait_for};
use proto::nfs4::*;
use xdr::Opaque;

const DELAY: u32 = Nfsstat4::Delay as u32;

/// The attributes in CB_GETATTR.
const WRITTEN: Bitmap4 = Bitmap4::of(&[attributes::CHANGE, attributes::SIZE]);

/// A file's size, by 4.0.
fn size(wire: &mut Client, file: &[u8]) -> u64 {
    let ops = Ops::new()
        .op(Operation::Putfh, &Putfh4Args { object: Opaque(file) })
        .op(Operation::Getattr, &Getattr4Args { attr_request: Bitmap4::of(&[attributes::SIZE]) });
    let done = compound(wire, 0, &ops);
    let (status, body) = done.after(&[PUTFH]);
    assert_eq!(status, NFS_OK);
    get::<u64>(get::<Fattr4<'_>>(body).attr_vals.0)
}

fn renew(old: &mut Old) -> u32 {
    let ops = Ops::new().op(Operation::Renew, &Clientid4Args { clientid: old.clientid });
    compound(&mut old.wire, 0, &ops).status
}

/// OPEN of `f`: its status.
fn open_f(session: &mut Session, root: &[u8]) -> u32 {
    session.open(root, OpenClaim4::Null(Opaque(b"f")), false).err().unwrap_or(NFS_OK)
}

fn delegreturn(old: &mut Old, delegation: Stateid4, file: &[u8]) {
    let ops = Ops::new()
        .op(Operation::Putfh, &Putfh4Args { object: Opaque(file) })
        .op(Operation::Delegreturn, &Stateid4Args { stateid: delegation });
    assert_eq!(compound(&mut old.wire, 0, &ops).status, NFS_OK);
}

#[test]
fn a_holder_of_version_0_gets_no_cb_getattr_for_requests_from_its_own_address() {
    let scratch = Scratch::new();
    let server = scratch.serve(ANYBODY);
    std::fs::write(scratch.at("f"), "data").unwrap();
    let (mut old, mut callee) = Old::new(&server, b"old");
    assert!(callee.answer(&[]).is_none(), "CB_NULL");
    let root = old.walk(&scratch.export());
    let (delegation, file) = old.open_delegated(&root, b"f");
    // The client may be the holder itself, on this connection or another, waiting and unable to reply to a
    // callback. So it gets the file's own size.
    assert_eq!(size(&mut old.wire, &file), 4);
    assert_eq!(size(&mut Client::new(&server), &file), 4);
    // Other clients get the holder's size; a client of NFSv3 can't be the holder, at any address.
    let mut expect_written = |written: u64, access: &(dyn Fn() -> u64 + Sync)| {
        std::thread::scope(|scope| {
            let accessing = scope.spawn(access);
            let values = [0, written].map(u64::to_be_bytes).concat();
            let obj_attributes = Fattr4 { attrmask: WRITTEN, attr_vals: Opaque(&values) };
            let called = callee.answer(&encoded(&CbGetattr4ResOk { obj_attributes })).expect("a callback");
            let args: CbGetattr4Args<'_> = get(&called.args);
            assert_eq!((called.operation, args.fh.0), (CB_GETATTR, &file[..]));
            assert_eq!(accessing.join().unwrap(), written);
        });
    };
    expect_written(500, &|| Client::new(&server).getattr(&file).size);
    expect_written(600, &|| size(&mut Client::from(&server, [127, 0, 0, 2].into(), 0), &file));
    delegreturn(&mut old, delegation.unwrap(), &file);
    assert_eq!(size(&mut Client::from(&server, [127, 0, 0, 2].into(), 0), &file), 4);
}

#[test]
fn a_client_of_version_0_without_a_callback_path_learns_it_from_renew_and_may_move() {
    let scratch = Scratch::new();
    let server = scratch.serve(ANYBODY);
    std::fs::write(scratch.at("f"), "data").unwrap();
    let (mut old, mut callee) = Old::new(&server, b"old");
    callee.answer(&[]);
    let root = old.walk(&scratch.export());
    let (delegation, file) = old.open_delegated(&root, b"f");
    let mut other = Session::new(&server, 2, b"other");
    other.reclaim_complete();
    assert_eq!(renew(&mut old), NFS_OK);
    assert_eq!(open_f(&mut other, &root), DELAY);
    callee.refuse();
    wait_for("the server to notice", || renew(&mut old) == Nfsstat4::CbPathDown as u32);
    // The recall is sent again, to the new address.
    let mut callee = old.move_callee(b"old");
    while callee.answer(&[]).is_none_or(|called| called.operation != CB_RECALL) {}
    wait_for("the server to notice", || renew(&mut old) == NFS_OK);
    delegreturn(&mut old, delegation.unwrap(), &file);
    assert_eq!(open_f(&mut other, &root), NFS_OK);
}

#[test]
fn a_back_channel_with_misordered_slots_is_abandoned_and_its_client_informed() {
    let scratch = Scratch::new();
    let server = scratch.serve(ANYBODY);
    std::fs::write(scratch.at("f"), "data").unwrap();
    let [mut one, mut other] = [b"one", b"two"].map(|name| {
        let mut session = Session::callable(&server, 2, name);
        session.reclaim_complete();
        session
    });
    let flags = |session: &mut Session| {
        let ops = session.sequence(false);
        get::<Sequence4ResOk>(session.run(&ops).after(&[]).1).status_flags
    };
    let root = one.walk(&scratch.export());
    let access = SHARE_ACCESS_READ | SHARE_ACCESS_WANT_READ_DELEG;
    let opened = one.open_with(&root, OpenClaim4::Null(Opaque(b"f")), false, access, 0);
    let (_, delegation, file) = opened.unwrap();
    let delegation = delegation.unwrap();
    assert_eq!(open_f(&mut other, &root), DELAY);
    // The client rejects each sequence number of its slot.
    for _ in 0..4 {
        let recall = call(&mut one);
        refuse(&mut one, &recall, Nfsstat4::SeqMisordered);
    }
    let lost = SEQ4_BACKCHANNEL_FAULT | SEQ4_CB_PATH_DOWN;
    wait_for("the server to give up", || flags(&mut one) == lost);
    assert_eq!(flags(&mut other), 0);
    // Another session of the client with a working back channel.
    let mut again = one.second(&server, CREATE_SESSION_CONN_BACK_CHAN);
    assert_eq!(flags(&mut again), 0);
    let recall = call(&mut again);
    assert_eq!((recall.operation, get::<CbRecall4Args<'_>>(&recall.args).stateid), (CB_RECALL, delegation));
    answer(&mut again, &recall, &[]);
    let returned = again.on(&file, Operation::Delegreturn, &Stateid4Args { stateid: delegation }).0;
    assert_eq!((returned, open_f(&mut other, &root)), (NFS_OK, NFS_OK));
}
