//! Errors of clients and sessions.

use super::*;

/// Clients and sessions.
pub fn sessions(b: &mut Bench, clientid: u64) {
    let exchange = |flags| ExchangeId4Args {
        clientowner: ClientOwner4 { verifier: *b"verifier", ownerid: Opaque(b"three") },
        flags,
        state_protect: StateProtect4A::None,
        client_impl_id: Array(vec![]),
    };
    b.alone(Op::ExchangeId, &exchange(0x0800_0000), S::Inval);
    let update = exchange(EXCHGID_UPD_CONFIRMED_REC_A);
    b.alone(Op::ExchangeId, &update, S::Noent);
    let one = |verifier| ClientOwner4 { verifier, ownerid: Opaque(b"one") };
    let again = ExchangeId4Args { clientowner: one(*b"another!"), ..update.clone() };
    b.alone(Op::ExchangeId, &again, S::NotSame);
    b.as_user(5, |b| {
        b.alone(
            Op::ExchangeId,
            &ExchangeId4Args { clientowner: one(*b"verifier"), ..update.clone() },
            S::Perm,
        );
        b.alone(
            Op::ExchangeId,
            &ExchangeId4Args { clientowner: one(*b"verifier"), ..exchange(0) },
            S::ClidInuse,
        );
    });
    let done = compound(&mut b.session.wire, 2, &Ops::new().op(Op::ExchangeId, &exchange(0)));
    let new = get::<ExchangeId4ResOk<'_>>(done.after(&[]).1).clientid;
    let create = CreateSession4Args {
        clientid: 12345,
        sequence: 1,
        flags: 0,
        fore_chan_attrs: common::v4::channel(),
        back_chan_attrs: common::v4::channel(),
        cb_program: 1,
        sec_parms: Array(vec![CallbackSecParms4::None]),
    };
    b.alone(Op::CreateSession, &create, S::StaleClientid);
    b.alone(
        Op::CreateSession,
        &CreateSession4Args { clientid, sequence: 77, ..create.clone() },
        S::SeqMisordered,
    );
    b.as_user(5, |b| {
        let theirs = CreateSession4Args { clientid: new, ..create.clone() };
        b.alone(Op::CreateSession, &theirs, S::ClidInuse);
    });
    let back_chan_attrs = ChannelAttrs4 { maxoperations: 1, ..common::v4::channel() };
    b.alone(Op::CreateSession, &CreateSession4Args { back_chan_attrs, ..create.clone() }, S::Toosmall);
    b.alone(Op::CreateSession, &CreateSession4Args { flags: 0x80, ..create.clone() }, S::Inval);
    b.alone(Op::DestroySession, &DestroySession4Args { sessionid: [9; 16] }, S::Badsession);
    b.alone(Op::DestroyClientid, &Clientid4Args { clientid: 12345 }, S::StaleClientid);
    b.alone(Op::DestroyClientid, &Clientid4Args { clientid }, S::ClientidBusy);
    let bind = BindConnToSession4Args {
        sessionid: [9; 16],
        dir: ChannelDirFromClient4::Fore,
        use_conn_in_rdma_mode: false,
    };
    b.alone(Op::BindConnToSession, &bind, S::Badsession);
    for op in
        [Op::ExchangeId, Op::CreateSession, Op::DestroySession, Op::DestroyClientid, Op::BindConnToSession]
    {
        let done = compound(&mut b.session.wire, 2, &Ops::new().op(op, &()).op(Op::Putrootfh, &()));
        b.table.note(op, S::NotOnlyOp, done.status);
        let done = compound(&mut b.session.wire, 2, &Ops::new().op(op, &()));
        b.table.note(op, S::Badxdr, done.status);
    }
    let sequence = |sessionid, slotid, sequenceid| Sequence4Args {
        sessionid,
        sequenceid,
        slotid,
        highest_slotid: slotid,
        cachethis: false,
    };
    let (id, next) = (b.session.id, b.session.sequence + 1);
    b.alone(Op::Sequence, &sequence([9; 16], 0, 1), S::Badsession);
    b.alone(Op::Sequence, &sequence(id, 500, 1), S::Badslot);
    b.alone(Op::Sequence, &sequence(id, 0, next + 7), S::SeqMisordered);
    b.alone(Op::Sequence, &(), S::Badxdr);
    // Another session of the client, with two slots and room for small requests.
    let fore_chan_attrs = ChannelAttrs4 { maxrequests: 2, maxrequestsize: 512, ..common::v4::channel() };
    let small = CreateSession4Args { clientid, sequence: 2, fore_chan_attrs, ..create };
    let done = compound(&mut b.session.wire, 2, &Ops::new().op(Op::CreateSession, &small));
    let small = get::<CreateSession4ResOk>(done.after(&[]).1).sessionid;
    b.alone(Op::Sequence, &Sequence4Args { highest_slotid: 0, ..sequence(small, 1, 1) }, S::BadHighSlot);
    let mut with = |sequenceid, op, args: &[u8], status| {
        let mut ops = Ops::new().op(Op::Sequence, &sequence(small, 0, sequenceid));
        ops = ops.op(Op::Putrootfh, &());
        ops.count += 1;
        ops.encoder.u32(Op::number(op));
        ops.encoder.raw(args);
        let found = compound(&mut b.session.wire, 2, &ops).status;
        if status != S::Ok {
            b.table.note(Op::Sequence, status, found);
        }
    };
    with(1, Op::Lookup, &encoded(&named(&[b'x'; 600])), S::ReqTooBig);
    with(1, Op::Getfh, &[], S::Ok);
    with(1, Op::Getfh, &[], S::RetryUncachedRep);
    with(1, Op::Lookup, &encoded(&named(b"x")), S::SeqFalseRetry);
    let many = (0..20)
        .fold(Ops::new().op(Op::Sequence, &sequence(id, 0, next)), |ops, _| ops.op(Op::Putrootfh, &()));
    let found = compound(&mut b.session.wire, 2, &many).status;
    b.table.note(Op::Sequence, S::TooManyOps, found);
    b.fails(&[(Op::Putrootfh, vec![])], Op::Sequence, &encoded(&sequence(id, 0, next)), S::SequencePos);
    let complete = ReclaimComplete4Args { one_fs: false };
    b.fails(&[], Op::ReclaimComplete, &encoded(&complete), S::CompleteAlready);
}
