//! READ and READ_PLUS (RFC 8881 section 18.22, RFC 7862 section 15.10).
//!
//! Small payloads are read into the reply. A large one at its end stays in the page cache, from where it goes
//! to the socket. READ_PLUS sends a hole as its length.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use io::trace;
use proto::nfs4::{DataContent4, Read4Args};
use state::Direction;
use store::{Attributes, DataContent, Extent, Node, ReadResult, UserContext};
use xdr::Encoder;

use crate::programs::nfs4::context::Context;
use crate::programs::nfs4::status::{self, Result};
use crate::programs::sent_file::SentFile;
use crate::service::limits::MAX_TRANSFER;

/// The smallest payload that goes from the page cache to the socket, in bytes: `rpc` sends smaller ones from
/// memory.
const MIN_SENDFILE: u32 = 64 << 10;
/// The most extents in a READ_PLUS answer: each costs two lseek(2) calls.
const MAX_EXTENTS: usize = 64;
/// The longest head of an extent, in bytes: "a hole", its offset and its length.
const EXTENT_HEAD: usize = 20;

pub(crate) fn read(c: &mut Context<'_>, args: Read4Args) -> Result<()> {
    let Some(handle) = c.data_handle() else { return attempt(c, args) };
    let offset = args.offset;
    trace::read_start(handle.as_bytes(), offset, args.count.into());
    let done = attempt(c, args);
    match done {
        Ok(()) => trace::read_done(handle.as_bytes(), offset, c.moved),
        Err(status) => trace::read_err(handle.as_bytes(), offset, status as u64),
    }
    done
}

fn attempt(c: &mut Context<'_>, args: Read4Args) -> Result<()> {
    let file = c.file_for_io(args.stateid, Direction::Read)?;
    let user_context = file.user_context()?;
    let count = room_for_data(c, args.count, Head::Read)?;
    Reading { node: &file.node, offset: args.offset, count }.answer(c, &user_context, Head::Read)
}

pub(crate) fn read_plus(c: &mut Context<'_>, args: Read4Args) -> Result<()> {
    let file = c.file_for_io(args.stateid, Direction::Read)?;
    let user_context = file.user_context()?;
    let count = room_for_data(c, args.count, Head::Plus)?;
    let found = user_context.extents(&file.node, args.offset, count.into(), MAX_EXTENTS);
    let (extents, eof) = found.map_err(status::of_store)?;
    let whole = |extent: &Extent| Reading {
        node: &file.node,
        offset: extent.offset,
        count: u32::try_from(extent.length).unwrap_or(count),
    };
    if let [Extent { what: DataContent::Data, .. }] = extents[..] {
        return whole(&extents[0]).answer(c, &user_context, Head::Plus);
    }
    let head_at = c.reply.encoder().position();
    c.reply.encoder().bool(eof);
    c.reply.encoder().u32(0);
    let mut put = 0;
    for extent in &extents {
        let room = c.room().saturating_sub(EXTENT_HEAD);
        let to = c.reply.encoder();
        if room == 0 {
            to.patch_u32(head_at, u32::from(false));
            break;
        }
        put += 1;
        match extent.what {
            DataContent::Hole => {
                to.u32(DataContent4::Hole as u32);
                to.u64(extent.offset);
                to.u64(extent.length);
            }
            DataContent::Data => {
                put_data_head(extent.offset, to);
                let mut reading = whole(extent);
                let requested = reading.count;
                reading.count = requested.min(u32::try_from(room).unwrap_or(u32::MAX));
                let found = reading.append(c, &user_context)?;
                if found.count < requested as usize {
                    // No room is left, or the file has become shorter: another extent would leave a gap.
                    c.reply.encoder().patch_u32(head_at, u32::from(found.eof));
                    break;
                }
            }
        }
    }
    c.reply.encoder().patch_u32(head_at + xdr::UNIT, put);
    Ok(())
}

/// How many of `count` bytes the reply has room for, behind `head`.
///
/// # Errors
/// Those of [`Context::check_room`] where it has room for none: a client would repeat a READ that returns no
/// data before the end of the file for ever.
fn room_for_data(c: &mut Context<'_>, count: u32, head: Head) -> Result<u32> {
    c.check_room(head.length() + if count > 0 { xdr::UNIT } else { 0 })?;
    let room = u32::try_from(c.room().saturating_sub(head.length())).unwrap_or(u32::MAX);
    Ok(count.min(MAX_TRANSFER).min(room))
}

/// The part of the result before a payload.
#[derive(Debug, Clone, Copy)]
enum Head {
    /// READ's: whether the payload reaches the end of the file.
    Read,
    /// READ_PLUS's, and that of its only extent, which is data.
    Plus,
}

impl Head {
    /// Its length with the payload's length word, in bytes.
    const fn length(self) -> usize {
        match self {
            Self::Read => 8,
            Self::Plus => 24,
        }
    }

