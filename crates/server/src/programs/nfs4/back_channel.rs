//! How the server may call a client back, as the client's own requests say: CREATE_SESSION,
//! BIND_CONN_TO_SESSION, BACKCHANNEL_CTL (RFC 8881 sections 18.33, 18.34, 18.36) and SETCLIENTID (RFC 7530
//! section 16.33).

use proto::nfs4::{AuthsysParms, CallbackSecParms4, CreateSession4Args, Setclientid4Args};
use rpc::message::{AuthSys, Credential};
use state::SessionId;

use super::context::Context;
use super::status::{self, Result};
use crate::service::nfs4_state::callbacks::{CallbackAddress, CallbackProgram};

/// The credential of callbacks: the first one offered that the server can use.
pub(super) fn credential(offered: &[CallbackSecParms4<'_>]) -> Option<Credential> {
    let usable = |parms: &CallbackSecParms4<'_>| match parms {
        CallbackSecParms4::None => Some(Credential::None),
        CallbackSecParms4::Sys(AuthsysParms { stamp, machinename, uid, gid, gids }) => {
            let (machine_name, gids) = (machinename.0.to_vec(), gids.0.clone());
            Some(Credential::Sys(AuthSys { stamp: *stamp, machine_name, uid: *uid, gid: *gid, gids }))
        }
        CallbackSecParms4::Gss(_) => None,
    };
    if offered.is_empty() { Some(Credential::None) } else { offered.iter().find_map(usable) }
}

/// CREATE_SESSION: remembers how the session's client can be called, and binds this connection if the client
/// wants that (`binds`). Whether it is bound.
pub(super) fn add_session(
    c: &Context<'_>,
    args: &CreateSession4Args<'_>,
    session: SessionId,
    binds: bool,
) -> Result<bool> {
    let Some(credential) = credential(&args.sec_parms.0) else { return Ok(false) };
    let program = CallbackProgram { number: args.cb_program, credential };
    let channel = c.cx.back_channel().filter(|_| binds);
    let (state, slots) = (&c.service.state, args.back_chan_attrs.maxrequests);
    let principal = c.principal();
    let client = state.run(|engine, _| engine.session_of(session, &principal)).map_err(status::of_state)?;
    let bound = channel.is_some();
    state.callbacks.paths.with(|paths| {
        paths.add_session(client, session, c.minor, program, slots);
        if let Some(channel) = channel {
            paths.bind(client, session, channel);
        }
    });
    Ok(bound)
}

/// SETCLIENTID: the address of callbacks. Only the client's own: no client may have the server call others.
pub(super) fn address(c: &Context<'_>, args: &Setclientid4Args<'_>) -> Option<CallbackAddress> {
    let (mut address, own) = (args.cb_location.tcp_address()?, c.cx.peer.address.ip().to_canonical());
    address.set_ip(address.ip().to_canonical());
    let callable = address.ip() == own && address.port() != 0;
    callable.then_some(CallbackAddress { address, program: args.cb_program, ident: args.callback_ident })
}
