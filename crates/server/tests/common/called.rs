//! A server's callbacks to its clients, over their own connections.

use std::io::Write as _;

use super::v4::{NFS_OK, Session};
use proto::nfs4::*;
use rpc::message::{CallHeader, ReplyHeader, ReplyStatus};
use xdr::{Decoder, Encoder};

/// A callback.
pub struct Call {
    pub xid: u32,
    pub sequence: CbSequence4Args,
    pub operation: u32,
    pub args: Vec<u8>,
}

/// Receives the next record of a client's connection, which must be a callback.
pub fn call(session: &mut Session) -> Call {
    let record = session.wire.receive().expect("the server calls");
    let mut from = Decoder::new(&record);
    let header = CallHeader::decode(&mut from).unwrap();
    assert_eq!((header.program, header.version, header.procedure), (0x4000_0000, CB_VERSION, CB_COMPOUND));
    let head: CbCompound4Head<'_> = from.get().unwrap();
    assert_eq!((head.minor, head.operations, from.u32().unwrap()), (session.minor, 2, CB_SEQUENCE));
    let sequence: CbSequence4Args = from.get().unwrap();
    assert_eq!(sequence.sessionid, session.id);
    Call { xid: header.xid, sequence, operation: from.u32().unwrap(), args: from.rest().to_vec() }
}

/// Replies to a callback with success, and `body`.
pub fn answer(session: &mut Session, call: &Call, body: &[u8]) {
    let CbSequence4Args { sessionid, sequenceid, slotid, highest_slotid, .. } = call.sequence;
    let target_highest_slotid = highest_slotid;
    let sequenced = CbSequence4ResOk { sessionid, sequenceid, slotid, highest_slotid, target_highest_slotid };
    reply(session, call, NFS_OK, |to| {
        to.u32(2);
        [CB_SEQUENCE, NFS_OK].iter().for_each(|word| to.u32(*word));
        to.put(&sequenced);
        [call.operation, NFS_OK].iter().for_each(|word| to.u32(*word));
        to.raw(body);
    });
}

/// Replies to a callback's CB_SEQUENCE with an error.
pub fn refuse(session: &mut Session, call: &Call, status: Nfsstat4) {
    let status = status as u32;
    reply(session, call, status, |to| [1, CB_SEQUENCE, status].iter().for_each(|word| to.u32(*word)));
}

fn reply(session: &mut Session, call: &Call, status: u32, results: impl FnOnce(&mut Encoder)) {
    let mut to = Encoder::new();
    to.u32(0);
    to.put(&ReplyHeader { xid: call.xid, status: ReplyStatus::Success });
    to.u32(status);
    to.opaque(b"");
    results(&mut to);
    let mark = rpc::record::mark(to.position() - 4).unwrap();
    to.patch_u32(0, mark);
    session.wire.stream.write_all(to.as_slice()).unwrap();
}
