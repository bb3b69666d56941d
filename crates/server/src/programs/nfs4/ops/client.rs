//! Clients of NFSv4.0: SETCLIENTID, SETCLIENTID_CONFIRM, RENEW, OPEN_CONFIRM, RELEASE_LOCKOWNER (RFC 7530
//! sections 16.18, 16.28, 16.33, 16.34, 16.37).

use proto::nfs4::{
    Clientid4Args, Nfsstat4, OpenConfirm4Args, ReleaseLockowner4Args, Setclientid4Args, Setclientid4ResOk,
    SetclientidConfirm4Args,
};
use state::{ClientId, SetClientId};

use super::back_channel;
use super::open::place;
use crate::nfs4::compound::Compound;
use crate::nfs4::{Result, status};

pub(in crate::programs::nfs4) fn setclientid(c: &mut Compound<'_>, args: Setclientid4Args<'_>) -> Result<()> {
    let principal = c.principal();
    let asked = SetClientId {
        owner: args.client.id.0,
        peer: c.cx.peer.share(),
        verifier: args.client.verifier,
        principal: &principal,
    };
    let set = c.service.state.run(|engine, now| engine.setclientid(now, &asked));
    let (client, confirm) = match set {
        Ok(set) => set,
        Err(error) => {
            // Who uses the name: nobody's business, but the union wants an address.
            let mut nobody = xdr::Encoder::new();
            nobody.opaque(b"");
            nobody.opaque(b"");
            if error == state::Error::ClidInuse {
                c.failure = nobody.into_vec();
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

pub(in crate::programs::nfs4) fn setclientid_confirm(
    c: &mut Compound<'_>,
    args: SetclientidConfirm4Args,
) -> Result<()> {
    let principal = c.principal();
    let (client, confirm) = (ClientId(args.clientid), u64::from_be_bytes(args.setclientid_confirm));
    let states = &c.service.state;
    let confirmed = states.run(|engine, now| engine.setclientid_confirm(now, client, confirm, &principal));
    confirmed.map_err(status::of_state)?;
    if states.callbacks.paths.with(|paths| paths.confirm_address(client, confirm)) {
        states.callbacks.probe(client);
    }
    Ok(())
}

pub(in crate::programs::nfs4) fn renew(c: &mut Compound<'_>, args: Clientid4Args) -> Result<()> {
    let client = ClientId(args.clientid);
    let (states, by) = (&c.service.state, c.requester(client));
    let holds = states.run(|engine, now| {
        engine.renew_by(now, &by)?;
        Ok(engine.holds_delegations(client))
    });
    // Its lease is renewed all the same (RFC 7530 section 16.28.4).
    let unreachable =
        holds.map_err(status::of_state)? && states.callbacks.path_status(client, None).path_down;
    if unreachable {
        states.callbacks.probe(client);
        return Err(Nfsstat4::CbPathDown);
    }
    Ok(())
}

pub(in crate::programs::nfs4) fn open_confirm(c: &mut Compound<'_>, args: OpenConfirm4Args) -> Result<()> {
    let id = c.stateid(args.open_stateid)?;
    let (by, key) = place(c, &id)?;
    let id = c.service.state.run(|engine, _| engine.open_confirm(&by, &id, &key));
    let id = c.give_stateid(id.map_err(status::of_state)?);
    c.reply.encoder().put(&id);
    Ok(())
}

pub(in crate::programs::nfs4) fn release_lockowner(
    c: &mut Compound<'_>,
    args: ReleaseLockowner4Args<'_>,
) -> Result<()> {
    let (client, owner) = (ClientId(args.lock_owner.clientid), args.lock_owner.owner.0);
    let released = c.service.state.run(|engine, now| engine.release_lockowner(now, client, owner));
    released.map_err(status::of_state)
}
