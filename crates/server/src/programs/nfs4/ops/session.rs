//! Clients, sessions and their back channels: EXCHANGE_ID, CREATE_SESSION, SEQUENCE and their like (RFC 8881
//! sections 18.33 to 18.37, 18.46, 18.50, 18.51).

use proto::nfs4::{
    BackchannelCtl4Args, BindConnToSession4Args, BindConnToSession4ResOk, CREATE_SESSION_CONN_BACK_CHAN,
    CREATE_SESSION_CONN_RDMA, CREATE_SESSION_PERSIST, ChannelAttrs4, ChannelDirFromClient4, Clientid4Args,
    CreateSession4Args, CreateSession4ResOk, DestroySession4Args, EXCHGID_CONFIRMED_R, EXCHGID_MASK_A,
    EXCHGID_SUPP_FENCE_OPS, EXCHGID_UPD_CONFIRMED_REC_A, EXCHGID_USE_NON_PNFS, ExchangeId4Args,
    ExchangeId4ResOk, MinorVersion, NfsImplId4, Nfsstat4, Nfstime4, ReclaimComplete4Args,
    SEQ4_BACKCHANNEL_FAULT, SEQ4_CB_PATH_DOWN, SEQ4_RECALLABLE_STATE_REVOKED, SEQ4_RESTART_RECLAIM_NEEDED,
    Sequence4Args, Sequence4ResOk, ServerOwner4, StateProtect4A, StateProtect4R,
};
use state::{
    ChannelAttrs, ClientId, CreateSession, ExchangeId, Sequence, SequenceResult, SessionId, SlotRequest,
};
use xdr::{Array, Opaque};

use crate::programs::nfs4::back_channel::{self, credential};
use crate::programs::nfs4::context::Context;
use crate::programs::nfs4::status::{self, Result};
use crate::service::nfs4_state::callbacks::CallbackProgram;
use crate::service::nfs4_state::callbacks::MAX_BACK_SLOTS;

/// The smallest request and reply of a back channel, in bytes: a callback fits in.
const MIN_CALLBACK: u32 = 256;
/// The fewest operations of a callback: CB_SEQUENCE and one more.
const MIN_CALLBACK_OPERATIONS: u32 = 2;
/// `CDFS4_FORE`, `CDFS4_BACK`, `CDFS4_BOTH`.
const FORE: u32 = 1;
const BACK: u32 = 2;
const BOTH: u32 = 3;

pub(crate) fn exchange_id(c: &mut Context<'_>, args: ExchangeId4Args<'_>) -> Result<()> {
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
    let request = ExchangeId {
        owner: args.clientowner.ownerid.0,
        peer: c.cx.peer.share(),
        verifier: args.clientowner.verifier,
        principal: &principal,
        update: args.flags & EXCHGID_UPD_CONFIRMED_REC_A != 0,
    };
    let state = &c.service.state;
    let exchanged = state.run(|engine, now| engine.exchange_id(now, &request)).map_err(status::of_state)?;
    let confirmed = if exchanged.confirmed { EXCHGID_CONFIRMED_R } else { 0 };
    c.reply.encoder().put(&ExchangeId4ResOk {
        clientid: exchanged.client.0,
        sequenceid: exchanged.sequence,
        flags: EXCHGID_USE_NON_PNFS | confirmed,
        state_protect: StateProtect4R::None,
        server_owner: ServerOwner4 { minor_id: 0, major_id: Opaque(&state.identity) },
        server_scope: Opaque(&state.scope),
        server_impl_id: Array(vec![NfsImplId4 {
            domain: Opaque(b"samehost.org"),
            name: Opaque(concat!("samehost ", env!("CARGO_PKG_VERSION")).as_bytes()),
            date: Nfstime4::default(),
        }]),
    });
    Ok(())
}

