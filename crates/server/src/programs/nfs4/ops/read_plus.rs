//! READ_PLUS (RFC 7862 section 15.10): what is a hole goes as its length. A stretch that is all data goes as
//! READ's payload does.

use proto::nfs4::{DataContent4, Read4Args};
use state::Direction;
use store::{Extent, Seek};

use super::read::{Head, Reading, for_io, put_stretch, room};
use crate::nfs4::compound::Compound;
use crate::nfs4::{Result, status};

/// The most stretches of an answer: each costs two lseek(2) calls.
const MAX_STRETCHES: usize = 64;
/// "A hole", its offset and its length: the longest head of a stretch.
const STRETCH_HEAD: usize = 20;

pub(in crate::programs::nfs4) fn read_plus(c: &mut Compound<'_>, args: Read4Args) -> Result<()> {
    let file = for_io(c, args.stateid, Direction::Read)?;
    let acting = file.acting()?;
    let count = room(c, args.count, Head::Plus)?;
    let found = acting.extents(&file.node, args.offset, count.into(), MAX_STRETCHES);
    let (stretches, eof) = found.map_err(status::of_store)?;
    let whole = |stretch: &Extent| Reading {
        node: &file.node,
        offset: stretch.offset,
        count: u32::try_from(stretch.length).unwrap_or(count),
    };
    if let [Extent { what: Seek::Data, .. }] = stretches[..] {
        return whole(&stretches[0]).answer(c, &acting, Head::Plus);
    }
    let head_at = c.reply.encoder().position();
    c.reply.encoder().bool(eof);
    c.reply.encoder().u32(0);
    let mut put = 0;
    for stretch in &stretches {
        let room = c.room().saturating_sub(STRETCH_HEAD);
        let to = c.reply.encoder();
        if room == 0 {
            to.patch_u32(head_at, u32::from(false));
            break;
        }
        put += 1;
        match stretch.what {
            Seek::Hole => {
                to.u32(DataContent4::Hole as u32);
                to.u64(stretch.offset);
                to.u64(stretch.length);
            }
            Seek::Data => {
                put_stretch(stretch.offset, to);
                let mut reading = whole(stretch);
                let wanted = reading.count;
                reading.count = wanted.min(u32::try_from(room).unwrap_or(u32::MAX));
                let found = reading.append(c, &acting)?;
                if found.count < wanted as usize {
                    // No room for more, or the file has become shorter: what follows would leave a gap.
                    c.reply.encoder().patch_u32(head_at, u32::from(found.eof));
                    break;
                }
            }
        }
    }
    c.reply.encoder().patch_u32(head_at + xdr::UNIT, put);
    Ok(())
}
