//! Clients and sessions: EXCHANGE_ID, CREATE_SESSION, SEQUENCE and their like (RFC 8881 sections 18.33 to
//! 18.37, 18.46, 18.50, 18.51).

use proto::nfs4::{
    CREATE_SESSION_CONN_BACK_CHAN, CREATE_SESSION_CONN_RDMA, CREATE_SESSION_PERSIST, ChannelAttrs4,
    Clientid4Args, CreateSession4Args, CreateSession4ResOk, DestroySession4Args, EXCHGID_CONFIRMED_R,
    EXCHGID_MASK_A, EXCHGID_SUPP_FENCE_OPS, EXCHGID_UPD_CONFIRMED_REC_A, EXCHGID_USE_NON_PNFS,
    ExchangeId4Args, ExchangeId4ResOk, MinorVersion, NfsImplId4, Nfsstat4, Nfstime4, ReclaimComplete4Args,
    SEQ4_BACKCHANNEL_FAULT, SEQ4_CB_PATH_DOWN, SEQ4_RECALLABLE_STATE_REVOKED, SEQ4_RESTART_RECLAIM_NEEDED,
    Sequence4Args, Sequence4ResOk, ServerOwner4, StateProtect4A, StateProtect4R,
};
use state::{
    ChannelAttrs, ClientId, CreateSession, ExchangeId, Sequence, SequenceResult, SessionId, SlotRequest,
};
use xdr::{Array, Opaque};

use super::back_channel;
use crate::nfs4::callbacks::MAX_BACK_SLOTS;
use crate::nfs4::compound::{Compound, Step};
use crate::nfs4::{Result, status};

/// The smallest request and reply that a callback fits in, and its operations: CB_SEQUENCE and one more.
const BACK_SMALLEST: u32 = 256;
const BACK_OPERATIONS: u32 = 2;

pub(in crate::programs::nfs4) fn exchange_id(c: &mut Compound<'_>, args: ExchangeId4Args<'_>) -> Result<()> {
    let mut known = EXCHGID_MASK_A;
    if c.minor >= MinorVersion::V2 {
        known |= EXCHGID_SUPP_FENCE_OPS;
    }
    if args.flags & !known != 0 {
        return Err(Nfsstat4::Inval);
    }
    match args.state_protect {
        StateProtect4A::None => {}
        // Needs RPCSEC_GSS.
        StateProtect4A::MachCred(_) => return Err(Nfsstat4::Inval),
        StateProtect4A::Ssv(_) => return Err(Nfsstat4::EncrAlgUnsupp),
    }
    let principal = c.principal();
    let asked = ExchangeId {
        owner: args.clientowner.ownerid.0,
        peer: c.cx.peer.share(),
        verifier: args.clientowner.verifier,
        principal: &principal,
        update: args.flags & EXCHGID_UPD_CONFIRMED_REC_A != 0,
    };
    let states = &c.service.state;
    let exchanged = states.run(|engine, now| engine.exchange_id(now, &asked)).map_err(status::of_state)?;
    let confirmed = if exchanged.confirmed { EXCHGID_CONFIRMED_R } else { 0 };
    c.reply.encoder().put(&ExchangeId4ResOk {
        clientid: exchanged.client.0,
        sequenceid: exchanged.sequence,
        flags: EXCHGID_USE_NON_PNFS | confirmed,
        state_protect: StateProtect4R::None,
        server_owner: ServerOwner4 { minor_id: 0, major_id: Opaque(&states.identity) },
        server_scope: Opaque(&states.identity),
        server_impl_id: Array(vec![NfsImplId4 {
            domain: Opaque(b"samehost.org"),
            name: Opaque(concat!("samehost ", env!("CARGO_PKG_VERSION")).as_bytes()),
            date: Nfstime4::default(),
        }]),
    });
    Ok(())
}

