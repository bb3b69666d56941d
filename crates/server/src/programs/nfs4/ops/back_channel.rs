//! How the server may call its client: BIND_CONN_TO_SESSION, BACKCHANNEL_CTL, and what CREATE_SESSION and
//! SETCLIENTID say of it (RFC 8881 sections 18.33, 18.34, 18.36; RFC 7530 section 16.33).

use proto::nfs4::{
    AuthsysParms, BackchannelCtl4Args, BindConnToSession4Args, BindConnToSession4ResOk, CallbackSecParms4,
    ChannelDirFromClient4, CreateSession4Args, Nfsstat4, Setclientid4Args,
};
use proto::rpcbind::from_universal;
use rpc::message::{AuthSys, Credential};
use state::SessionId;

use crate::nfs4::callbacks::{CallbackAddress, CallbackProgram};
use crate::nfs4::compound::Compound;
use crate::nfs4::{Result, status};

/// `CDFS4_FORE`, `CDFS4_BACK`, `CDFS4_BOTH`.
const FORE: u32 = 1;
const BACK: u32 = 2;
const BOTH: u32 = 3;

/// As whom a client wants to be called: the first way that we have.
fn credential(offered: &[CallbackSecParms4<'_>]) -> Option<Credential> {
    let known = |parms: &CallbackSecParms4<'_>| match parms {
        CallbackSecParms4::None => Some(Credential::None),
        CallbackSecParms4::Sys(AuthsysParms { stamp, machinename, uid, gid, gids }) => {
            let (machine_name, gids) = (machinename.0.to_vec(), gids.0.clone());
            Some(Credential::Sys(AuthSys { stamp: *stamp, machine_name, uid: *uid, gid: *gid, gids }))
        }
        CallbackSecParms4::Gss(_) => None,
    };
    if offered.is_empty() { Some(Credential::None) } else { offered.iter().find_map(known) }
}

/// CREATE_SESSION: keeps how the session's client can be called, and if it `binds` this connection, binds it.
/// Whether it is bound.
pub(super) fn created(
    c: &Compound<'_>,
    args: &CreateSession4Args<'_>,
    session: SessionId,
    binds: bool,
) -> Result<bool> {
    let Some(credential) = credential(&args.sec_parms.0) else { return Ok(false) };
    let program = CallbackProgram { number: args.cb_program, credential };
    let channel = c.cx.back_channel().filter(|_| binds);
    let (states, slots) = (&c.service.state, args.back_chan_attrs.maxrequests);
    let principal = c.principal();
    let client = states.run(|engine, _| engine.session_of(session, &principal)).map_err(status::of_state)?;
    let bound = channel.is_some();
    states.callbacks.paths.with(|paths| {
        paths.add_session(client, session, c.minor, program, slots);
        if let Some(channel) = channel {
            paths.bind(client, session, channel);
        }
    });
    Ok(bound)
}

pub(in crate::programs::nfs4) fn bind_conn_to_session(
    c: &mut Compound<'_>,
    args: BindConnToSession4Args,
) -> Result<()> {
    let (states, session, principal) = (&c.service.state, SessionId(args.sessionid), c.principal());
    let client = states.run(|engine, _| engine.session_of(session, &principal)).map_err(status::of_state)?;
    let channel = c.cx.back_channel().ok_or(Nfsstat4::Inval)?;
    let dir = match args.dir {
        ChannelDirFromClient4::Fore => FORE,
        ChannelDirFromClient4::Back => BACK,
        ChannelDirFromClient4::ForeOrBoth | ChannelDirFromClient4::BackOrBoth => BOTH,
    };
    states.callbacks.paths.with(|paths| match dir {
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

pub(in crate::programs::nfs4) fn backchannel_ctl(
    c: &mut Compound<'_>,
    args: BackchannelCtl4Args<'_>,
) -> Result<()> {
    let ticket = c.ticket.as_ref().ok_or(Nfsstat4::OpNotInSession)?;
    let credential = credential(&args.sec_parms.0).filter(|_| !args.sec_parms.0.is_empty());
    let program = CallbackProgram { number: args.cb_program, credential: credential.ok_or(Nfsstat4::Inval)? };
    c.service.state.callbacks.paths.with(|paths| paths.set_program(ticket.client, ticket.session, program));
    Ok(())
}

/// Where SETCLIENTID says that callbacks go: at the client's own address only, for nobody may have the server
/// call others.
pub(super) fn address(c: &Compound<'_>, args: &Setclientid4Args<'_>) -> Option<CallbackAddress> {
    let location = &args.cb_location;
    let address = from_universal(location.addr.0).filter(|_| location.netid.0.starts_with(b"tcp"))?;
    let (mut address, own) = (address, c.cx.peer.address.ip().to_canonical());
    address.set_ip(address.ip().to_canonical());
    let callable = address.ip() == own && address.port() != 0;
    callable.then_some(CallbackAddress { address, program: args.cb_program, ident: args.callback_ident })
}
