//! WRITE and COMMIT (RFC 1813 sections 3.3.7, 3.3.21).
//!
//! On a `sync` export a WRITE is as durable as requested. On an `async` export the server replies without
//! waiting for the disk and claims the requested durability, as exports(5) describes, with the risk of data
//! loss in a crash.

use io::trace;
use proto::nfs3::{Commit3Args, Commit3ResOk, FHSIZE, Nfsstat3, StableHow, WccData, Write3Args, Write3ResOk};
use rpc::server::PayloadAlignment;
use state::AccessKind;
use store::{FileKind, Wcc};
use xdr::{Decoder, Encoder};

use super::convert::{stability, stable_how, wcc_data};
use super::{Call, Done, Fault, Result, outcome};
use crate::service::limits::MAX_TRANSFER;

/// Smaller payloads are written through the page cache in every mode: no device has smaller blocks.
const SMALLEST_BLOCK: u32 = 512;

/// The memory alignment of a WRITE's payload, from the arguments received so far: whole blocks of the file
/// should be whole blocks in memory.
pub(super) fn payload_alignment(args: &[u8]) -> PayloadAlignment {
    let mut from = Decoder::new(args);
    let mut head = || -> std::result::Result<_, xdr::Error> {
        let _handle = from.opaque(FHSIZE)?;
        let offset = from.u64()?;
        let (_count, _stable, length) = (from.u32()?, from.u32()?, from.u32()?);
        Ok((offset, length, args.len() - from.rest().len()))
    };
    match head() {
        Ok((offset, length, at)) if length >= SMALLEST_BLOCK => PayloadAlignment::At { at, offset },
        Ok(_) => PayloadAlignment::Anywhere,
        Err(_) => PayloadAlignment::NotYet,
    }
}

/// Answers.
pub(super) fn write(call: &Call<'_>, args: Write3Args<'_>, to: &mut Encoder) -> Done {
    let (handle, offset) = (args.file.0, args.offset);
    trace::write_start(handle, offset, args.data.0.len() as u64);
    let mut body = WccData::default();
    let done = attempt(call, args, &mut body);
    let bytes = done.as_ref().map_or(0, |ok| ok.count.into());
    match &done {
        Ok(_) => trace::write_done(handle, offset, bytes),
        Err(fault) => trace::write_err(handle, offset, fault.0 as u64),
    }
    let outcome = outcome(done, body);
    to.put(&outcome);
    Done { status: outcome.status(), bytes }
}

fn attempt(call: &Call<'_>, args: Write3Args<'_>, body: &mut WccData) -> Result<Write3ResOk> {
    let admitted = call.admit(args.file.0)?;
    let user_context = admitted.user_context()?;
    let node = user_context.node(args.file.0)?;
    call.check_conflicts(&user_context, &node, AccessKind::Write)?;
    // knfsd also requires the count to match the length of the data. Data above wtmax is left out (a short
    // write).
    let length = args.data.0.len();
    if args.count as usize != length {
        return Err(Fault(Nfsstat3::Inval));
    }
    let data = &args.data.0[..length.min(MAX_TRANSFER as usize)];
    let asked = if admitted.sync { args.stable } else { StableHow::Unstable };
    if asked != StableHow::Unstable || user_context.modes().write == io::IoMode::Direct {
        call.cx.will_block();
    }
    let mut wcc = Wcc::default();
    // Read before the write: if the data is lost before the reply, the COMMIT will return another verifier.
    let verf = call.service.verifier.get();
    let written = user_context.write(&node, args.offset, data, stability(asked), &mut wcc);
    *body = wcc_data(&wcc);
    let written = written?;
    let committed = stable_how(written.committed);
    Ok(Write3ResOk {
        file_wcc: *body,
        count: u32::try_from(written.count).unwrap_or(MAX_TRANSFER),
        committed: if admitted.sync { committed } else { committed.max(args.stable) },
        verf,
    })
}

pub(super) fn commit(call: &Call<'_>, args: Commit3Args<'_>, body: &mut WccData) -> Result<Commit3ResOk> {
    let (handle, offset, count) = (args.file.0, args.offset, args.count.into());
    trace::commit_start(handle, offset, count);
    let done = attempt_commit(call, args, body);
    trace::commit_done(handle, offset, count);
    done
}

fn attempt_commit(call: &Call<'_>, args: Commit3Args<'_>, body: &mut WccData) -> Result<Commit3ResOk> {
    let admitted = call.admit(args.file.0)?;
    let user_context = admitted.user_context()?;
    let node = user_context.node(args.file.0)?;
    let mut wcc = Wcc::default();
    if node.kind() == FileKind::Directory {
        // An extension of NFSv3, for clients that sync metadata themselves
        // ([`crate::service::AsyncClients`]).
        let now = user_context.attributes(&node)?;
        *body = wcc_data(&Wcc { before: Some(now), after: Some(now) });
        if admitted.sync {
            call.cx.will_block();
            user_context.sync_metadata(&node)?;
        }
    } else if admitted.sync {
        call.cx.will_block();
        let done = user_context.commit(&node, args.offset, args.count.into(), &mut wcc);
        *body = wcc_data(&wcc);
        done?;
    } else {
        if node.kind() != FileKind::Regular {
            return Err(Fault(Nfsstat3::Inval));
        }
        let now = user_context.attributes(&node)?;
        *body = wcc_data(&Wcc { before: Some(now), after: Some(now) });
    }
    // Read after the sync: lost writes that this or an earlier sync has found have changed it.
    Ok(Commit3ResOk { file_wcc: *body, verf: call.service.verifier.get() })
}
