//! COPY and CLONE within the server (RFC 7862 sections 15.2 and 15.13): from the saved file to the current
//! one; OFFLOAD_STATUS and OFFLOAD_CANCEL (15.8, 15.9).
//!
//! A long COPY is asynchronous if the client can be called back and doesn't insist on a synchronous one (see
//! `copy_thread`). Otherwise the reply comes after the copy. A large one is answered when a part of it is
//! copied, and the client requests the rest.

use std::sync::Arc;

use proto::nfs4::{
    Clone4Args, Copy4Args, Copy4ResOk, Nfsstat4, StableHow4, Stateid4, Stateid4Args, Verifier4,
    WriteResponse4,
};
use state::{ClientId, Direction};
use store::{Error, Wcc};
use xdr::Array;

use crate::programs::nfs4::context::Context;
use crate::programs::nfs4::copy_thread::{self, CopyRequest, End};
use crate::programs::nfs4::object::File;
use crate::programs::nfs4::status::{self, Result};

/// The most bytes of a synchronous COPY: it keeps a worker busy.
const MAX_SYNCHRONOUS: u64 = 64 << 20;
/// The fewest bytes of an asynchronous COPY.
const MIN_ASYNCHRONOUS: u64 = 4 << 20;

pub(crate) fn copy(c: &mut Context<'_>, args: Copy4Args<'_>) -> Result<()> {
    if !args.source_server.0.is_empty() {
        return Err(Nfsstat4::Notsupp);
    }
    let (source, target) = both(c, args.src_stateid, args.dst_stateid)?;
    let size = source.user_context()?.attributes(&source.node).map_err(status::of_store)?.size;
    let beyond = args.src_offset.checked_add(args.count).is_none_or(|end| args.count > 0 && end > size);
    if args.src_offset > size || beyond {
        return Err(Nfsstat4::Inval);
    }
    let count = if args.count == 0 { size - args.src_offset } else { args.count };
    if count >= MIN_ASYNCHRONOUS && !args.synchronous {
        let client = c.session_client()?;
        if c.service.state.callbacks.is_up(client) {
            let end = |file: &File, offset| End {
                admitted: file.admitted.as_ref().clone(),
                node: Arc::clone(&file.node),
                offset,
            };
            let peer = c.cx.peer.share();
            let (from, to) = (end(&source, args.src_offset), end(&target, args.dst_offset));
            if let Some(id) = copy_thread::start(c.service, CopyRequest { client, peer, from, to, count }) {
                put_result(c, Array(vec![id]), 0, c.service.verifier.get());
                return Ok(());
            }
        }
    }
    c.cx.will_block();
    let writeverf = c.service.verifier.get();
    let count = count.min(MAX_SYNCHRONOUS);
    let copied = if count == 0 {
        0
    } else {
        let (from, to) = ((&*source.node, args.src_offset), (&*target.node, args.dst_offset));
        let user_context = target.user_context()?;
        user_context.copy_range(from, to, count, &mut Wcc::default()).map_err(status::of_store)?
    };
    put_result(c, Array(Vec::new()), copied, writeverf);
    Ok(())
}

/// Appends COPY's result; `asynchronous` is the state id of a copy that isn't done.
fn put_result(c: &mut Context<'_>, asynchronous: Array<Stateid4, 1>, count: u64, writeverf: Verifier4) {
    let synchronous = asynchronous.0.is_empty();
    let committed = if synchronous { StableHow4::FileSync } else { StableHow4::Unstable };
    c.reply.encoder().put(&Copy4ResOk {
        response: WriteResponse4 { callback_id: asynchronous, count, committed, writeverf },
        consecutive: true,
        synchronous,
    });
}

pub(crate) fn offload_status(c: &mut Context<'_>, args: Stateid4Args) -> Result<()> {
    let (client, target) = client_and_target(c)?;
    let id = args.stateid;
    let found = c.service.state.copies.status(client, target.node.handle(), &id)?;
    c.reply.encoder().put(&found);
    Ok(())
}

pub(crate) fn offload_cancel(c: &mut Context<'_>, args: Stateid4Args) -> Result<()> {
    let (client, target) = client_and_target(c)?;
    c.service.state.copies.cancel(client, target.node.handle(), &args.stateid)
}

/// The client of a copy, and the file that it writes.
fn client_and_target(c: &Context<'_>) -> Result<(ClientId, File)> {
    Ok((c.session_client()?, c.file(Nfsstat4::BadStateid)?))
}

pub(crate) fn clone(c: &mut Context<'_>, args: Clone4Args) -> Result<()> {
    let (source, target) = both(c, args.src_stateid, args.dst_stateid)?;
    c.cx.will_block();
    let user_context = target.user_context()?;
    let (from, to) = ((&*source.node, args.src_offset), (&*target.node, args.dst_offset));
    user_context.clone_range(from, to, args.count, &mut Wcc::default()).map_err(|error| match error {
        // RFC 7862 section 15.13.3.
        Error::CrossDevice => Nfsstat4::Xdev,
        other => status::of_store(other),
    })
}

/// The source and the target, if the state ids allow to read and to write them.
fn both(c: &mut Context<'_>, source: Stateid4, target: Stateid4) -> Result<(File, File)> {
    let from = c.saved.clone().ok_or(Nfsstat4::Nofilehandle)?;
    let to = c.file_for_io(target, Direction::Write)?;
    let here = c.current.replace(from);
    let from = c.file_for_io(source, Direction::Read);
    c.current = here;
    let from = from?;
    if !from.admitted.same_export(&to.admitted) {
        return Err(Nfsstat4::Xdev);
    }
    Ok((from, to))
}
