//! The byte stream of a connection: its records don't depend on the pieces in which it arrives, and their
//! headers survive decoding and encoding.
//!
//! The input is a count, that many lengths of pieces, one byte each, and then the stream.

use rpc::message::{CallHeader, Credential, OpaqueAuth, ReplyHeader};
use rpc::record;
use xdr::{Decoder, Encoder};

/// The longest accepted record in bytes: small, so that the fuzzer finds both sides of the bound.
const MAX_RECORD: usize = 512;

/// Decodes `data` as such an input.
pub fn run(data: &[u8]) {
    let Some((count, rest)) = data.split_first() else { return };
    let (cuts, stream) = rest.split_at(usize::from(*count).min(rest.len()));
    let in_pieces = record::read_in_pieces(stream, cuts, MAX_RECORD);
    assert_eq!(in_pieces, record::read_in_pieces(stream, &[], MAX_RECORD));
    for record in &in_pieces.0 {
        assert!(record.len() <= MAX_RECORD);
        call(record);
        reply(record);
    }
}

/// A call's header, and the credential in it.
fn call(record: &[u8]) {
    let mut from = Decoder::new(record);
    let Ok(header) = CallHeader::decode(&mut from) else { return };
    let Ok(credential) = Credential::from_opaque(&header.credential) else { return };
    if header.rpcvers != rpc::message::RPC_VERSION {
        return;
    }
    let mut to = Encoder::new();
    CallHeader::encode(&mut to, header.xid, header.program, header.version, header.procedure, &credential);
    let mut from = Decoder::new(to.as_slice());
    let again = CallHeader::decode(&mut from).expect("what we encode is a call");
    from.finish().expect("nothing but a header");
    assert_eq!(Credential::from_opaque(&again.credential), Ok(credential));
    assert_eq!(
        (again.xid, again.program, again.version, again.procedure, again.verifier),
        (header.xid, header.program, header.version, header.procedure, OpaqueAuth::NONE)
    );
}

/// A reply's header.
fn reply(record: &[u8]) {
    let Ok(header) = ReplyHeader::decode(&mut Decoder::new(record)) else { return };
    let mut to = Encoder::new();
    to.put(&header);
    let mut from = Decoder::new(to.as_slice());
    assert_eq!(ReplyHeader::decode(&mut from), Ok(header));
    assert_eq!(from.finish(), Ok(()));
}
