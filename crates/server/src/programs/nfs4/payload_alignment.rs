//! The place in memory for the payload of a COMPOUND's WRITE, which direct I/O wants aligned, from the part
//! of the request that has arrived.
//!
//! Clients write by SEQUENCE, PUTFH, WRITE. The payload of a WRITE behind other operations isn't aligned.

use proto::nfs4::{FHSIZE, MAX_TAG, Operation, Sequence4Args, StableHow4, Stateid4};
use rpc::server::PayloadAlignment;
use xdr::{Decoder, Error};

/// The smallest payload that is worth aligning, in bytes: no device has smaller blocks.
const MIN_BLOCK: u32 = 512;

const SEQUENCE: u32 = Operation::Sequence.number();
const PUTFH: u32 = Operation::Putfh.number();
const WRITE: u32 = Operation::Write.number();

/// The alignment of the payload of the WRITE in a COMPOUND whose arguments begin with `args`.
pub(super) fn of_compound(args: &[u8]) -> PayloadAlignment {
    // Arguments that can't be decoded may be incomplete.
    find_write(args).unwrap_or(PayloadAlignment::NotYet)
}

fn find_write(args: &[u8]) -> Result<PayloadAlignment, Error> {
    let mut from = Decoder::new(args);
    let _tag = from.opaque(MAX_TAG)?;
    let (_minor, operations) = (from.u32()?, from.u32()?);
    for _ in 0..operations {
        match from.u32()? {
            SEQUENCE => {
                let _: Sequence4Args = from.get()?;
            }
            PUTFH => {
                from.opaque(FHSIZE)?;
            }
            WRITE => {
                let _: Stateid4 = from.get()?;
                let offset = from.u64()?;
                let _stable: StableHow4 = from.get()?;
                let length = from.u32()?;
                let at = args.len() - from.rest().len();
                return Ok(if length < MIN_BLOCK {
                    PayloadAlignment::Anywhere
                } else {
                    PayloadAlignment::At { at, offset }
                });
            }
            _ => break,
        }
    }
    Ok(PayloadAlignment::Anywhere)
}

#[cfg(test)]
mod tests {
    use xdr::Encoder;

    use super::*;

    #[test]
    fn write_behind_sequence_and_putfh_is_found() {
        let mut to = Encoder::new();
        to.opaque(b"tag");
        [2, 3, SEQUENCE].iter().for_each(|word| to.u32(*word));
        to.fixed(&[1; 28]);
        to.u32(1);
        let sequence_ends = to.position();
        to.u32(PUTFH);
        to.opaque(&[7; 44]);
        to.u32(WRITE);
        to.fixed(&[2; 16]);
        to.u64(47_008);
        to.u32(0);
        to.u32(65_536);
        let at = to.position();
        let bytes = to.into_vec();
        assert_eq!(of_compound(&bytes), PayloadAlignment::At { at, offset: 47_008 });
        for length in 0..bytes.len() {
            assert_eq!(of_compound(&bytes[..length]), PayloadAlignment::NotYet, "{length} bytes");
        }
        let mut other = bytes[..sequence_ends].to_vec();
        other.extend(Operation::Getattr.number().to_be_bytes());
        assert_eq!(of_compound(&other), PayloadAlignment::Anywhere);
    }
}
