//! WRITE and COMMIT (RFC 8881 sections 18.3, 18.32), as durable as NFSv3's: on an `async` export nothing is
//! waited for.

use io::trace;
use proto::nfs4::{Commit4Args, Nfsstat4, StableHow4, Write4Args, Write4ResOk};
use state::Direction;
use store::{Kind, Wcc};

use super::read::for_io;
use crate::nfs4::compound::Compound;
use crate::nfs4::{Result, status};
use crate::programs::nfs3::MAX_TRANSFER;

pub(in crate::programs::nfs4) fn write(c: &mut Compound<'_>, args: Write4Args<'_>) -> Result<()> {
    let Some(handle) = c.handle() else { return attempt(c, args) };
    let offset = args.offset;
    trace::write_start(handle.as_bytes(), offset, args.data.0.len() as u64);
    let done = attempt(c, args);
    match done {
        Ok(()) => trace::write_done(handle.as_bytes(), offset, c.moved),
        Err(status) => trace::write_err(handle.as_bytes(), offset, status as u64),
    }
    done
}

fn attempt(c: &mut Compound<'_>, args: Write4Args<'_>) -> Result<()> {
    let file = for_io(c, args.stateid, Direction::Write)?;
    let sync = file.admitted.sync;
    let asked = if sync { args.stable } else { StableHow4::Unstable };
    let data = &args.data.0[..args.data.0.len().min(MAX_TRANSFER as usize)];
    let acting = file.acting()?;
    if asked != StableHow4::Unstable || acting.modes().write == io::Mode::Direct {
        c.cx.will_block();
    }
    // Should the data be lost between the write and the answer, the client must see another one with its
    // COMMIT.
    let writeverf = c.service.verifier.get();
    let written = acting.write(&file.node, args.offset, data, stability(asked), &mut Wcc::default());
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

pub(in crate::programs::nfs4) fn commit(c: &mut Compound<'_>, args: Commit4Args) -> Result<()> {
    let Some(handle) = c.handle() else { return attempt_commit(c, args) };
    let (offset, count) = (args.offset, args.count.into());
    trace::commit_start(handle.as_bytes(), offset, count);
    let done = attempt_commit(c, args);
    trace::commit_done(handle.as_bytes(), offset, count);
    done
}

fn attempt_commit(c: &mut Compound<'_>, args: Commit4Args) -> Result<()> {
    let file = c.file(Nfsstat4::Isdir)?;
    match file.node.kind() {
        Kind::Regular => {}
        Kind::Directory => return Err(Nfsstat4::Isdir),
        Kind::Symlink => return Err(Nfsstat4::Symlink),
        _ => return Err(Nfsstat4::Inval),
    }
    if args.offset.checked_add(args.count.into()).is_none() {
        return Err(Nfsstat4::Inval);
    }
    if file.admitted.sync {
        c.cx.will_block();
        let acting = file.acting()?;
        acting
            .commit(&file.node, args.offset, args.count.into(), &mut Wcc::default())
            .map_err(status::of_store)?;
    }
    // After the sync: what it, or anybody's until now, found lost has changed it.
    let verifier = c.service.verifier.get();
    c.reply.encoder().fixed(&verifier);
    Ok(())
}

const fn stability(how: StableHow4) -> io::Stability {
    match how {
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
