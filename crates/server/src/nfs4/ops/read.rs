//! READ (RFC 8881 section 18.22): small payloads are read into the reply, a large one that ends it stays in the page cache
//! until the socket takes it.

use proto::nfs4::{MinorVersion, Nfsstat4, Read4Args, Stateid4};
use state::Direction;
use store::{Acting, Kind, Node};

use crate::nfs3::MAX_TRANSFER;
use crate::nfs4::compound::Compound;
use crate::nfs4::object::File;
use crate::nfs4::{Result, status};

/// From how many bytes on a payload goes from the page cache to the socket: from where on the engine sends it so.
const SEND_FROM_FILE: u32 = 64 << 10;
/// The end-of-file word and the length word.
const HEAD: usize = 8;

pub(in crate::nfs4) fn read(c: &mut Compound<'_>, args: Read4Args) -> Result<()> {
    let file = for_io(c, args.stateid, Direction::Read)?;
    let acting = file.acting()?;
    let room = u32::try_from(c.room().saturating_sub(HEAD)).unwrap_or(u32::MAX);
    let count = args.count.min(MAX_TRANSFER).min(room);
    let last = c.index == c.operations && !c.cache_this;
    if acting.read_mode(&file.node) != io::Mode::Buffered {
        return fetch(c, &acting, &file.node, args.offset, count, last);
    }
    if last && count >= SEND_FROM_FILE {
        attach(c, &acting, &file.node, args.offset, count)
    } else {
        copy(c, &acting, &file.node, args.offset, count)
    }
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
    let checked = c.service.nfs4.run(|engine, now| engine.check_io(now, asker, &id, &key, direction));
    checked.map_err(status::of_state)?;
    Ok(file)
}

fn head(c: &mut Compound<'_>, eof: bool, count: u32) {
    let to = c.reply.encoder();
    to.bool(eof);
    to.u32(count);
}

/// Past the page cache, or through a page cache that doesn't keep it: into memory of its own, from which it is sent if it ends
/// the reply.
fn fetch(
    c: &mut Compound<'_>,
    acting: &Acting<'_>,
    node: &Node,
    offset: u64,
    count: u32,
    last: bool,
) -> Result<()> {
    c.cx.will_block();
    let (payload, found) = acting.fetch(node, offset, count as usize).map_err(status::of_store)?;
    c.moved = found.count as u64;
    let to = c.reply.encoder();
    to.bool(found.eof);
    if last {
        to.length(found.count);
        c.reply.attach_bytes(Box::new(payload));
    } else {
        to.opaque(payload.as_ref());
    }
    Ok(())
}

/// The payload stays where it is.
fn attach(c: &mut Compound<'_>, acting: &Acting<'_>, node: &Node, offset: u64, count: u32) -> Result<()> {
    let (file, attributes) = acting.read_file(node).map_err(status::of_store)?;
    let left = attributes.size.saturating_sub(offset);
    let count = u32::try_from(left).map_or(count, |left| left.min(count));
    if count >= SEND_FROM_FILE {
        // Sent is what is cached: a send that waited for the disk would hold up all replies behind it.
        acting.warm(&file, offset, count, || c.cx.will_block()).map_err(status::of_store)?;
    }
    head(c, u64::from(count) == left, count);
    c.moved = count.into();
    if count > 0 {
        c.reply.attach_file(file, offset, count);
    }
    Ok(())
}

/// The payload is read to its place in the reply, and the head written before it.
fn copy(c: &mut Compound<'_>, acting: &Acting<'_>, node: &Node, offset: u64, count: u32) -> Result<()> {
    let cx = c.cx;
    head(c, false, 0);
    let to = c.reply.encoder();
    let payload = to.position();
    let buffer = to.buffer();
    buffer.resize(payload + count as usize, 0);
    let found = acting.read_or_wait(node, offset, &mut buffer[payload..], || cx.will_block());
    let found = found.map_err(status::of_store)?;
    to.truncate(payload + found.count);
    to.buffer().resize(payload + found.count + xdr::padding(found.count), 0);
    to.patch_u32(payload - HEAD, u32::from(found.eof));
    to.patch_u32(payload - HEAD / 2, u32::try_from(found.count).unwrap_or(count));
    c.moved = found.count as u64;
    Ok(())
}
