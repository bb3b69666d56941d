//! READ (RFC 1813 section 3.3.6).
//!
//! Small payloads are read into the reply. Large ones go from the page cache to the socket (sendfile). In the
//! I/O modes other than buffered, the payload is read into memory of its own.

use std::sync::Arc;

use io::trace;
use proto::nfs3::{Nfsstat3, Outcome, PostOpAttr, Read3Args, Read3Head, Read3ResHead};
use rpc::server::Reply;
use state::AccessKind;
use store::{Node, UserContext};

use super::convert::{fattr, post_op};
use super::{Call, Done, Result, outcome};
use crate::programs::sent_file::SentFile;
use crate::service::limits::MAX_TRANSFER;

/// The payload size in bytes from which the RPC engine uses sendfile. Smaller ones are read here, so that
/// their errors are NFS's.
const SEND_FROM_FILE: u32 = 64 << 10;

/// The result of a READ whose payload is in the reply or attached to it.
struct Answer {
    attributes: PostOpAttr,
    count: u32,
    eof: bool,
}

/// Answers.
pub(super) fn read(call: &Call<'_>, args: Read3Args<'_>, reply: &mut Reply) -> Done {
    let (handle, offset) = (args.file.0, args.offset);
    trace::read_start(handle, offset, args.count.into());
    let start = reply.encoder().position();
    let mut body = None;
    match attempt(call, args, reply, start, &mut body) {
        Ok(count) => {
            trace::read_done(handle, offset, count);
            Done { status: Nfsstat3::Ok, bytes: count }
        }
        Err(fault) => {
            trace::read_err(handle, offset, fault.0 as u64);
            let to = reply.encoder();
            to.truncate(start);
            to.put::<Read3ResHead>(&outcome(Err(fault), body));
            Done { status: fault.0, bytes: 0 }
        }
    }
}

fn attempt(
    call: &Call<'_>,
    args: Read3Args<'_>,
    reply: &mut Reply,
    start: usize,
    body: &mut PostOpAttr,
) -> Result<u64> {
    let admitted = call.admit(args.file.0)?;
    let user_context = admitted.user_context()?;
    let node = user_context.node(args.file.0)?;
    call.check_conflicts(&user_context, &node, AccessKind::Read)?;
    let mut count = args.count.min(MAX_TRANSFER);
    if user_context.read_mode(&node) != io::IoMode::Buffered {
        return fetch(call, &user_context, &node, args.offset, count, reply, body);
    }
    let opened = user_context.read_file(&node);
    if opened.is_err() {
        *body = post_op(&user_context, &node);
    }
    let (file, attributes) = opened?;
    if count >= SEND_FROM_FILE {
        let left = attributes.size.saturating_sub(args.offset);
        count = u32::try_from(left).map_or(count, |left| left.min(count));
        // Brings the data into the page cache: a sendfile that waits for the disk would delay all replies
        // behind it.
        let will_block = || call.cx.will_block();
        if count >= SEND_FROM_FILE && user_context.can_send(&node, &file, args.offset, count, will_block) {
            let eof = u64::from(count) == left;
            head(reply, start, &Answer { attributes: Some(fattr(&attributes)), count, eof });
            trace::read_splice(args.file.0, args.offset, count.into());
            reply.attach_file(Arc::new(SentFile { node, file }), args.offset, count);
            return Ok(count.into());
        }
    }
    // The head has a fixed size: the payload is read to its final position, and the head patched in later.
    head(reply, start, &Answer { attributes: Some(NO_ATTRIBUTES), count: 0, eof: false });
    let payload = reply.encoder().position();
    let buffer = reply.encoder().buffer();
    buffer.resize(payload + count as usize, 0);
    let into = &mut buffer[payload..];
    let found = user_context.read_from(&node, &file, attributes, args.offset, into, || call.cx.will_block());
    if found.is_err() {
        *body = post_op(&user_context, &node);
    }
    let found = found?;
    let count = u32::try_from(found.count).unwrap_or(count);
    let to = reply.encoder();
    to.truncate(payload + found.count);
    to.buffer().resize(payload + found.count + xdr::padding(found.count), 0);
    let mut front = xdr::Encoder::new();
    front.put(&result(&Answer { attributes: Some(fattr(&found.attributes)), count, eof: found.eof }));
    to.buffer()[start..payload].copy_from_slice(front.as_slice());
    Ok(count.into())
}

/// Reads with direct or uncached I/O, into memory that the payload is sent from.
fn fetch(
    call: &Call<'_>,
    user_context: &UserContext<'_>,
    node: &Node,
    offset: u64,
    count: u32,
    reply: &mut Reply,
    body: &mut PostOpAttr,
) -> Result<u64> {
    call.cx.will_block();
    let fetched = user_context.fetch(node, offset, count as usize);
    if fetched.is_err() {
        *body = post_op(user_context, node);
    }
    let (payload, found) = fetched?;
    let count = u32::try_from(found.count).unwrap_or(count);
    let start = reply.encoder().position();
    head(reply, start, &Answer { attributes: Some(fattr(&found.attributes)), count, eof: found.eof });
    reply.attach_bytes(Box::new(payload));
    Ok(count.into())
}

fn head(reply: &mut Reply, start: usize, answer: &Answer) {
    let to = reply.encoder();
    to.truncate(start);
    to.put(&result(answer));
}

const fn result(answer: &Answer) -> Read3ResHead {
    Outcome::Ok(Read3Head {
        attributes: answer.attributes,
        count: answer.count,
        eof: answer.eof,
        length: answer.count,
    })
}

/// A placeholder for attributes.
const NO_ATTRIBUTES: proto::nfs3::Fattr3 = proto::nfs3::Fattr3 {
    kind: proto::nfs3::Ftype3::Reg,
    mode: 0,
    nlink: 0,
    uid: 0,
    gid: 0,
    size: 0,
    used: 0,
    rdev: proto::nfs3::Specdata3 { specdata1: 0, specdata2: 0 },
    fsid: 0,
    fileid: 0,
    atime: proto::nfs3::Nfstime3 { seconds: 0, nseconds: 0 },
    mtime: proto::nfs3::Nfstime3 { seconds: 0, nseconds: 0 },
    ctime: proto::nfs3::Nfstime3 { seconds: 0, nseconds: 0 },
};
