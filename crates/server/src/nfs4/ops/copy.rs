//! COPY and CLONE within the server (RFC 7862 sections 15.2 and 15.13): from the saved file to the current one. A COPY is
//! done when it is answered; one that is large is answered when a part of it is done, and the client asks for the rest.

use proto::nfs4::{Clone4Args, Copy4Args, Copy4ResOk, Nfsstat4, StableHow4, Stateid4, WriteResponse4};
use state::Direction;
use store::{Error, Wcc};
use xdr::Array;

use super::read::for_io;
use crate::nfs4::compound::Compound;
use crate::nfs4::object::File;
use crate::nfs4::{Result, status};

/// The most bytes of one COPY: it holds a worker for as long.
const MAX_COPY: u64 = 64 << 20;

pub(in crate::nfs4) fn copy(c: &mut Compound<'_>, args: Copy4Args<'_>) -> Result<()> {
    if !args.source_server.0.is_empty() {
        return Err(Nfsstat4::Notsupp);
    }
    let (source, target) = both(c, args.src_stateid, args.dst_stateid)?;
    let size = source.acting()?.attributes(&source.node).map_err(status::of_store)?.size;
    let beyond = args.src_offset.checked_add(args.count).is_none_or(|end| args.count > 0 && end > size);
    if args.src_offset > size || beyond {
        return Err(Nfsstat4::Inval);
    }
    c.cx.will_block();
    let writeverf = c.service.verifier.get();
    let wanted = if args.count == 0 { size - args.src_offset } else { args.count }.min(MAX_COPY);
    let count = if wanted == 0 {
        0
    } else {
        let (from, to) = ((&*source.node, args.src_offset), (&*target.node, args.dst_offset));
        let acting = target.acting()?;
        acting.copy_range(from, to, wanted, &mut Wcc::default()).map_err(status::of_store)?
    };
    c.reply.encoder().put(&Copy4ResOk {
        response: WriteResponse4 {
            callback_id: Array(Vec::new()),
            count,
            committed: StableHow4::FileSync,
            writeverf,
        },
        consecutive: true,
        synchronous: true,
    });
    Ok(())
}

pub(in crate::nfs4) fn clone(c: &mut Compound<'_>, args: Clone4Args) -> Result<()> {
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
