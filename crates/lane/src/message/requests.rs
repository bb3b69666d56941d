//! What a client says.

use xdr::{Array, Decode, Decoder, Encode, Encoder, Error};

use super::MAX_RELEASES;
use crate::nonce::Commitment;
use crate::request::{Access, Credential, OpenRequest, Soon, Target};

const REGISTER: u32 = 1;
const OPEN: u32 = 2;
const RELEASE: u32 = 3;
const AHEAD: u32 = 4;
const ASYNC: u32 = 5;

/// What a client says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request<'a> {
    /// The first message, and only the first.
    Register {
        /// The lowest protocol version that the client speaks.
        lowest: u32,
        /// The highest.
        highest: u32,
        /// SHA-256 of the nonce that will come over an NFS connection.
        commitment: Commitment,
    },
    /// Asks for a file; answered by `Opened` or `NotOpened` of the same serial.
    Open {
        /// The client's number for this request.
        serial: u32,
        /// Grants that the client has closed since the last message.
        releases: Vec<u64>,
        /// Which file.
        target: Target<'a>,
        /// What for.
        access: Access,
        /// On whose behalf.
        credential: Credential,
    },
    /// Grants that the client has closed. Not answered.
    Release(Vec<u64>),
    /// Asks for files that will most likely be opened next, to read them; answered by one `Given` of the same
    /// serial.
    Ahead {
        /// The client's number for this request, from the same row as those of its Opens.
        serial: u32,
        /// Grants that the client has closed since the last message.
        releases: Vec<u64>,
        /// Which files.
        soon: Soon<'a>,
        /// On whose behalf.
        credential: Credential,
    },
    /// What calls of the NFS connection change of names and attributes needn't be durable when they are
    /// answered: they share the kernel, and with it every crash, and the client syncs what its applications
    /// sync. Not answered.
    Async,
}

/// Appends an Open without making a [`Request`] first. `releases` beyond [`MAX_RELEASES`] must not be passed.
pub fn encode_open(to: &mut Encoder, serial: u32, releases: &[u64], request: &OpenRequest<'_>) {
    to.u32(OPEN);
    to.u32(serial);
    put_releases(to, releases);
    to.put(&request.target);
    to.put(&request.access);
    to.put(request.credential);
}

/// Appends an Ahead without making a [`Request`] first; `soon` must fit ([`Soon::fits`]), and `releases`
/// beyond [`MAX_RELEASES`] must not be passed.
pub fn encode_ahead(
    to: &mut Encoder,
    serial: u32,
    releases: &[u64],
    soon: &Soon<'_>,
    credential: &Credential,
) {
    to.u32(AHEAD);
    to.u32(serial);
    put_releases(to, releases);
    to.put(soon);
    to.put(credential);
}

fn put_releases(to: &mut Encoder, releases: &[u64]) {
    to.length(releases.len());
    releases.iter().for_each(|grant| to.u64(*grant));
}

impl Encode for Request<'_> {
    fn encode(&self, to: &mut Encoder) {
        match self {
            Self::Register { lowest, highest, commitment } => {
                to.u32(REGISTER);
                to.u32(*lowest);
                to.u32(*highest);
                to.fixed(&commitment.0);
            }
            Self::Open { serial, releases, target, access, credential } => {
                let request = OpenRequest { target: *target, access: *access, credential };
                encode_open(to, *serial, releases, &request);
            }
            Self::Release(releases) => {
                to.u32(RELEASE);
                put_releases(to, releases);
            }
            Self::Ahead { serial, releases, soon, credential } => {
                encode_ahead(to, *serial, releases, soon, credential);
            }
            Self::Async => to.u32(ASYNC),
        }
    }
}

impl<'a> Decode<'a> for Request<'a> {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, Error> {
        Ok(match from.u32()? {
            REGISTER => Self::Register {
                lowest: from.u32()?,
                highest: from.u32()?,
                commitment: Commitment(from.fixed()?),
            },
            OPEN => Self::Open {
                serial: from.u32()?,
                releases: from.get::<Array<u64, MAX_RELEASES>>()?.0,
                target: from.get()?,
                access: from.get()?,
                credential: from.get()?,
            },
            RELEASE => Self::Release(from.get::<Array<u64, MAX_RELEASES>>()?.0),
            AHEAD => Self::Ahead {
                serial: from.u32()?,
                releases: from.get::<Array<u64, MAX_RELEASES>>()?.0,
                soon: from.get()?,
                credential: from.get()?,
            },
            ASYNC => Self::Async,
            value => return Err(Error::Discriminant { of: "request", value }),
        })
    }
}