pub(crate) fn create_session(c: &mut Context<'_>, args: CreateSession4Args<'_>) -> Result<()> {
    let known = CREATE_SESSION_PERSIST | CREATE_SESSION_CONN_BACK_CHAN | CREATE_SESSION_CONN_RDMA;
    if args.flags & !known != 0 {
        return Err(Nfsstat4::Inval);
    }
    let back = &args.back_chan_attrs;
    if back.maxrequestsize < MIN_CALLBACK
        || back.maxresponsesize < MIN_CALLBACK
        || back.maxoperations < MIN_CALLBACK_OPERATIONS
    {
        return Err(Nfsstat4::Toosmall);
    }
    let principal = c.principal();
    let fore = &args.fore_chan_attrs;
    let request = CreateSession {
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
    let created = c.service.state.run(|engine, now| engine.create_session(now, &request));
    let created = created.map_err(status::of_state)?;
    let binds = args.flags & CREATE_SESSION_CONN_BACK_CHAN != 0;
    let bound = back_channel::add_session(c, &args, created.session, binds)?;
    c.reply.encoder().put(&CreateSession4ResOk {
        sessionid: created.session.0,
        sequence: args.sequence,
        // No persistent sessions: they don't outlive the server.
        flags: if bound { CREATE_SESSION_CONN_BACK_CHAN } else { 0 },
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

/// SEQUENCE. The whole request may turn out to be a retransmission ([`Context::replay`]).
pub(crate) fn sequence(c: &mut Context<'_>, args: Sequence4Args) -> Result<()> {
    let request = Sequence {
        session: SessionId(args.sessionid),
        sequence: args.sequenceid,
        slot: args.slotid,
        highest_slot: args.highest_slotid,
        fingerprint: c.fingerprint.hash,
        length: c.fingerprint.length,
        operations: c.operations,
    };
    let sequenced = c.service.state.run(|engine, now| engine.sequence(now, &request));
    let ticket = match sequenced.map_err(status::of_state)? {
        SequenceResult::New(ticket) => ticket,
        SequenceResult::Replay(reply) => {
            c.replay = Some(reply);
            return Ok(());
        }
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
    Ok(())
}

/// `sr_status_flags`: what the client should react to.
fn status_flags(c: &Context<'_>, ticket: &SlotRequest) -> u32 {
    let flag = |is: bool, flag| if is { flag } else { 0 };
    let back_channel = c.service.state.callbacks.path_status(ticket.client, Some(ticket.session));
    flag(ticket.reclaim_needed, SEQ4_RESTART_RECLAIM_NEEDED)
        | flag(ticket.revoked, SEQ4_RECALLABLE_STATE_REVOKED)
        | flag(back_channel.path_down, SEQ4_CB_PATH_DOWN)
        | flag(back_channel.fault, SEQ4_BACKCHANNEL_FAULT)
}

pub(crate) fn destroy_session(c: &mut Context<'_>, args: DestroySession4Args) -> Result<()> {
    let own = c.ticket.as_ref().filter(|ticket| ticket.session.0 == args.sessionid).map(|ticket| ticket.slot);
    // No operation can follow in a session that is gone.
    if own.is_some() && c.index != c.operations {
        return Err(Nfsstat4::NotOnlyOp);
    }
    let session = SessionId(args.sessionid);
    let state = &c.service.state;
    let principal = c.principal();
    let destroyed = state.run(|engine, _| {
        let client = engine.session_of(session, &principal)?;
        engine.destroy_session(session, &principal, own).map(|()| client)
    });
    let client = destroyed.map_err(status::of_state)?;
    state.callbacks.paths.with(|paths| paths.remove_session(client, session));
    Ok(())
}

pub(crate) fn destroy_clientid(c: &mut Context<'_>, args: Clientid4Args) -> Result<()> {
    let by = c.requester(ClientId(args.clientid));
    c.service.state.run(|engine, _| engine.destroy_clientid(&by)).map_err(status::of_state)
}

pub(crate) fn reclaim_complete(c: &mut Context<'_>, args: ReclaimComplete4Args) -> Result<()> {
    let by = c.requester(c.session_client()?);
    if args.one_fs {
        // Filesystems don't migrate here.
        c.object()?;
        return Ok(());
    }
    c.service.state.run(|engine, _| engine.reclaim_complete(&by)).map_err(status::of_state)
}

pub(crate) fn bind_conn_to_session(c: &mut Context<'_>, args: BindConnToSession4Args) -> Result<()> {
    let (state, session, principal) = (&c.service.state, SessionId(args.sessionid), c.principal());
    let client = state.run(|engine, _| engine.session_of(session, &principal)).map_err(status::of_state)?;
    let channel = c.cx.back_channel().ok_or(Nfsstat4::Inval)?;
    let dir = match args.dir {
        ChannelDirFromClient4::Fore => FORE,
        ChannelDirFromClient4::Back => BACK,
        ChannelDirFromClient4::ForeOrBoth | ChannelDirFromClient4::BackOrBoth => BOTH,
    };
    state.callbacks.paths.with(|paths| match dir {
        FORE => paths.unbind(client, session, channel.connection()),
        _ => paths.bind(client, session, channel),
    });
    c.reply.encoder().put(&BindConnToSession4ResOk {
        sessionid: args.sessionid,
        dir,
        use_conn_in_rdma_mode: false,
    });
    Ok(())
}

pub(crate) fn backchannel_ctl(c: &mut Context<'_>, args: BackchannelCtl4Args<'_>) -> Result<()> {
    let ticket = c.ticket.as_ref().ok_or(Nfsstat4::OpNotInSession)?;
    let credential = credential(&args.sec_parms.0).filter(|_| !args.sec_parms.0.is_empty());
    let program = CallbackProgram { number: args.cb_program, credential: credential.ok_or(Nfsstat4::Inval)? };
    c.service.state.callbacks.paths.with(|paths| paths.set_program(ticket.client, ticket.session, program));
    Ok(())
}
