//! The messages of the lane and their bytes (XDR, RFC 4506; one message is one datagram of at most 8 KiB).
//!
//! Requests go from client to server, replies the other way; `docs/lane.md` has the table. A message that is not
//! exactly one of these, to its last byte, ends the connection: both ends are the same program or follow the same
//! page, so there's nothing to be liberal about.

use crate::nonce::{Commitment, Instance, Nonce};
use crate::request::{
    Access, Attributes, Credential, MAX_GIDS, MAX_HANDLE, MAX_NAME, MAX_SOON, OpenRequest, Soon, Status,
    Target,
};
use xdr::{Array, Decode, Decoder, Encode, Encoder, Error};

/// The largest datagram of the protocol, in bytes.
pub const MAX_MESSAGE: usize = 8192;
/// The protocol versions that this crate speaks.
pub const VERSIONS: std::ops::RangeInclusive<u32> = 2..=2;
/// How many releases one message has room for.
pub const MAX_RELEASES: usize = 256;

const REGISTER: u32 = 1;
const OPEN: u32 = 2;
const RELEASE: u32 = 3;
const AHEAD: u32 = 4;
const LOCAL: u32 = 16;
const REFUSED: u32 = 17;
const OPENED: u32 = 18;
const NOT_OPENED: u32 = 19;
const DRAIN: u32 = 20;
const RECALL: u32 = 21;
const GIVEN: u32 = 22;

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
    /// Asks for files that will most likely be opened next, to read them; answered by one `Given` of the same serial.
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
}

/// What a server says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply<'a> {
    /// The nonce has come: we are the two ends of one NFS connection. Carries the interlock's memory.
    Local {
        /// The protocol version of everything that follows.
        version: u32,
        /// The nonce itself, which only the true server can know.
        nonce: Nonce,
        /// The server instance.
        instance: Instance,
        /// How many grants the client may have open.
        grants: u32,
        /// How many Opens the client may have under way.
        outstanding: u32,
        /// How many of the interlock's slots the server looks at (after a barrier on all processors); 0: none, and
        /// the client uses none.
        slots: u32,
    },
    /// There will be no lane on this connection, which ends here.
    Refused(Refusal),
    /// The file. Carries its descriptor.
    Opened {
        /// The request's number.
        serial: u32,
        /// The grant's number on this lane.
        grant: u64,
        /// The interlock's generation under which it was given.
        generation: u64,
        /// The server's write verifier.
        verifier: [u8; 8],
        /// The file's NFS handle.
        handle: &'a [u8],
        /// The file's attributes.
        attributes: Attributes,
    },
    /// No file.
    NotOpened {
        /// The request's number.
        serial: u32,
        /// Why.
        status: Status,
    },
    /// The server is about to stop (the interlock says so, too; this wakes a client that does no I/O).
    Drain,
    /// Grants of generations before this one have ended.
    Recall {
        /// The first generation that still holds.
        generation: u64,
    },
    /// Files that were asked for ahead, as many as the server saw fit to open. Carries their descriptors, in this order.
    Given {
        /// The request's number.
        serial: u32,
        /// The interlock's generation under which they were given.
        generation: u64,
        /// The server's write verifier.
        verifier: [u8; 8],
        /// The files, at most [`MAX_SOON`].
        files: Vec<Given<'a>>,
    },
}

/// One file of a [`Reply::Given`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Given<'a> {
    /// Which of those that were asked for: its place in the request, from 0.
    pub index: u32,
    /// The grant's number on this lane.
    pub grant: u64,
    /// The file's NFS handle.
    pub handle: &'a [u8],
    /// The file's attributes.
    pub attributes: Attributes,
}

impl Encode for Given<'_> {
    fn encode(&self, to: &mut Encoder) {
        to.u32(self.index);
        to.u64(self.grant);
        to.opaque(self.handle);
        to.put(&self.attributes);
    }
}

impl<'a> Decode<'a> for Given<'a> {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, Error> {
        Ok(Self {
            index: from.u32()?,
            grant: from.u64()?,
            handle: from.opaque(MAX_HANDLE)?,
            attributes: from.get()?,
        })
    }
}

/// Why a server ends a connection before it is a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No protocol version in common.
    #[error("it speaks lane versions {lowest} to {highest}, we speak {} to {}", VERSIONS.start(), VERSIONS.end())]
    Version {
        /// The lowest version that the server speaks.
        lowest: u32,
        /// The highest.
        highest: u32,
    },
    /// The server has as many lanes (or waiting connections) as it may, altogether or of this user.
    #[error("it has as many lanes as its limits allow")]
    TooMany,
    /// Two connections registered this commitment, or it was used before.
    #[error("the nonce was registered twice or used before")]
    Ambiguous,
    /// The server is draining.
    #[error("it is stopping")]
    Draining,
}

