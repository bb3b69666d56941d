//! A callback's bytes: one operation in a CB_COMPOUND, behind a CB_SEQUENCE where there are sessions (RFC
//! 8881 section 20.2).

use proto::nfs4::{
    CB_SEQUENCE, CbCompound4Head, CbSequence4Args, CbSequence4ResOk, MAX_TAG, MinorVersion, Nfsstat4,
};
use xdr::{Array, Decoder, Encode, Encoder, Opaque};

use super::Failure;

/// One operation: its number and its arguments.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    number: u32,
    args: Vec<u8>,
}

impl Operation {
    pub(crate) fn new(number: u32, args: &impl Encode) -> Self {
        let mut to = Encoder::new();
        to.put(args);
        Self { number, args: to.into_vec() }
    }
}

/// A CB_COMPOUND as bytes that are encoded already.
pub(super) struct Compound(Vec<u8>);

impl Encode for Compound {
    fn encode(&self, to: &mut Encoder) {
        to.raw(&self.0);
    }
}

impl Compound {
    /// Of a session's slot, or in 4.0 of a client that wants to be told by `ident` which of its mounts is
    /// meant.
    pub fn new(
        minor: MinorVersion,
        ident: u32,
        sequence: Option<CbSequence4Args>,
        operation: &Operation,
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

/// CB_SEQUENCE of one slot.
pub(super) const fn sequence(
    sessionid: [u8; 16],
    slotid: u32,
    sequenceid: u32,
    highest_slotid: u32,
) -> CbSequence4Args {
    let referring_call_lists = Array(Vec::new());
    CbSequence4Args { sessionid, sequenceid, slotid, highest_slotid, cachethis: false, referring_call_lists }
}

/// What the client answered: the body of the operation's result. The outer error says that the session's slot
/// isn't where we think it is.
pub(super) fn outcome(results: &[u8], with_sequence: bool) -> Result<Result<Vec<u8>, Failure>, Nfsstat4> {
    let mut from = Decoder::new(results);
    let mut read = || -> Result<_, xdr::Error> {
        let (status, _tag, count) = (from.u32()?, from.opaque(MAX_TAG)?, from.u32()?);
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
        Err(_) => Ok(Err(Failure::Garbage)),
        Ok(Err(sequenced)) => Err(status(sequenced)),
        Ok(Ok((0, body))) => Ok(Ok(body)),
        Ok(Ok((refused, _))) => Ok(Err(Failure::Refused(status(refused)))),
    }
}

fn status(number: u32) -> Nfsstat4 {
    Decoder::new(&number.to_be_bytes()).get().unwrap_or(Nfsstat4::Serverfault)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_answers_is_understood() {
        let answer =
            |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|word| word.to_be_bytes()).collect() };
        let sequenced = [&[0, 0, 2, 11, 0][..], &[0; 8], &[3, 0, 7]].concat();
        assert_eq!(outcome(&answer(&sequenced), true), Ok(Ok(answer(&[7]))));
        assert_eq!(outcome(&answer(&[0, 0, 1, 4, 0]), false), Ok(Ok(vec![])));
        let delay = Nfsstat4::Delay as u32;
        assert_eq!(
            outcome(&answer(&[delay, 0, 1, 4, delay]), false),
            Ok(Err(Failure::Refused(Nfsstat4::Delay)))
        );
        assert_eq!(outcome(&answer(&[delay, 0, 0]), false), Ok(Err(Failure::Refused(Nfsstat4::Delay))));
        let moved = Nfsstat4::SeqMisordered as u32;
        assert_eq!(outcome(&answer(&[moved, 0, 1, 11, moved]), true), Err(Nfsstat4::SeqMisordered));
        assert_eq!(outcome(&answer(&[0, 9]), true), Ok(Err(Failure::Garbage)));
    }
}
