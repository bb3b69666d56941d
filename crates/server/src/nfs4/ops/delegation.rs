//! Delegations: given with OPEN, returned by DELEGRETURN, and asked for what their holder has written (RFC 8881 sections 10.2 to
//! 10.4, 18.6, 20.1).

use std::sync::Arc;
use std::time::Duration;

use proto::nfs4::attributes as number;
use proto::nfs4::{
    Bitmap4, CB_GETATTR, CbGetattr4Args, CbGetattr4ResOk, MinorVersion, NfsSpaceLimit4, Nfsace4,
    OpenDelegation4, OpenNoneDelegation4, OpenReadDelegation4, OpenWriteDelegation4,
    SHARE_ACCESS_WANT_CANCEL, SHARE_ACCESS_WANT_DELEG_MASK, SHARE_ACCESS_WANT_NO_DELEG,
    SHARE_ACCESS_WANT_NO_PREFERENCE, SHARE_ACCESS_WANT_READ_DELEG, Stateid4Args, WND4_CANCELLED,
    WND4_NOT_SUPP_UPGRADE, WND4_NOT_WANTED,
};
use state::{ClientId, Delegating, NoDelegation, Share, StateId, Touch};
use store::{Acting, Error, Node};
use xdr::{Decoder, Opaque};

use super::open::place;
use crate::nfs4::callbacks::{Operation, wire};
use crate::nfs4::compound::Compound;
use crate::nfs4::object::File;
use crate::nfs4::states::Kept;
use crate::nfs4::{Result, status};

/// How long a worker waits for what a delegation's holder says.
const PATIENCE: Duration = Duration::from_secs(2);

/// `OPEN_DELEGATE_WRITE`, as CLAIM_PREVIOUS names it.
const DELEGATE_WRITE: u32 = 2;
/// `OPEN_DELEGATE_NONE`.
const DELEGATE_NONE: u32 = 0;

/// What may be asked of a holder.
const WRITTEN: Bitmap4 = Bitmap4::of(&[number::CHANGE, number::SIZE]);
/// What a holder's data changes.
const CHANGED_BY_DATA: Bitmap4 = Bitmap4::of(&[
    number::CHANGE,
    number::SIZE,
    number::SPACE_USED,
    number::TIME_MODIFY,
    number::TIME_METADATA,
]);

/// Gives a delegation with an OPEN, if there is one to be given: what OPEN answers about that.
pub(super) fn offer(
    c: &Compound<'_>,
    acting: &Acting<'_>,
    node: &Arc<Node>,
    client: ClientId,
    share: Share,
    share_access: u32,
) -> OpenDelegation4<'static> {
    let want = share_access & SHARE_ACCESS_WANT_DELEG_MASK;
    let refused = match want {
        _ if c.minor == MinorVersion::V0 => None,
        SHARE_ACCESS_WANT_NO_DELEG => Some(OpenNoneDelegation4::Other(WND4_NOT_WANTED)),
        SHARE_ACCESS_WANT_CANCEL => Some(OpenNoneDelegation4::Other(WND4_CANCELLED)),
        _ => None,
    };
    if let Some(why) = refused {
        return OpenDelegation4::NoneExt(why);
    }
    let writes = share.access & 2 != 0 && want != SHARE_ACCESS_WANT_READ_DELEG;
    match give(c, acting, node, client, writes) {
        Ok(id) => delegation(&id, writes, false),
        Err(_) if c.minor == MinorVersion::V0 || want == SHARE_ACCESS_WANT_NO_PREFERENCE => {
            OpenDelegation4::None
        }
        Err(NoDelegation::Contention) => OpenDelegation4::NoneExt(OpenNoneDelegation4::Contention(false)),
        Err(NoDelegation::Resource) => OpenDelegation4::NoneExt(OpenNoneDelegation4::Resource(false)),
        Err(NoDelegation::Held) => {
            OpenDelegation4::NoneExt(OpenNoneDelegation4::Other(WND4_NOT_SUPP_UPGRADE))
        }
    }
}

fn give(
    c: &Compound<'_>,
    acting: &Acting<'_>,
    node: &Arc<Node>,
    client: ClientId,
    writes: bool,
) -> std::result::Result<StateId, NoDelegation> {
    let states = &c.service.nfs4;
    if !states.callbacks.is_up(client) {
        return Err(NoDelegation::Resource);
    }
    let key = node.handle();
    let begun = states.run(|engine, now| engine.delegate_begin(now, client, key, writes, false))?;
    match keep_out(c, acting, node, &begun) {
        Ok(()) => states.run(|engine, _| engine.delegate_done(&begun)).ok_or(NoDelegation::Contention),
        Err(error) => {
            states.run(|engine, _| engine.delegate_failed(&begun));
            Err(if error == Error::TryLater { NoDelegation::Contention } else { NoDelegation::Resource })
        }
    }
}