impl Request<'_> {
    /// Whether these lengths are within the protocol's bounds, so that the message can be sent.
    #[must_use]
    pub fn carries(request: &OpenRequest<'_>) -> bool {
        let target = match request.target {
            Target::Handle(handle) => handle.len() <= MAX_HANDLE,
            Target::Entry { directory, name } => directory.len() <= MAX_HANDLE && name.len() <= MAX_NAME,
        };
        target && request.credential.gids.len() <= MAX_GIDS
    }
}

/// Appends an Open without making a [`Request`] first. `releases` beyond [`MAX_RELEASES`] must not be passed.
pub fn encode_open(to: &mut Encoder, serial: u32, releases: &[u64], request: &OpenRequest<'_>) {
    to.u32(OPEN);
    to.u32(serial);
    put_releases(to, releases);
    to.put(&request.target);
    to.u32(request.access as u32);
    to.put(request.credential);
}

/// Appends an Ahead without making a [`Request`] first; `soon` must fit ([`Soon::fits`]), and `releases` beyond [`MAX_RELEASES`] must not
/// be passed.
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
                access: access(from.u32()?)?,
                credential: from.get()?,
            },
            RELEASE => Self::Release(from.get::<Array<u64, MAX_RELEASES>>()?.0),
            AHEAD => Self::Ahead {
                serial: from.u32()?,
                releases: from.get::<Array<u64, MAX_RELEASES>>()?.0,
                soon: from.get()?,
                credential: from.get()?,
            },
            value => return Err(Error::Discriminant { of: "request", value }),
        })
    }
}

fn access(value: u32) -> Result<Access, Error> {
    Access::from_number(value).ok_or(Error::Discriminant { of: "access", value })
}

impl Encode for Reply<'_> {
    fn encode(&self, to: &mut Encoder) {
        match self {
            Self::Local { version, nonce, instance, grants, outstanding, slots } => {
                to.u32(LOCAL);
                to.u32(*version);
                to.fixed(&nonce.0);
                to.fixed(instance);
                to.u32(*grants);
                to.u32(*outstanding);
                to.u32(*slots);
            }
            Self::Refused(refusal) => {
                to.u32(REFUSED);
                to.put(refusal);
            }
            Self::Opened { serial, grant, generation, verifier, handle, attributes } => {
                to.u32(OPENED);
                to.u32(*serial);
                to.u64(*grant);
                to.u64(*generation);
                to.fixed(verifier);
                to.opaque(handle);
                to.put(attributes);
            }
            Self::NotOpened { serial, status } => {
                to.u32(NOT_OPENED);
                to.u32(*serial);
                to.u32(*status as u32);
            }
            Self::Drain => to.u32(DRAIN),
            Self::Recall { generation } => {
                to.u32(RECALL);
                to.u64(*generation);
            }
            Self::Given { serial, generation, verifier, files } => {
                to.u32(GIVEN);
                to.u32(*serial);
                to.u64(*generation);
                to.fixed(verifier);
                to.length(files.len());
                files.iter().for_each(|file| to.put(file));
            }
        }
    }
}

impl<'a> Decode<'a> for Reply<'a> {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, Error> {
        Ok(match from.u32()? {
            LOCAL => Self::Local {
                version: from.u32()?,
                nonce: Nonce(from.fixed()?),
                instance: from.fixed()?,
                grants: from.u32()?,
                outstanding: from.u32()?,
                slots: from.u32()?,
            },
            REFUSED => Self::Refused(from.get()?),
            OPENED => Self::Opened {
                serial: from.u32()?,
                grant: from.u64()?,
                generation: from.u64()?,
                verifier: from.fixed()?,
                handle: from.opaque(MAX_HANDLE)?,
                attributes: from.get()?,
            },
            NOT_OPENED => Self::NotOpened { serial: from.u32()?, status: status(from.u32()?)? },
            DRAIN => Self::Drain,
            RECALL => Self::Recall { generation: from.u64()? },
            GIVEN => Self::Given {
                serial: from.u32()?,
                generation: from.u64()?,
                verifier: from.fixed()?,
                files: from.get::<Array<Given<'a>, MAX_SOON>>()?.0,
            },
            value => return Err(Error::Discriminant { of: "reply", value }),
        })
    }
}

fn status(value: u32) -> Result<Status, Error> {
    Status::from_number(value).ok_or(Error::Discriminant { of: "status", value })
}

impl Encode for Refusal {
    fn encode(&self, to: &mut Encoder) {
        match self {
            Self::Version { lowest, highest } => [1, *lowest, *highest].iter().for_each(|word| to.u32(*word)),
            Self::TooMany => to.u32(2),
            Self::Ambiguous => to.u32(3),
            Self::Draining => to.u32(4),
        }
    }
}

impl<'a> Decode<'a> for Refusal {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, Error> {
        Ok(match from.u32()? {
            1 => Self::Version { lowest: from.u32()?, highest: from.u32()? },
            2 => Self::TooMany,
            3 => Self::Ambiguous,
            4 => Self::Draining,
            value => return Err(Error::Discriminant { of: "refusal", value }),
        })
    }
}

