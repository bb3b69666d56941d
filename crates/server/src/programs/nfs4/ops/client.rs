//! Clients of NFSv4.0: SETCLIENTID, SETCLIENTID_CONFIRM, RENEW, OPEN_CONFIRM, RELEASE_LOCKOWNER (RFC 7530
//! sections 16.18, 16.28, 16.33, 16.34, 16.37).

use proto::nfs4::{
    Clientid4Args, Nfsstat4, OpenConfirm4Args, ReleaseLockowner4Args, Setclientid4Args, Setclientid4ResOk,
    SetclientidConfirm4Args,
};
use state::{ClientId, SetClientId};

use crate::programs::nfs4::back_channel;
use crate::programs::nfs4::context::{Context, Operand};
use crate::programs::nfs4::owner_seqid::SeqidRequest;
use crate::programs::nfs4::status::{self, Result};

pub(crate) fn setclientid(c: &mut Context<'_>, args: Setclientid4Args<'_>) -> Result<()> {
    let principal = c.principal();
    let request = SetClientId {
        owner: args.client.id.0,
        peer: c.cx.peer.share(),
        verifier: args.client.verifier,
        principal: &principal,
    };
    let set = c.service.state.run(|engine, now| engine.setclientid(now, &request));
    let (client, confirm) = match set {
        Ok(set) => set,
        Err(error) => {
            if error == state::Error::ClidInuse {
                // The result wants the address of the client that uses the name; other clients don't get it.
                let mut no_address = xdr::Encoder::new();
                no_address.opaque(b"");
                no_address.opaque(b"");
                c.failure = no_address.into_vec();
            }
            return Err(status::of_state(error));
        }
    };
    let address = back_channel::address(c, &args);
    c.service.state.callbacks.paths.with(|paths| paths.propose_address(client, confirm, address));
    let setclientid_confirm = confirm.to_be_bytes();
    c.reply.encoder().put(&Setclientid4ResOk { clientid: client.0, setclientid_confirm });
    Ok(())
}

pub(crate) fn setclientid_confirm(c: &mut Context<'_>, args: SetclientidConfirm4Args) -> Result<()> {
    let principal = c.principal();
    let (client, confirm) = (ClientId(args.clientid), u64::from_be_bytes(args.setclientid_confirm));
    let state = &c.service.state;
    let confirmed = state.run(|engine, now| engine.setclientid_confirm(now, client, confirm, &principal));
    confirmed.map_err(status::of_state)?;
    if state.callbacks.paths.with(|paths| paths.confirm_address(client, confirm)) {
        state.callbacks.probe(client);
    }
    Ok(())
}

pub(crate) fn renew(c: &mut Context<'_>, args: Clientid4Args) -> Result<()> {
    let client = ClientId(args.clientid);
    let (state, by) = (&c.service.state, c.requester(client));
    let holds = state.run(|engine, now| {
        engine.renew_by(now, &by)?;
        Ok(engine.holds_delegations(client))
    });
    // The lease is renewed in any case (RFC 7530 section 16.28.4).
    let unreachable = holds.map_err(status::of_state)? && state.callbacks.path_status(client, None).path_down;
    if unreachable {
        state.callbacks.probe(client);
        return Err(Nfsstat4::CbPathDown);
    }
    Ok(())
}

pub(crate) fn open_confirm(c: &mut Context<'_>, args: OpenConfirm4Args) -> Result<()> {
    let id = c.stateid(args.open_stateid)?;
    let Operand { by, file } = c.operand(&id)?;
    let id = c.service.state.run(|engine, _| engine.open_confirm(&by, &id, &file));
    let id = c.set_stateid(id.map_err(status::of_state)?);
    c.reply.encoder().put(&id);
    Ok(())
}

/// The owner whose sequence number OPEN_CONFIRM carries.
pub(crate) fn open_confirm_owner(c: &Context<'_>, args: OpenConfirm4Args) -> Result<SeqidRequest> {
    SeqidRequest::of_stateid(c, args.open_stateid, args.seqid)
}

pub(crate) fn release_lockowner(c: &mut Context<'_>, args: ReleaseLockowner4Args<'_>) -> Result<()> {
    let (client, owner) = (ClientId(args.lock_owner.clientid), args.lock_owner.owner.0);
    let released = c.service.state.run(|engine, now| engine.release_lockowner(now, client, owner));
    released.map_err(status::of_state)
}