    /// Appends it without the payload's length.
    fn put(self, offset: u64, eof: bool, to: &mut Encoder) {
        to.bool(eof);
        if let Self::Plus = self {
            to.u32(1);
            put_data_head(offset, to);
        }
    }
}

/// Appends the head of a READ_PLUS extent of data, without its length.
fn put_data_head(offset: u64, to: &mut Encoder) {
    to.u32(DataContent4::Data as u32);
    to.u64(offset);
}

/// A range of a file that is read.
#[derive(Debug, Clone, Copy)]
struct Reading<'a> {
    node: &'a Arc<Node>,
    offset: u64,
    count: u32,
}

impl Reading<'_> {
    /// Appends `head` and the payload, in the way that suits the export's I/O mode and the payload's size.
    fn answer(mut self, c: &mut Context<'_>, user_context: &UserContext<'_>, head: Head) -> Result<()> {
        let last = c.index == c.operations && !c.cache_this;
        let buffered = user_context.read_mode(self.node) == io::IoMode::Buffered;
        if last && !buffered {
            return self.fetch(c, user_context, head);
        }
        let mut opened = None;
        if last && self.count >= MIN_SENDFILE {
            let (file, attributes) = user_context.read_file(self.node).map_err(status::of_store)?;
            let left = attributes.size.saturating_sub(self.offset);
            self.count = u32::try_from(left).map_or(self.count, |left| left.min(self.count));
            if self.can_send(c, user_context, &file) {
                self.attach(c, file, head, u64::from(self.count) == left);
                return Ok(());
            }
            opened = Some((file, attributes));
        }
        let eof_at = c.reply.encoder().position();
        head.put(self.offset, false, c.reply.encoder());
        let found = match opened {
            Some(opened) => self.copy(c, user_context, opened),
            None => self.append(c, user_context),
        }?;
        c.reply.encoder().patch_u32(eof_at, u32::from(found.eof));
        Ok(())
    }

    /// Reads past the page cache, or through it without leaving the data there, into memory of its own.
    fn fetch(self, c: &mut Context<'_>, user_context: &UserContext<'_>, head: Head) -> Result<()> {
        c.cx.will_block();
        let fetched = user_context.fetch(self.node, self.offset, self.count as usize);
        let (payload, found) = fetched.map_err(status::of_store)?;
        c.moved += found.count as u64;
        let to = c.reply.encoder();
        head.put(self.offset, found.eof, to);
        to.length(found.count);
        c.reply.attach_bytes(Box::new(payload));
        Ok(())
    }

    /// Whether the payload is large enough to be sent from the file, and can be. A send that waited for the
    /// disk would hold up all replies behind it, so this waits.
    fn can_send(self, c: &Context<'_>, user_context: &UserContext<'_>, file: &OwnedFd) -> bool {
        let will_block = || c.cx.will_block();
        self.count >= MIN_SENDFILE
            && user_context.can_send(self.node, file, self.offset, self.count, will_block)
    }

    /// Attaches the payload to the reply: it stays in the page cache until it is sent.
    fn attach(self, c: &mut Context<'_>, file: Arc<OwnedFd>, head: Head, eof: bool) {
        head.put(self.offset, eof, c.reply.encoder());
        c.reply.encoder().u32(self.count);
        c.moved += u64::from(self.count);
        let file = SentFile { node: Arc::clone(self.node), file };
        c.reply.attach_file(Arc::new(file), self.offset, self.count);
    }

    /// Appends the payload and its length to a reply that isn't complete with them.
    fn append(self, c: &mut Context<'_>, user_context: &UserContext<'_>) -> Result<ReadResult> {
        if user_context.read_mode(self.node) == io::IoMode::Buffered {
            let opened = user_context.read_file(self.node).map_err(status::of_store)?;
            return self.copy(c, user_context, opened);
        }
        c.cx.will_block();
        let fetched = user_context.fetch(self.node, self.offset, self.count as usize);
        let (payload, found) = fetched.map_err(status::of_store)?;
        c.moved += found.count as u64;
        c.reply.encoder().opaque(payload.as_ref());
        Ok(found)
    }

    /// Reads the payload into the reply, behind its length.
    fn copy(
        self,
        c: &mut Context<'_>,
        user_context: &UserContext<'_>,
        (file, attributes): (Arc<OwnedFd>, Attributes),
    ) -> Result<ReadResult> {
        let cx = c.cx;
        let to = c.reply.encoder();
        to.u32(0);
        let payload = to.position();
        let buffer = to.buffer();
        buffer.resize(payload + self.count as usize, 0);
        let into = &mut buffer[payload..];
        let found =
            user_context.read_from(self.node, &file, attributes, self.offset, into, || cx.will_block());
        let found = found.map_err(status::of_store)?;
        to.truncate(payload + found.count);
        to.buffer().resize(payload + found.count + xdr::padding(found.count), 0);
        to.patch_u32(payload - xdr::UNIT, u32::try_from(found.count).unwrap_or(self.count));
        c.moved += found.count as u64;
        Ok(found)
    }
}