/// The one message in a datagram.
///
/// # Errors
/// Any [`Error`]; bytes behind the message are one, too.
pub fn decode<'a, M: Decode<'a>>(datagram: &'a [u8]) -> Result<M, Error> {
    let mut decoder = Decoder::new(datagram);
    let message = decoder.get()?;
    decoder.finish()?;
    Ok(message)
}

/// The bytes of a message.
#[must_use]
pub fn encode<M: Encode>(message: &M) -> Vec<u8> {
    let mut encoder = Encoder::new();
    encoder.put(message);
    encoder.into_vec()
}

/// The highest version that is in both ranges.
#[must_use]
pub fn negotiate(lowest: u32, highest: u32) -> Option<u32> {
    let version = highest.min(*VERSIONS.end());
    (version >= lowest && version >= *VERSIONS.start()).then_some(version)
}

/// For fuzzing: decodes the bytes as everything that a datagram can be, and checks that what was understood is
/// encoded to the same bytes again.
///
/// # Panics
/// If it isn't: that's the bug to find.
pub fn decode_any(datagram: &[u8]) {
    // Padding is ignored when it comes and zero when it goes, so compare meanings and lengths, not bytes.
    macro_rules! there_and_back {
        ($message:ty) => {
            if let Ok(message) = decode::<$message>(datagram) {
                let bytes = encode(&message);
                assert_eq!(bytes.len(), datagram.len());
                assert_eq!(decode::<$message>(&bytes).as_ref(), Ok(&message));
            }
        };
    }
    there_and_back!(Request<'_>);
    there_and_back!(Reply<'_>);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_meet_at_the_highest_common_one() {
        assert_eq!(negotiate(2, 2), Some(2));
        assert_eq!(negotiate(2, u32::MAX), Some(2));
        assert_eq!(negotiate(1, 5), Some(2));
        assert_eq!(negotiate(3, 5), None);
        assert_eq!(negotiate(1, 1), None);
        assert_eq!(negotiate(0, 0), None);
        assert_eq!(negotiate(5, 1), None);
    }

    #[test]
    fn the_largest_messages_fit_a_datagram() {
        let open = Request::Open {
            serial: 1,
            releases: vec![7; MAX_RELEASES],
            target: Target::Entry { directory: &[1; MAX_HANDLE], name: &[2; MAX_NAME] },
            access: Access::ReadWrite,
            credential: Credential { uid: 1, gid: 2, gids: vec![3; MAX_GIDS] },
        };
        assert!(encode(&open).len() <= MAX_MESSAGE);
        let opened = Reply::Opened {
            serial: 1,
            grant: 2,
            generation: 3,
            verifier: [4; 8],
            handle: &[5; MAX_HANDLE],
            attributes: Attributes::default(),
        };
        assert!(encode(&opened).len() <= MAX_MESSAGE);
        let file = Given { index: 31, grant: 1, handle: &[5; MAX_HANDLE], attributes: Attributes::default() };
        let given = Reply::Given { serial: 1, generation: 3, verifier: [4; 8], files: vec![file; MAX_SOON] };
        assert!(encode(&given).len() <= MAX_MESSAGE);
    }

    #[test]
    fn what_fits_is_carried_and_what_does_not_is_told() {
        let ahead = |soon: Soon<'_>| {
            let credential = Credential { uid: 1, gid: 2, gids: vec![3; MAX_GIDS] };
            let ahead = Request::Ahead { serial: 1, releases: vec![7; MAX_RELEASES], soon, credential };
            assert_eq!(decode::<Request<'_>>(&encode(&ahead)).as_ref(), Ok(&ahead));
            encode(&ahead).len()
        };
        let handles = Soon::Handles(vec![&[1; MAX_HANDLE]; MAX_SOON]);
        assert!(handles.fits() && ahead(handles) <= MAX_MESSAGE);
        let entries = |length, many| {
            let names: Vec<&[u8]> = vec![&[2; 300][..length]; many];
            Soon::Entries { directory: &[1; MAX_HANDLE], names }
        };
        let long = entries(MAX_NAME, MAX_SOON);
        assert!(!long.fits());
        let many = (1..=MAX_SOON).rev().find(|many| entries(MAX_NAME, *many).fits()).unwrap();
        assert!(many >= 16 && ahead(entries(MAX_NAME, many)) <= MAX_MESSAGE);
        assert!(entries(100, MAX_SOON).fits());
        assert!(!entries(MAX_NAME + 1, 1).fits() && !entries(1, MAX_SOON + 1).fits());
    }

    #[test]
    fn register_to_the_byte() {
        let register = Request::Register { lowest: 1, highest: 2, commitment: Commitment([0xcc; 32]) };
        let mut bytes = vec![0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2];
        bytes.extend([0xcc; 32]);
        assert_eq!(encode(&register), bytes);
        assert_eq!(decode::<Request<'_>>(&bytes), Ok(register));
        bytes.push(0);
        assert_eq!(decode::<Request<'_>>(&bytes), Err(Error::Trailing(1)));
    }
}
