//! COPY of a long file: asynchronous, with CB_OFFLOAD at its end and OFFLOAD_STATUS meanwhile; synchronous
//! for a client without a back channel.

mod common;

use std::io::Write as _;

use common::Scratch;
use common::v4::{ANYBODY, NFS_OK, Session, compound, get};
use proto::nfs4::*;
use xdr::{Array, Decoder, Encoder, Opaque};

const ANY: Stateid4 = Stateid4 { seqid: 0, other: [0; 12] };
const LENGTH: usize = 8 << 20;

fn copy(session: &mut Session, from: &[u8], to: &[u8]) -> Copy4ResOk {
    let args = Copy4Args {
        src_stateid: ANY,
        dst_stateid: ANY,
        src_offset: 0,
        dst_offset: 0,
        count: 0,
        consecutive: false,
        synchronous: false,
        source_server: Array(vec![]),
    };
    let ops = session
        .sequence(false)
        .op(Operation::Putfh, &Putfh4Args { object: Opaque(from) })
        .op(Operation::Savefh, &())
        .op(Operation::Putfh, &Putfh4Args { object: Opaque(to) })
        .op(Operation::Copy, &args);
    let done = session.run(&ops);
    let before = [common::v4::SEQUENCE, common::v4::PUTFH, (Operation::Savefh, 0), common::v4::PUTFH];
    let (status, body) = done.after(&before);
    assert_eq!(status, NFS_OK);
    get(body)
}

/// Receives a callback of the session, which must be CB_SEQUENCE and one operation, and answers it with
/// success; the operation and its arguments.
fn answer_callback(session: &mut Session) -> (u32, Vec<u8>) {
    let record = session.wire.receive().unwrap();
    let mut from = Decoder::new(&record);
    let xid = from.u32().unwrap();
    assert_eq!(from.u32().unwrap(), 0, "a call");
    // RPC's version, program, version, procedure.
    for _ in 0..4 {
        from.u32().unwrap();
    }
    // Credential and verifier.
    for _ in 0..2 {
        from.u32().unwrap();
        from.opaque(400).unwrap();
    }
    let tag = from.opaque(100).unwrap();
    let (_minor, _ident, operations) = (from.u32().unwrap(), from.u32().unwrap(), from.u32().unwrap());
    assert_eq!(operations, 2);
    let number = from.u32().unwrap();
    let sequence: CbSequence4Args = from.get().unwrap();
    assert_eq!(sequence.sessionid, session.id);
    let operation = from.u32().unwrap();
    let args = from.rest().to_vec();
    let mut to = Encoder::new();
    to.u32(0);
    // The reply is accepted, without a verifier, and a success.
    [xid, 1, 0, 0, 0, 0].into_iter().for_each(|word| to.u32(word));
    to.u32(NFS_OK);
    to.opaque(tag);
    to.u32(2);
    to.u32(number);
    to.u32(NFS_OK);
    to.put(&CbSequence4ResOk {
        sessionid: sequence.sessionid,
        sequenceid: sequence.sequenceid,
        slotid: sequence.slotid,
        highest_slotid: sequence.highest_slotid,
        target_highest_slotid: sequence.highest_slotid,
    });
    to.u32(operation);
    to.u32(NFS_OK);
    let mark = rpc::record::mark(to.position() - 4).unwrap();
    to.patch_u32(0, mark);
    session.wire.stream.write_all(&to.into_vec()).unwrap();
    (operation, args)
}

#[test]
fn a_long_copy_is_asynchronous_and_its_end_is_reported() {
    let scratch = Scratch::new();
    let server = scratch.serve(ANYBODY);
    let mut session = Session::new(&server, 2, b"one");
    session.reclaim_complete();
    let root = session.walk(&scratch.export());
    let bytes: Vec<u8> = (0..LENGTH).map(|at| (at / 4096) as u8).collect();
    std::fs::write(scratch.at("from"), &bytes).unwrap();
    std::fs::write(scratch.at("to"), "").unwrap();
    let from = session.lookup(&root, b"from").unwrap();
    let to = session.lookup(&root, b"to").unwrap();
    // There is no back channel.
    let waited = copy(&mut session, &from, &to);
    assert!(waited.synchronous && waited.response.callback_id.0.is_empty());
    assert_eq!(waited.response.count, LENGTH as u64);
    assert!(std::fs::read(scratch.at("to")).unwrap() == bytes);
    std::fs::write(scratch.at("to"), "").unwrap();
    let bind = BindConnToSession4Args {
        sessionid: session.id,
        dir: ChannelDirFromClient4::ForeOrBoth,
        use_conn_in_rdma_mode: false,
    };
    let bind = common::v4::Ops::new().op(Operation::BindConnToSession, &bind);
    assert_eq!(compound(&mut session.wire, 2, &bind).status, NFS_OK);
    let begun = copy(&mut session, &from, &to);
    assert!(!begun.synchronous);
    let id = begun.response.callback_id.0[0];
    let (operation, args) = answer_callback(&mut session);
    assert_eq!(operation, CB_OFFLOAD);
    let reported: CbOffload4Args<'_> = get(&args);
    assert_eq!((reported.fh.0, reported.stateid), (&to[..], id));
    assert!(
        matches!(reported.info, OffloadInfo4::Done(WriteResponse4 { count, .. }) if count == LENGTH as u64)
    );
    assert!(std::fs::read(scratch.at("to")).unwrap() == bytes);
    // After the client's answer to CB_OFFLOAD the server forgets the copy.
    common::wait_for("the copy to be forgotten", || {
        let queried = session.on(&to, Operation::OffloadStatus, &Stateid4Args { stateid: id });
        queried.0 == Nfsstat4::BadStateid as u32
    });
}
