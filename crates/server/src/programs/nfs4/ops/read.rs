//! READ (RFC 8881 section 18.22): small payloads are read into the reply, a large one that ends it stays in
//! the page cache until the socket takes it. READ_PLUS's payloads take the same roads.

use io::trace;
use proto::nfs4::{DataContent4, MinorVersion, Nfsstat4, Read4Args, Stateid4};
use state::Direction;
use store::{Acting, Kind, Node, Read};
use xdr::Encoder;

use crate::nfs4::compound::Compound;
use crate::nfs4::object::File;
use crate::nfs4::{Result, status};
use crate::programs::nfs3::MAX_TRANSFER;

/// From how many bytes on a payload goes from the page cache to the socket: from where on the engine sends it
/// so.
const SEND_FROM_FILE: u32 = 64 << 10;

pub(in crate::programs::nfs4) fn read(c: &mut Compound<'_>, args: Read4Args) -> Result<()> {
    let Some(handle) = c.handle() else { return attempt(c, args) };
    let offset = args.offset;
    trace::read_start(handle.as_bytes(), offset, args.count.into());
    let done = attempt(c, args);
    match done {
        Ok(()) => trace::read_done(handle.as_bytes(), offset, c.moved),
        Err(status) => trace::read_err(handle.as_bytes(), offset, status as u64),
    }
    done
}

fn attempt(c: &mut Compound<'_>, args: Read4Args) -> Result<()> {
    let file = for_io(c, args.stateid, Direction::Read)?;
    let acting = file.acting()?;
    let count = room(c, args.count, Head::Read)?;
    Reading { node: &file.node, offset: args.offset, count }.answer(c, &acting, Head::Read)
}

/// How many of `count` bytes the reply has room for, behind `head`. Not none, if any are wanted: a client
/// takes an answer without data that isn't the end of the file for an answer, and asks again.
pub(super) fn room(c: &mut Compound<'_>, count: u32, head: Head) -> Result<u32> {
    c.check_room(head.length() + if count > 0 { xdr::UNIT } else { 0 })?;
    let room = u32::try_from(c.room().saturating_sub(head.length())).unwrap_or(u32::MAX);
    Ok(count.min(MAX_TRANSFER).min(room))
}

/// The current file, if it can be read or written, and the state id allows it.
pub(super) fn for_io(c: &Compound<'_>, id: Stateid4, direction: Direction) -> Result<File> {
    let file = c.file(Nfsstat4::Isdir)?;
    match file.node.kind() {
        Kind::Regular => {}
        Kind::Directory => return Err(Nfsstat4::Isdir),
        Kind::Symlink if c.minor >= MinorVersion::V1 => return Err(Nfsstat4::Symlink),
        _ if c.minor >= MinorVersion::V1 => return Err(Nfsstat4::WrongType),
        _ => return Err(Nfsstat4::Inval),
    }
    let id = c.stateid(id)?;
    let (asker, key) = (c.asker(&id)?, *file.node.handle());
    c.may_io(&file, &id, direction)?;
    let checked = c.service.state.run(|engine, now| engine.check_io(now, asker, &id, &key, direction));
    checked.map_err(status::of_state)?;
    Ok(file)
}

/// What stands before a payload.
#[derive(Debug, Clone, Copy)]
pub(super) enum Head {
    /// READ's: whether it goes to the end of the file.
    Read,
    /// READ_PLUS's, and that of its only stretch, which is data.
    Plus,
}

impl Head {
    /// How many bytes it has, with the payload's length.
    pub const fn length(self) -> usize {
        match self {
            Self::Read => 8,
            Self::Plus => 24,
        }
    }

    /// Appends it, but for the payload's length.
    fn put(self, offset: u64, eof: bool, to: &mut Encoder) {
        to.bool(eof);
        if let Self::Plus = self {
            to.u32(1);
            put_stretch(offset, to);
        }
    }
}

