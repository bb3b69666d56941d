//! WRITE and COMMIT (RFC 8881 sections 18.3, 18.32), with NFSv3's durability: on an `async` export they don't
//! wait for the disk.

use io::trace;
use proto::nfs4::{Commit4Args, Nfsstat4, StableHow4, Write4Args, Write4ResOk};
use state::Direction;
use store::{FileKind, Wcc};

use crate::programs::nfs4::context::Context;
use crate::programs::nfs4::status::{self, Result};
use crate::service::limits::MAX_TRANSFER;

pub(crate) fn write(c: &mut Context<'_>, args: Write4Args<'_>) -> Result<()> {
    let Some(handle) = c.data_handle() else { return attempt(c, args) };
    let offset = args.offset;
    trace::write_start(handle.as_bytes(), offset, args.data.0.len() as u64);
    let done = attempt(c, args);
    match done {
        Ok(()) => trace::write_done(handle.as_bytes(), offset, c.moved),
        Err(status) => trace::write_err(handle.as_bytes(), offset, status as u64),
    }
    done
}

fn attempt(c: &mut Context<'_>, args: Write4Args<'_>) -> Result<()> {
    let file = c.file_for_io(args.stateid, Direction::Write)?;
    let sync = file.admitted.sync;
    let stable = if sync { args.stable } else { StableHow4::Unstable };
    let data = &args.data.0[..args.data.0.len().min(MAX_TRANSFER as usize)];
    let user_context = file.user_context()?;
    if stable != StableHow4::Unstable || user_context.modes().write == io::IoMode::Direct {
        c.cx.will_block();
    }
    // Read before the write: if the data is lost before the reply, COMMIT returns another verifier.
    let writeverf = c.service.verifier.get();
    let written = user_context.write_without_wcc(&file.node, args.offset, data, stability(stable));
    let written = written.map_err(status::of_store)?;
    c.moved = written.count as u64;
    let committed = stable_how(written.committed);
    c.reply.encoder().put(&Write4ResOk {
        count: u32::try_from(written.count).unwrap_or(MAX_TRANSFER),
        committed: if sync { committed } else { committed.max(args.stable) },
        writeverf,
    });
    Ok(())
}

pub(crate) fn commit(c: &mut Context<'_>, args: Commit4Args) -> Result<()> {
    let Some(handle) = c.data_handle() else { return attempt_commit(c, args) };
    let (offset, count) = (args.offset, args.count.into());
    trace::commit_start(handle.as_bytes(), offset, count);
    let done = attempt_commit(c, args);
    trace::commit_done(handle.as_bytes(), offset, count);
    done
}

fn attempt_commit(c: &mut Context<'_>, args: Commit4Args) -> Result<()> {
    let file = c.file(Nfsstat4::Isdir)?;
    match file.node.kind() {
        FileKind::Regular => {}
        FileKind::Directory => return Err(Nfsstat4::Isdir),
        FileKind::Symlink => return Err(Nfsstat4::Symlink),
        _ => return Err(Nfsstat4::Inval),
    }
    if args.offset.checked_add(args.count.into()).is_none() {
        return Err(Nfsstat4::Inval);
    }
    if file.admitted.sync {
        c.cx.will_block();
        let user_context = file.user_context()?;
        user_context
            .commit(&file.node, args.offset, args.count.into(), &mut Wcc::default())
            .map_err(status::of_store)?;
    }
    // Read after the sync: data that this sync or an earlier one found lost has changed the verifier.
    let verifier = c.service.verifier.get();
    c.reply.encoder().fixed(&verifier);
    Ok(())
}

const fn stability(stable: StableHow4) -> io::Stability {
    match stable {
        StableHow4::Unstable => io::Stability::Unstable,
        StableHow4::DataSync => io::Stability::DataSync,
        StableHow4::FileSync => io::Stability::FileSync,
    }
}

const fn stable_how(stability: io::Stability) -> StableHow4 {
    match stability {
        io::Stability::Unstable => StableHow4::Unstable,
        io::Stability::DataSync => StableHow4::DataSync,
        io::Stability::FileSync => StableHow4::FileSync,
    }
}