/// Gives a delegation back to a client that had it before the server restarted; if that can't be, for it to return at once.
pub(super) fn reclaim(
    c: &Compound<'_>,
    acting: &Acting<'_>,
    node: &Arc<Node>,
    client: ClientId,
    kind: u32,
) -> OpenDelegation4<'static> {
    let (states, key, writes) = (&c.service.nfs4, node.handle(), kind == DELEGATE_WRITE);
    if kind == DELEGATE_NONE {
        return OpenDelegation4::None;
    }
    let begun = states.run(|engine, now| engine.delegate_begin(now, client, key, writes, true));
    let Ok(begun) = begun else { return OpenDelegation4::None };
    let kept_out = keep_out(c, acting, node, &begun).is_ok();
    let id = states.run(|engine, now| {
        if kept_out { engine.delegate_done(&begun) } else { engine.delegate_to_recall(now, &begun) }
    });
    id.map_or(OpenDelegation4::None, |id| delegation(&id, writes, !kept_out))
}

/// Keeps local processes out, and remembers what the file is like.
fn keep_out(
    c: &Compound<'_>,
    acting: &Acting<'_>,
    node: &Arc<Node>,
    begun: &Delegating<Kept>,
) -> store::Result<()> {
    let leases = c.service.nfs4.leases.get().ok_or(Error::NotSupported)?;
    let lease = acting.lease(node, begun.writes, leases)?;
    if begun.writes {
        let now = acting.attributes(node)?;
        let _ = begun.kept.given.set((now.change, now.size));
    }
    // Nobody else has it: it was made for this delegation.
    let _ = begun.kept.lease.set(lease);
    Ok(())
}

fn delegation(id: &StateId, writes: bool, recall: bool) -> OpenDelegation4<'static> {
    // Nobody may do more by it than the server says when it is asked (ACCESS).
    let permissions = Nfsace4 { kind: 0, flag: 0, access_mask: 0, who: Opaque(b"") };
    let stateid = wire(id);
    if writes {
        let space_limit = NfsSpaceLimit4::Size(u64::MAX);
        OpenDelegation4::Write(OpenWriteDelegation4 { stateid, recall, space_limit, permissions })
    } else {
        OpenDelegation4::Read(OpenReadDelegation4 { stateid, recall, permissions })
    }
}

pub(in crate::nfs4) fn delegreturn(c: &mut Compound<'_>, args: Stateid4Args) -> Result<()> {
    let id = c.stateid(args.stateid)?;
    let (client, key) = place(c, &id)?;
    c.service.nfs4.run(|engine, _| engine.delegreturn(client, &id, &key)).map_err(status::of_state)
}

/// Asks another client's delegation for writing what it makes of the file, if it matters for what is `wanted`: the size, if it has
/// written. Then the file's own attributes say by now that it has changed. A holder that doesn't answer loses the delegation. In 4.0
/// nobody knows whether it is the holder himself who asks, and he isn't.
pub(super) fn ask_writer(c: &Compound<'_>, file: &File, wanted: &Bitmap4) -> Result<Option<u64>> {
    let states = &c.service.nfs4;
    if !states.has_writers() || wanted.and(&CHANGED_BY_DATA).is_empty() || c.by().is_none() {
        return Ok(None);
    }
    let key = file.node.handle();
    let Some(writer) = states.run(|engine, _| engine.writer(c.by(), key)) else { return Ok(None) };
    let Some((change, size)) = writer.kept.given.get().copied() else { return Ok(None) };
    c.cx.will_block();
    let args = CbGetattr4Args { fh: Opaque(key.as_bytes()), attr_request: WRITTEN };
    let answer = states.callbacks.ask(writer.client, Operation::new(CB_GETATTR, &args), PATIENCE);
    match answer.ok().and_then(|body| written(&body)) {
        Some(unchanged) if unchanged == (change, size) => Ok(None),
        Some((_, size)) => {
            // What can't be touched isn't written to either.
            let _ = file.acting()?.touch(&file.node);
            Ok(Some(size))
        }
        None => states.may_begin(c.by(), key, Touch::Read).map(|()| None).map_err(status::of_state),
    }
}

/// The change attribute and the size out of an answer.
fn written(body: &[u8]) -> Option<(u64, u64)> {
    let CbGetattr4ResOk { obj_attributes } = Decoder::new(body).get().ok()?;
    if !WRITTEN.without(&obj_attributes.attrmask).is_empty() {
        return None;
    }
    // They are the first; what else the client tells wasn't asked.
    let before = obj_attributes.attrmask.iter().next();
    let mut values = Decoder::new(obj_attributes.attr_vals.0);
    let found = (values.u64().ok()?, values.u64().ok()?);
    (before == Some(number::CHANGE)).then_some(found)
}
