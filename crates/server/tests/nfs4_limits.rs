//! Limits of an NFSv4 client: operations of a COMPOUND, sessions, slots.

mod common;

use common::Scratch;
use common::v4::{ANYBODY, NFS_OK, Ops, Session, channel, compound, get};
use proto::nfs4::*;
use xdr::Array;

/// The maximum of operations in a COMPOUND without a session.
const OPERATIONS: usize = 128;
/// The maximum of sessions of a client.
const SESSIONS: u32 = 64;

fn rootfh(ops: Ops, count: usize) -> Ops {
    (0..count).fold(ops, |ops, _| ops.op(Operation::Putrootfh, &()))
}

#[test]
fn the_operations_of_a_compound_are_bounded() {
    let scratch = Scratch::new();
    let server = scratch.serve(ANYBODY);
    let mut session = Session::new(&server, 1, b"one");
    assert_eq!(compound(&mut session.wire, 0, &rootfh(Ops::new(), OPERATIONS)).status, NFS_OK);
    let done = compound(&mut session.wire, 0, &rootfh(Ops::new(), OPERATIONS + 1));
    assert_eq!(done.status, Nfsstat4::Resource as u32);
    // The session's bound counts SEQUENCE, too.
    let max = channel().maxoperations as usize;
    let ops = rootfh(session.sequence(false), max - 1);
    assert_eq!(session.run(&ops).status, NFS_OK);
    let ops = rootfh(session.sequence(false), max);
    assert_eq!(session.run(&ops).status, Nfsstat4::TooManyOps as u32);
}

#[test]
fn sessions_and_their_slots_are_bounded() {
    let scratch = Scratch::new();
    let server = scratch.serve(ANYBODY);
    let mut session = Session::new(&server, 1, b"one");
    let huge = ChannelAttrs4 {
        maxrequestsize: u32::MAX,
        maxresponsesize: u32::MAX,
        maxresponsesize_cached: u32::MAX,
        maxoperations: u32::MAX,
        maxrequests: u32::MAX,
        ..channel()
    };
    for number in 2..=SESSIONS + 1 {
        let args = CreateSession4Args {
            clientid: session.clientid,
            sequence: number,
            flags: 0,
            fore_chan_attrs: huge.clone(),
            back_chan_attrs: channel(),
            cb_program: 0x4000_0000,
            sec_parms: Array(vec![CallbackSecParms4::None]),
        };
        let done = compound(&mut session.wire, 1, &Ops::new().op(Operation::CreateSession, &args));
        if number > SESSIONS {
            assert_eq!(done.status, Nfsstat4::Delay as u32);
            continue;
        }
        let created: CreateSession4ResOk = get(done.after(&[]).1);
        let given = created.fore_chan_attrs;
        assert!(
            (128..=256).contains(&given.maxrequests),
            "{} slots while little is taken",
            given.maxrequests
        );
        assert_eq!(given.maxoperations as usize, OPERATIONS);
        assert!(given.maxrequestsize <= 2 << 20 && given.maxresponsesize <= 2 << 20);
        assert!(given.maxresponsesize_cached <= 16 << 10, "256 slots keep no more than 4 MiB");
    }
}
