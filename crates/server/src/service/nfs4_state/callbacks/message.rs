//! The encoding of a callback: a CB_COMPOUND of one operation, after a CB_SEQUENCE in a session (RFC 8881
//! section 20.2).

use proto::nfs4::{
    CB_SEQUENCE, CbCompound4Head, CbCompound4ResHead, CbSequence4Args, CbSequence4ResOk, MinorVersion,
    Nfsstat4, RequestSlot, Sessionid4,
};
use xdr::{Array, Decoder, Encode, Encoder, Opaque};

/// Why a callback has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallbackError {
    /// There is no connection to the client.
    #[error("there is no path to the client")]
    Path,
    /// The client didn't reply in time.
    #[error("the client doesn't answer")]
    Timeout,
    /// The reply can't be decoded.
    #[error("the client's answer makes no sense")]
    Garbage,
    /// The client replied with an error.
    #[error("the client answers {0:?}")]
    Refused(Nfsstat4),
    /// Too many callbacks are queued or running.
    #[error("too many callbacks are on their way")]
    Busy,
}

/// A callback operation: its number and its encoded arguments.
#[derive(Debug, Clone)]
pub(crate) struct CallbackOperation {
    number: u32,
    args: Vec<u8>,
}

impl CallbackOperation {
    pub(crate) fn new(number: u32, args: &impl Encode) -> Self {
        let mut to = Encoder::new();
        to.put(args);
        Self { number, args: to.into_vec() }
    }
}

/// An encoded CB_COMPOUND.
pub(super) struct CbCompound(Vec<u8>);

impl Encode for CbCompound {
    fn encode(&self, to: &mut Encoder) {
        to.raw(&self.0);
    }
}

impl CbCompound {
    /// With `sequence` for a session, or for an NFSv4.0 client with the `callback_ident` that it chose.
    pub fn new(
        minor: MinorVersion,
        ident: u32,
        sequence: Option<CbSequence4Args>,
        operation: &CallbackOperation,
    ) -> Self {
        let mut to = Encoder::new();
        let operations = if sequence.is_some() { 2 } else { 1 };
        to.put(&CbCompound4Head { tag: Opaque(b""), minor: minor as u32, callback_ident: ident, operations });
        if let Some(sequence) = sequence {
            to.u32(CB_SEQUENCE);
            to.put(&sequence);
        }
        to.u32(operation.number);
        to.raw(&operation.args);
        Self(to.into_vec())
    }
}

/// The arguments of CB_SEQUENCE.
pub(super) const fn sequence_args(sessionid: Sessionid4, slot: RequestSlot) -> CbSequence4Args {
    let RequestSlot { slotid, sequenceid, highest_slotid } = slot;
    let referring_call_lists = Array(Vec::new());
    CbSequence4Args { sessionid, sequenceid, slotid, highest_slotid, cachethis: false, referring_call_lists }
}

/// Decodes a client's reply: the body of the operation's result.
///
/// # Errors
/// The outer error is CB_SEQUENCE's status, the inner one the operation's.
pub(super) fn decode_reply(
    results: &[u8],
    with_sequence: bool,
) -> Result<Result<Vec<u8>, CallbackError>, Nfsstat4> {
    let mut from = Decoder::new(results);
    let mut read = || -> Result<_, xdr::Error> {
        let CbCompound4ResHead { status, results: count, .. } = from.get()?;
        if with_sequence && count > 0 {
            let (_number, sequenced) = (from.u32()?, from.u32()?);
            if sequenced != Nfsstat4::Ok as u32 {
                return Ok(Err(sequenced));
            }
            let _: CbSequence4ResOk = from.get()?;
        }
        if count < 1 + u32::from(with_sequence) {
            return Ok(Ok((status, Vec::new())));
        }
        let (_number, status) = (from.u32()?, from.u32()?);
        Ok(Ok((status, from.rest().to_vec())))
    };
    match read() {
        Err(_) => Ok(Err(CallbackError::Garbage)),
        Ok(Err(sequenced)) => Err(status(sequenced)),
        Ok(Ok((0, body))) => Ok(Ok(body)),
        Ok(Ok((refused, _))) => Ok(Err(CallbackError::Refused(status(refused)))),
    }
}

fn status(number: u32) -> Nfsstat4 {
    Decoder::new(&number.to_be_bytes()).get().unwrap_or(Nfsstat4::Serverfault)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_decoded() {
        let answer =
            |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|word| word.to_be_bytes()).collect() };
        let sequenced = [&[0, 0, 2, 11, 0][..], &[0; 8], &[3, 0, 7]].concat();
        assert_eq!(decode_reply(&answer(&sequenced), true), Ok(Ok(answer(&[7]))));
        assert_eq!(decode_reply(&answer(&[0, 0, 1, 4, 0]), false), Ok(Ok(vec![])));
        let delay = Nfsstat4::Delay as u32;
        assert_eq!(
            decode_reply(&answer(&[delay, 0, 1, 4, delay]), false),
            Ok(Err(CallbackError::Refused(Nfsstat4::Delay)))
        );
        assert_eq!(
            decode_reply(&answer(&[delay, 0, 0]), false),
            Ok(Err(CallbackError::Refused(Nfsstat4::Delay)))
        );
        let moved = Nfsstat4::SeqMisordered as u32;
        assert_eq!(decode_reply(&answer(&[moved, 0, 1, 11, moved]), true), Err(Nfsstat4::SeqMisordered));
        assert_eq!(decode_reply(&answer(&[0, 9]), true), Ok(Err(CallbackError::Garbage)));
    }
}
