//! The call's header (RFC 5531 section 9, `call_body`).

use xdr::{Decode as _, Decoder, Encode as _, Encoder};

use super::{CALL, Credential, Error, OpaqueAuth, RPC_VERSION};

/// The header of a call: everything before a procedure's arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallHeader<'a> {
    /// The transaction id, copied into the reply.
    pub xid: u32,
    /// `rpcvers`. With another version than [`RPC_VERSION`] the reply is RPC_MISMATCH, and all fields below
    /// are zero.
    pub rpcvers: u32,
    /// `prog`.
    pub program: u32,
    /// `vers`.
    pub version: u32,
    /// `proc`.
    pub procedure: u32,
    /// `cred`.
    pub credential: OpaqueAuth<'a>,
    /// `verf`.
    pub verifier: OpaqueAuth<'a>,
}

impl<'a> CallHeader<'a> {
    /// Decodes the header. The arguments follow in `from`.
    ///
    /// # Errors
    /// [`Error::Direction`] for a reply, [`Error::Xdr`] for a header that ends early or has an overlong body.
    #[inline]
    pub fn decode(from: &mut Decoder<'a>) -> Result<Self, Error> {
        let xid = from.u32()?;
        match from.u32()? {
            CALL => {}
            other => return Err(Error::Direction(other)),
        }
        let rpcvers = from.u32()?;
        if rpcvers != RPC_VERSION {
            let none = OpaqueAuth::NONE;
            return Ok(Self {
                xid,
                rpcvers,
                program: 0,
                version: 0,
                procedure: 0,
                credential: none,
                verifier: none,
            });
        }
        Ok(Self {
            xid,
            rpcvers,
            program: from.u32()?,
            version: from.u32()?,
            procedure: from.u32()?,
            credential: OpaqueAuth::decode(from)?,
            verifier: OpaqueAuth::decode(from)?,
        })
    }

    /// Encodes a call's header with AUTH_NONE as its verifier. The arguments go behind it.
    pub fn encode(
        to: &mut Encoder,
        xid: u32,
        program: u32,
        version: u32,
        procedure: u32,
        credential: &Credential,
    ) {
        for word in [xid, CALL, RPC_VERSION, program, version, procedure] {
            to.u32(word);
        }
        credential.encode(to);
        OpaqueAuth::NONE.encode(to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_comes_back_and_arguments_follow() {
        let mut to = Encoder::new();
        CallHeader::encode(&mut to, 9, 100_003, 3, 6, &Credential::None);
        to.u32(77);
        let bytes = to.into_vec();
        let mut from = Decoder::new(&bytes);
        let header = CallHeader::decode(&mut from).unwrap();
        assert_eq!((header.xid, header.program, header.version, header.procedure), (9, 100_003, 3, 6));
        assert_eq!((header.credential, header.verifier), (OpaqueAuth::NONE, OpaqueAuth::NONE));
        assert_eq!(from.u32(), Ok(77));
        for cut in 0..bytes.len() - 4 {
            assert!(CallHeader::decode(&mut Decoder::new(&bytes[..cut])).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn replies_and_other_versions_are_told_apart() {
        let reply: Vec<u8> = [9u32, 1, 0].iter().flat_map(|w| w.to_be_bytes()).collect();
        assert_eq!(CallHeader::decode(&mut Decoder::new(&reply)), Err(Error::Direction(1)));
        let version3: Vec<u8> = [9u32, 0, 3].iter().flat_map(|w| w.to_be_bytes()).collect();
        assert_eq!(CallHeader::decode(&mut Decoder::new(&version3)).unwrap().rpcvers, 3);
    }
}