/// Appends what stands before READ_PLUS's data, but for its length.
pub(super) fn put_stretch(offset: u64, to: &mut Encoder) {
    to.u32(DataContent4::Data as u32);
    to.u64(offset);
}

/// Bytes to read, and how.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading<'a> {
    pub node: &'a Node,
    pub offset: u64,
    pub count: u32,
}

impl Reading<'_> {
    /// Reads into the reply, behind `head`, by the road that the export's mode and the payload's size make
    /// best.
    pub fn answer(self, c: &mut Compound<'_>, acting: &Acting<'_>, head: Head) -> Result<()> {
        let last = c.index == c.operations && !c.cache_this;
        let buffered = acting.read_mode(self.node) == io::Mode::Buffered;
        if last && !buffered {
            return self.fetch(c, acting, head);
        }
        if last && self.count >= SEND_FROM_FILE {
            return self.attach(c, acting, head);
        }
        let eof_at = c.reply.encoder().position();
        head.put(self.offset, false, c.reply.encoder());
        let found = self.append(c, acting)?;
        c.reply.encoder().patch_u32(eof_at, u32::from(found.eof));
        Ok(())
    }

    /// Past the page cache, or through a page cache that doesn't keep it: into memory of its own, from which
    /// it is sent.
    fn fetch(self, c: &mut Compound<'_>, acting: &Acting<'_>, head: Head) -> Result<()> {
        c.cx.will_block();
        let fetched = acting.fetch(self.node, self.offset, self.count as usize);
        let (payload, found) = fetched.map_err(status::of_store)?;
        c.moved += found.count as u64;
        let to = c.reply.encoder();
        head.put(self.offset, found.eof, to);
        to.length(found.count);
        c.reply.attach_bytes(Box::new(payload));
        Ok(())
    }

    /// The payload stays where it is.
    fn attach(self, c: &mut Compound<'_>, acting: &Acting<'_>, head: Head) -> Result<()> {
        let (file, attributes) = acting.read_file(self.node).map_err(status::of_store)?;
        let left = attributes.size.saturating_sub(self.offset);
        let count = u32::try_from(left).map_or(self.count, |left| left.min(self.count));
        if count >= SEND_FROM_FILE {
            // Sent is what is cached: a send that waited for the disk would hold up all replies behind it.
            acting.warm(&file, self.offset, count, || c.cx.will_block()).map_err(status::of_store)?;
        }
        head.put(self.offset, u64::from(count) == left, c.reply.encoder());
        c.reply.encoder().u32(count);
        c.moved += u64::from(count);
        if count > 0 {
            c.reply.attach_file(file, self.offset, count);
        }
        Ok(())
    }

    /// Appends the payload and its length; there is more to come in the reply.
    pub fn append(self, c: &mut Compound<'_>, acting: &Acting<'_>) -> Result<Read> {
        if acting.read_mode(self.node) == io::Mode::Buffered {
            return self.copy(c, acting);
        }
        c.cx.will_block();
        let fetched = acting.fetch(self.node, self.offset, self.count as usize);
        let (payload, found) = fetched.map_err(status::of_store)?;
        c.moved += found.count as u64;
        c.reply.encoder().opaque(payload.as_ref());
        Ok(found)
    }

    /// The payload is read to its place in the reply, behind its length.
    fn copy(self, c: &mut Compound<'_>, acting: &Acting<'_>) -> Result<Read> {
        let cx = c.cx;
        let to = c.reply.encoder();
        to.u32(0);
        let payload = to.position();
        let buffer = to.buffer();
        buffer.resize(payload + self.count as usize, 0);
        let found = acting.read_or_wait(self.node, self.offset, &mut buffer[payload..], || cx.will_block());
        let found = found.map_err(status::of_store)?;
        to.truncate(payload + found.count);
        to.buffer().resize(payload + found.count + xdr::padding(found.count), 0);
        to.patch_u32(payload - xdr::UNIT, u32::try_from(found.count).unwrap_or(self.count));
        c.moved += found.count as u64;
        Ok(found)
    }
}
