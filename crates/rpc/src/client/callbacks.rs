//! Calls of the server on the client's connections: the back channel of an NFSv4.1 session (RFC 8881 section
//! 2.10.3.1).

use std::fmt::Debug;

use xdr::{Decoder, Encoder};

use crate::message::{CALL, CallHeader, ReplyHeader, ReplyStatus};
use crate::record;

/// The largest number of replies of one connection that the server hasn't taken yet. A server that makes more
/// calls than that without reading the replies loses the connection.
pub(super) const MAX_UNSENT_REPLIES: usize = 64;

/// A program that the server calls.
pub trait CallbackProgram: Debug + Send + Sync {
    /// Executes a call, and appends its results to `results` if the status is [`ReplyStatus::Success`]. It
    /// runs on the task that drives the connection, so it must not block.
    fn call(&self, header: &CallHeader<'_>, args: &mut Decoder<'_>, results: &mut Encoder) -> ReplyStatus;

    /// A connection on which the server could make calls is lost. The client makes another when it has a call
    /// to make. Must not block.
    fn disconnected(&self) {}
}

/// Whether a record is a call.
pub(super) fn is_call(record: &[u8]) -> bool {
    record.get(4..8).is_some_and(|kind| *kind == CALL.to_be_bytes())
}

/// Executes the call in `record`. Returns the record of the reply with its mark; `None` if the header can't
/// be decoded or the reply is too long.
pub(super) fn execute(program: &dyn CallbackProgram, record: &[u8]) -> Option<Vec<u8>> {
    let mut from = Decoder::new(record);
    let header = CallHeader::decode(&mut from).ok()?;
    let mut results = Encoder::new();
    let status = if header.rpcvers == crate::message::RPC_VERSION {
        program.call(&header, &mut from, &mut results)
    } else {
        ReplyStatus::RpcMismatch { low: crate::message::RPC_VERSION, high: crate::message::RPC_VERSION }
    };
    let mut to = Encoder::new();
    to.u32(0);
    to.put(&ReplyHeader { xid: header.xid, status });
    if status == ReplyStatus::Success {
        to.raw(results.as_slice());
    }
    let mark = record::mark(to.position() - record::MARK).ok()?;
    to.patch_u32(0, mark);
    Some(to.into_vec())
}
