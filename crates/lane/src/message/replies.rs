//! The messages from server to client.

use xdr::{Array, Decode, Decoder, Encode, Encoder, Error};

use super::VERSIONS;
use crate::attributes::{DirectoryChange, GrantAttributes};
use crate::nonce::{Instance, Nonce};
use crate::request::{MAX_HANDLE, MAX_PREFETCH, OpenStatus};

const LOCAL: u32 = 16;
const REFUSED: u32 = 17;
const OPENED: u32 = 18;
const NOT_OPENED: u32 = 19;
const DRAIN: u32 = 20;
const RECALL: u32 = 21;
const PREFETCHED: u32 = 22;
const CREATED: u32 = 23;
const CALL_SOCKET: u32 = 24;

/// A message from server to client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaneReply<'a> {
    /// The nonce has arrived: both are ends of one NFS connection. Carries the interlock's memory.
    Local {
        /// The protocol version of everything that follows.
        version: u32,
        /// The nonce, which only the true server can know.
        nonce: Nonce,
        /// The server instance.
        instance: Instance,
        /// The most grants that the client may have open.
        grants: u32,
        /// The most Opens that the client may have in flight.
        outstanding: u32,
        /// The number of interlock slots that the server reads (after a barrier on all processors); with 0
        /// the client uses none.
        slots: u32,
    },
    /// No lane. The connection ends.
    Refused(HandshakeRefusal),
    /// The granted file. Carries its descriptor.
    Opened {
        /// The serial of the request.
        serial: u32,
        /// The grant's number on this lane.
        grant: u64,
        /// The interlock generation in which it was granted.
        generation: u64,
        /// The server's write verifier.
        verifier: [u8; 8],
        /// The file's NFS handle.
        handle: &'a [u8],
        /// The file's attributes and I/O modes.
        attributes: GrantAttributes,
        /// The change of the directory; present for a target that is created if missing (message Created).
        directory: Option<Box<DirectoryChange>>,
    },
    /// The Open or Calls was refused.
    NotOpened {
        /// The request's number.
        serial: u32,
        /// The reason.
        status: OpenStatus,
    },
    /// The server is about to stop (the interlock says so, too; this wakes a client without I/O).
    Drain,
    /// Grants of earlier generations have ended.
    Recall {
        /// The first generation that is still valid.
        generation: u64,
    },
    /// The prefetched files, as many as the server has opened. Carries their descriptors, in this order.
    Prefetched {
        /// The request's number.
        serial: u32,
        /// The interlock generation in which they were granted.
        generation: u64,
        /// The server's write verifier.
        verifier: [u8; 8],
        /// The files, at most [`MAX_PREFETCH`].
        files: Vec<PrefetchedFile<'a>>,
    },
    /// The call socket. Carries the client's end of it.
    CallSocket {
        /// The request's number.
        serial: u32,
    },
}

/// One file of a [`LaneReply::Prefetched`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefetchedFile<'a> {
    /// Its index in the request, from 0.
    pub index: u32,
    /// The grant's number on this lane.
    pub grant: u64,
    /// The file's NFS handle.
    pub handle: &'a [u8],
    /// The file's attributes and I/O modes.
    pub attributes: GrantAttributes,
}

impl Encode for PrefetchedFile<'_> {
    fn encode(&self, to: &mut Encoder) {
        to.u32(self.index);
        to.u64(self.grant);
        to.opaque(self.handle);
        to.put(&self.attributes);
    }
}

impl<'a> Decode<'a> for PrefetchedFile<'a> {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, Error> {
        Ok(Self {
            index: from.u32()?,
            grant: from.u64()?,
            handle: from.opaque(MAX_HANDLE)?,
            attributes: from.get()?,
        })
    }
}

/// Why a server ends a connection before it becomes a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeRefusal {
    /// No protocol version in common.
    #[error("it speaks lane versions {lowest} to {highest}, we speak {} to \
             {}", VERSIONS.start(), VERSIONS.end())]
    Version {
        /// The lowest version of the server.
        lowest: u32,
        /// The highest.
        highest: u32,
    },
    /// The server has as many lanes (or waiting connections) as it may, in total or of this user.
    #[error("it has as many lanes as its limits allow")]
    TooMany,
    /// Two connections registered this commitment, or it was used before.
    #[error("the nonce was registered twice or used before")]
    Ambiguous,
    /// The server is draining.
    #[error("it is stopping")]
    Draining,
}

impl Encode for LaneReply<'_> {
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
            Self::Opened { serial, grant, generation, verifier, handle, attributes, directory } => {
                to.u32(if directory.is_some() { CREATED } else { OPENED });
                to.u32(*serial);
                to.u64(*grant);
                to.u64(*generation);
                to.fixed(verifier);
                to.opaque(handle);
                to.put(attributes);
                directory.iter().for_each(|directory| to.put(&**directory));
            }
            Self::NotOpened { serial, status } => {
                to.u32(NOT_OPENED);
                to.u32(*serial);
                to.put(status);
            }
            Self::Drain => to.u32(DRAIN),
            Self::Recall { generation } => {
                to.u32(RECALL);
                to.u64(*generation);
            }
            Self::Prefetched { serial, generation, verifier, files } => {
                to.u32(PREFETCHED);
                to.u32(*serial);
                to.u64(*generation);
                to.fixed(verifier);
                to.length(files.len());
                files.iter().for_each(|file| to.put(file));
            }
            Self::CallSocket { serial } => {
                to.u32(CALL_SOCKET);
                to.u32(*serial);
            }
        }
    }
}

impl<'a> Decode<'a> for LaneReply<'a> {
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
            number @ (OPENED | CREATED) => Self::Opened {
                serial: from.u32()?,
                grant: from.u64()?,
                generation: from.u64()?,
                verifier: from.fixed()?,
                handle: from.opaque(MAX_HANDLE)?,
                attributes: from.get()?,
                directory: if number == CREATED { Some(Box::new(from.get()?)) } else { None },
            },
            NOT_OPENED => Self::NotOpened { serial: from.u32()?, status: from.get()? },
            DRAIN => Self::Drain,
            RECALL => Self::Recall { generation: from.u64()? },
            PREFETCHED => Self::Prefetched {
                serial: from.u32()?,
                generation: from.u64()?,
                verifier: from.fixed()?,
                files: from.get::<Array<PrefetchedFile<'a>, MAX_PREFETCH>>()?.0,
            },
            CALL_SOCKET => Self::CallSocket { serial: from.u32()? },
            value => return Err(Error::Discriminant { of: "reply", value }),
        })
    }
}

impl Encode for HandshakeRefusal {
    fn encode(&self, to: &mut Encoder) {
        match self {
            Self::Version { lowest, highest } => [1, *lowest, *highest].iter().for_each(|word| to.u32(*word)),
            Self::TooMany => to.u32(2),
            Self::Ambiguous => to.u32(3),
            Self::Draining => to.u32(4),
        }
    }
}

impl<'a> Decode<'a> for HandshakeRefusal {
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
