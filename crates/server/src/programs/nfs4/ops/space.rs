//! ALLOCATE, DEALLOCATE, SEEK and IO_ADVISE (RFC 7862 sections 15.1, 15.4, 15.5, 15.11).

use proto::nfs4::{Allocate4Args, Bitmap4, DataContent4, IoAdvise4Args, Nfsstat4, Seek4Args, SeekRes4};
use state::Direction;
use store::{DataContent, Error, Wcc};

use crate::programs::nfs4::context::Context;
use crate::programs::nfs4::status::{self, Result};

const DATA: u32 = DataContent4::Data as u32;
const HOLE: u32 = DataContent4::Hole as u32;

pub(crate) fn allocate(c: &mut Context<'_>, args: Allocate4Args) -> Result<()> {
    let file = c.file_for_io(args.stateid, Direction::Write)?;
    check_range(&args)?;
    c.cx.will_block();
    let user_context = file.user_context()?;
    user_context.allocate(&file.node, args.offset, args.length, &mut Wcc::default()).map_err(status::of_store)
}

pub(crate) fn deallocate(c: &mut Context<'_>, args: Allocate4Args) -> Result<()> {
    let file = c.file_for_io(args.stateid, Direction::Write)?;
    check_range(&args)?;
    c.cx.will_block();
    let user_context = file.user_context()?;
    user_context
        .deallocate(&file.node, args.offset, args.length, &mut Wcc::default())
        .map_err(status::of_store)
}

fn check_range(args: &Allocate4Args) -> Result<()> {
    let valid = args.length > 0 && args.offset.checked_add(args.length).is_some();
    if valid { Ok(()) } else { Err(Nfsstat4::Inval) }
}

pub(crate) fn seek(c: &mut Context<'_>, args: Seek4Args) -> Result<()> {
    let file = c.file_for_io(args.stateid, Direction::Read)?;
    let what = match args.what {
        DATA => DataContent::Data,
        HOLE => DataContent::Hole,
        _ => return Err(Nfsstat4::UnionNotsupp),
    };
    let user_context = file.user_context()?;
    let found = user_context.seek(&file.node, args.offset, what).map_err(|error| match error {
        Error::NoDevice => Nfsstat4::Nxio,
        other => status::of_store(other),
    })?;
    let size = user_context.attributes(&file.node).map_err(status::of_store)?.size;
    // The end of the file counts as a hole; where it is the answer there is no more of either.
    let offset = found.unwrap_or(size);
    c.reply.encoder().put(&SeekRes4 { eof: offset >= size, offset });
    Ok(())
}

/// The kernel reads ahead by itself: no hint is taken, which is an answer (RFC 7862 section 15.5.3).
pub(crate) fn io_advise(c: &mut Context<'_>, args: IoAdvise4Args) -> Result<()> {
    c.file_for_io(args.stateid, Direction::Read)?;
    if args.offset.checked_add(args.count).is_none() {
        return Err(Nfsstat4::Inval);
    }
    c.reply.encoder().put(&Bitmap4::EMPTY);
    Ok(())
}
