//! COPY and CLONE within the server (RFC 7862 sections 15.2 and 15.13): from the saved file to the current
//! one; OFFLOAD_STATUS and OFFLOAD_CANCEL (15.8, 15.9).
//!
//! A long COPY goes on behind its answer, if the client can be told of its end and doesn't insist on waiting
//! (see `copies`). Else it is done when it is answered; one that is large is answered when a part of it is
//! done, and the client asks for the rest.

use std::sync::Arc;

use proto::nfs4::{
    Clone4Args, Copy4Args, Copy4ResOk, Nfsstat4, StableHow4, Stateid4, Stateid4Args, Verifier4,
    WriteResponse4,
};
use state::{ClientId, Direction};
use store::{Error, Wcc};
use xdr::Array;

use super::read::for_io;
use crate::nfs4::compound::Compound;
use crate::nfs4::copies::{self, End, Job};
use crate::nfs4::object::File;
use crate::nfs4::{Result, status};

/// The most bytes of one COPY that is waited for: it holds a worker for as long.
const MAX_COPY: u64 = 64 << 20;
/// From how many bytes on a COPY goes on behind its answer.
const LONG_COPY: u64 = 4 << 20;

pub(in crate::programs::nfs4) fn copy(c: &mut Compound<'_>, args: Copy4Args<'_>) -> Result<()> {
    if !args.source_server.0.is_empty() {
        return Err(Nfsstat4::Notsupp);
    }
    let (source, target) = both(c, args.src_stateid, args.dst_stateid)?;
    let size = source.acting()?.attributes(&source.node).map_err(status::of_store)?.size;
    let beyond = args.src_offset.checked_add(args.count).is_none_or(|end| args.count > 0 && end > size);
    if args.src_offset > size || beyond {
        return Err(Nfsstat4::Inval);
    }
    let wanted = if args.count == 0 { size - args.src_offset } else { args.count };
    if wanted >= LONG_COPY && !args.synchronous {
        let client = c.session_client()?;
        if c.service.state.callbacks.is_up(client) {
            let end = |file: &File, offset| End {
                admitted: file.admitted.as_ref().clone(),
                node: Arc::clone(&file.node),
                offset,
            };
            let peer = c.cx.peer.share();
            let (from, to) = (end(&source, args.src_offset), end(&target, args.dst_offset));
            if let Some(id) = copies::start(c.service, Job { client, peer, from, to, count: wanted }) {
                answer(c, Array(vec![id]), 0, c.service.verifier.get());
                return Ok(());
            }
        }
    }
    c.cx.will_block();
    let writeverf = c.service.verifier.get();
    let wanted = wanted.min(MAX_COPY);
    let count = if wanted == 0 {
        0
    } else {
        let (from, to) = ((&*source.node, args.src_offset), (&*target.node, args.dst_offset));
        let acting = target.acting()?;
        acting.copy_range(from, to, wanted, &mut Wcc::default()).map_err(status::of_store)?
    };
    answer(c, Array(Vec::new()), count, writeverf);
    Ok(())
}

/// What COPY answers; `under_way` is the state id of a copy that isn't done.
fn answer(c: &mut Compound<'_>, under_way: Array<Stateid4, 1>, count: u64, writeverf: Verifier4) {
    let synchronous = under_way.0.is_empty();
    let committed = if synchronous { StableHow4::FileSync } else { StableHow4::Unstable };
    c.reply.encoder().put(&Copy4ResOk {
        response: WriteResponse4 { callback_id: under_way, count, committed, writeverf },
        consecutive: true,
        synchronous,
    });
}

pub(in crate::programs::nfs4) fn offload_status(c: &mut Compound<'_>, args: Stateid4Args) -> Result<()> {
    let (client, target) = whose(c)?;
    let id = args.stateid;
    let found = c.service.state.copies.status(client, target.node.handle(), &id)?;
    c.reply.encoder().put(&found);
    Ok(())
}

pub(in crate::programs::nfs4) fn offload_cancel(c: &mut Compound<'_>, args: Stateid4Args) -> Result<()> {
    let (client, target) = whose(c)?;
    c.service.state.copies.cancel(client, target.node.handle(), &args.stateid)
}

/// Whose copy is meant, and to which file.
fn whose(c: &Compound<'_>) -> Result<(ClientId, File)> {
    Ok((c.session_client()?, c.file(Nfsstat4::BadStateid)?))
}

pub(in crate::programs::nfs4) fn clone(c: &mut Compound<'_>, args: Clone4Args) -> Result<()> {
    let (source, target) = both(c, args.src_stateid, args.dst_stateid)?;
    c.cx.will_block();
    let acting = target.acting()?;
    let (from, to) = ((&*source.node, args.src_offset), (&*target.node, args.dst_offset));
    acting.clone_range(from, to, args.count, &mut Wcc::default()).map_err(|error| match error {
        // RFC 7862 section 15.13.3 wants a client told that it can't be done here.
        Error::CrossDevice => Nfsstat4::Xdev,
        other => status::of_store(other),
    })
}

/// The source and the target, when the state ids allow it.
fn both(c: &mut Compound<'_>, source: Stateid4, target: Stateid4) -> Result<(File, File)> {
    let from = c.saved.clone().ok_or(Nfsstat4::Nofilehandle)?;
    let to = for_io(c, target, Direction::Write)?;
    let here = c.current.replace(from);
    let from = for_io(c, source, Direction::Read);
    c.current = here;
    let from = from?;
    if !from.admitted.same_export(&to.admitted) {
        return Err(Nfsstat4::Xdev);
    }
    Ok((from, to))
}
