//! The messages from client to server.

use xdr::{Array, Decode, Decoder, Encode, Encoder, Error};

use super::MAX_RELEASES;
use crate::nonce::Commitment;
use crate::request::{Access, LaneCredential, OpenRequest, PrefetchTargets, Target};

const REGISTER: u32 = 1;
const OPEN: u32 = 2;
const RELEASE: u32 = 3;
const PREFETCH: u32 = 4;
const ASYNC: u32 = 5;
const CALLS: u32 = 6;

/// A message from client to server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaneRequest<'a> {
    /// The first message, and only the first.
    Register {
        /// The lowest protocol version of the client.
        lowest: u32,
        /// The highest.
        highest: u32,
        /// SHA-256 of the nonce that will be sent over an NFS connection.
        commitment: Commitment,
    },
    /// Opens a file. Answered by `Opened` or `NotOpened` with the same serial.
    Open {
        /// The client's number for this request.
        serial: u32,
        /// Grants that the client has closed since the last message.
        releases: Vec<u64>,
        /// The file.
        target: Target<'a>,
        /// The access requested.
        access: Access,
        /// The user.
        credential: LaneCredential,
    },
    /// Grants that the client has closed. Not answered.
    Release(Vec<u64>),
    /// Opens files for reading that will probably be opened next. Answered by one `Prefetched` with the same
    /// serial.
    Prefetch {
        /// The client's number for this request, from the same sequence as those of its Opens.
        serial: u32,
        /// Grants that the client has closed since the last message.
        releases: Vec<u64>,
        /// The files.
        targets: PrefetchTargets<'a>,
        /// The user.
        credential: LaneCredential,
    },
    /// Changes of names and attributes by calls of the NFS connection needn't be durable when they are
    /// answered: client and server share the kernel, and with it every crash, and the client syncs what its
    /// applications sync. Not answered.
    Async,
    /// Requests a call socket: a Unix stream socket for calls of the NFS connection. It takes the place of an
    /// earlier one of this lane. Answered by `CallSocket` or `NotOpened` with the same serial. Since version
    /// 5.
    Calls {
        /// The client's number for this request, from the same sequence as those of its Opens.
        serial: u32,
        /// Grants that the client has closed since the last message.
        releases: Vec<u64>,
    },
}

/// Appends an Open without building a [`LaneRequest`]. `releases` must have at most [`MAX_RELEASES`]
/// elements.
pub fn encode_open(to: &mut Encoder, serial: u32, releases: &[u64], request: &OpenRequest<'_>) {
    to.u32(OPEN);
    to.u32(serial);
    put_releases(to, releases);
    to.put(&request.target);
    to.put(&request.access);
    to.put(request.credential);
}

/// Appends a Prefetch without building a [`LaneRequest`]. `targets` must fit ([`PrefetchTargets::fits`]), and
/// `releases` must have at most [`MAX_RELEASES`] elements.
pub fn encode_prefetch(
    to: &mut Encoder,
    serial: u32,
    releases: &[u64],
    targets: &PrefetchTargets<'_>,
    credential: &LaneCredential,
) {
    to.u32(PREFETCH);
    to.u32(serial);
    put_releases(to, releases);
    to.put(targets);
    to.put(credential);
}

/// Appends a Calls. `releases` must have at most [`MAX_RELEASES`] elements.
pub fn encode_calls(to: &mut Encoder, serial: u32, releases: &[u64]) {
    to.u32(CALLS);
    to.u32(serial);
    put_releases(to, releases);
}

fn put_releases(to: &mut Encoder, releases: &[u64]) {
    to.length(releases.len());
    releases.iter().for_each(|grant| to.u64(*grant));
}

impl Encode for LaneRequest<'_> {
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
            Self::Prefetch { serial, releases, targets, credential } => {
                encode_prefetch(to, *serial, releases, targets, credential);
            }
            Self::Async => to.u32(ASYNC),
            Self::Calls { serial, releases } => encode_calls(to, *serial, releases),
        }
    }
}

impl<'a> Decode<'a> for LaneRequest<'a> {
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
            PREFETCH => Self::Prefetch {
                serial: from.u32()?,
                releases: from.get::<Array<u64, MAX_RELEASES>>()?.0,
                targets: from.get()?,
                credential: from.get()?,
            },
            ASYNC => Self::Async,
            CALLS => Self::Calls { serial: from.u32()?, releases: from.get::<Array<u64, MAX_RELEASES>>()?.0 },
            value => return Err(Error::Discriminant { of: "request", value }),
        })
    }
}