pub(in crate::programs::nfs4) fn create_session(
    c: &mut Compound<'_>,
    args: CreateSession4Args<'_>,
) -> Result<()> {
    let known = CREATE_SESSION_PERSIST | CREATE_SESSION_CONN_BACK_CHAN | CREATE_SESSION_CONN_RDMA;
    if args.flags & !known != 0 {
        return Err(Nfsstat4::Inval);
    }
    let back = &args.back_chan_attrs;
    if back.maxrequestsize < BACK_SMALLEST
        || back.maxresponsesize < BACK_SMALLEST
        || back.maxoperations < BACK_OPERATIONS
    {
        return Err(Nfsstat4::Toosmall);
    }
    let principal = c.principal();
    let fore = &args.fore_chan_attrs;
    let asked = CreateSession {
        client: ClientId(args.clientid),
        sequence: args.sequence,
        principal: &principal,
        channel: ChannelAttrs {
            request: fore.maxrequestsize,
            response: fore.maxresponsesize,
            cached: fore.maxresponsesize_cached,
            operations: fore.maxoperations,
            slots: fore.maxrequests,
        },
    };
    let created = c.service.state.run(|engine, now| engine.create_session(now, &asked));
    let created = created.map_err(status::of_state)?;
    let wants_calls = args.flags & CREATE_SESSION_CONN_BACK_CHAN != 0;
    let calls = back_channel::created(c, &args, created.session, wants_calls)?;
    c.reply.encoder().put(&CreateSession4ResOk {
        sessionid: created.session.0,
        sequence: args.sequence,
        // Nothing outlives the server.
        flags: if calls { CREATE_SESSION_CONN_BACK_CHAN } else { 0 },
        fore_chan_attrs: ChannelAttrs4 {
            headerpadsize: 0,
            maxrequestsize: created.channel.request,
            maxresponsesize: created.channel.response,
            maxresponsesize_cached: created.channel.cached,
            maxoperations: created.channel.operations,
            maxrequests: created.channel.slots,
            rdma_ird: Array(Vec::new()),
        },
        back_chan_attrs: ChannelAttrs4 {
            rdma_ird: Array(Vec::new()),
            maxrequests: args.back_chan_attrs.maxrequests.min(MAX_BACK_SLOTS),
            ..args.back_chan_attrs
        },
    });
    Ok(())
}

/// SEQUENCE; it may turn out that the whole request is a retry.
pub(in crate::programs::nfs4) fn sequence(c: &mut Compound<'_>, args: &Sequence4Args) -> Step {
    let asked = Sequence {
        session: SessionId(args.sessionid),
        sequence: args.sequenceid,
        slot: args.slotid,
        highest_slot: args.highest_slotid,
        fingerprint: c.fingerprint,
        length: c.length,
        operations: c.operations,
    };
    let ticket = match c.service.state.run(|engine, now| engine.sequence(now, &asked)) {
        Ok(SequenceResult::New(ticket)) => ticket,
        Ok(SequenceResult::Replay(reply)) => return Step::Again(reply),
        Err(error) => return Step::Done(Err(status::of_state(error))),
    };
    c.ticket = Some(ticket);
    c.cache_this = args.cachethis;
    let status_flags = status_flags(c, &ticket);
    c.reply.encoder().put(&Sequence4ResOk {
        sessionid: args.sessionid,
        sequenceid: args.sequenceid,
        slotid: args.slotid,
        highest_slotid: ticket.highest_slot,
        target_highest_slotid: ticket.highest_slot,
        status_flags,
    });
    Step::Done(Ok(()))
}

/// What a client should know.
fn status_flags(c: &Compound<'_>, ticket: &SlotRequest) -> u32 {
    let flag = |is: bool, flag| if is { flag } else { 0 };
    let back_channel = c.service.state.callbacks.path_status(ticket.client, Some(ticket.session));
    flag(ticket.reclaim_needed, SEQ4_RESTART_RECLAIM_NEEDED)
        | flag(ticket.revoked, SEQ4_RECALLABLE_STATE_REVOKED)
        | flag(back_channel.path_down, SEQ4_CB_PATH_DOWN)
        | flag(back_channel.fault, SEQ4_BACKCHANNEL_FAULT)
}

pub(in crate::programs::nfs4) fn destroy_session(
    c: &mut Compound<'_>,
    args: DestroySession4Args,
) -> Result<()> {
    let own = c.ticket.as_ref().filter(|ticket| ticket.session.0 == args.sessionid).map(|ticket| ticket.slot);
    // Nothing can follow in a session that has gone.
    if own.is_some() && c.index != c.operations {
        return Err(Nfsstat4::NotOnlyOp);
    }
    let session = SessionId(args.sessionid);
    let states = &c.service.state;
    let principal = c.principal();
    let destroyed = states.run(|engine, _| {
        let client = engine.session_of(session, &principal)?;
        engine.destroy_session(session, &principal, own).map(|()| client)
    });
    let client = destroyed.map_err(status::of_state)?;
    states.callbacks.paths.with(|paths| paths.remove_session(client, session));
    Ok(())
}

pub(in crate::programs::nfs4) fn destroy_clientid(c: &mut Compound<'_>, args: Clientid4Args) -> Result<()> {
    let by = c.requester(ClientId(args.clientid));
    c.service.state.run(|engine, _| engine.destroy_clientid(&by)).map_err(status::of_state)
}

pub(in crate::programs::nfs4) fn reclaim_complete(
    c: &mut Compound<'_>,
    args: ReclaimComplete4Args,
) -> Result<()> {
    let by = c.requester(c.session_client()?);
    if args.one_fs {
        // Filesystems don't come and go between servers here.
        c.object()?;
        return Ok(());
    }
    c.service.state.run(|engine, _| engine.reclaim_complete(&by)).map_err(status::of_state)
}
