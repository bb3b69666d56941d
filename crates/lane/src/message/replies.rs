//! What a server says.

use xdr::{Array, Decode, Decoder, Encode, Encoder, Error};

use super::VERSIONS;
use crate::about::{About, Changed};
use crate::nonce::{Instance, Nonce};
use crate::request::{MAX_HANDLE, MAX_SOON, Status};

const LOCAL: u32 = 16;
const REFUSED: u32 = 17;
const OPENED: u32 = 18;
const NOT_OPENED: u32 = 19;
const DRAIN: u32 = 20;
const RECALL: u32 = 21;
const GIVEN: u32 = 22;
const MADE: u32 = 23;

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
        /// How many of the interlock's slots the server looks at (after a barrier on all processors); 0:
        /// none, and the client uses none.
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
        /// What else there is to know of it.
        about: About,
        /// What making it has done to its directory: told where it was to be made if it wasn't there (message
        /// Made).
        directory: Option<Box<Changed>>,
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
    /// Files that were asked for ahead, as many as the server saw fit to open. Carries their descriptors, in
    /// this order.
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
    /// What else there is to know of it.
    pub about: About,
}

impl Encode for Given<'_> {
    fn encode(&self, to: &mut Encoder) {
        to.u32(self.index);
        to.u64(self.grant);
        to.opaque(self.handle);
        to.put(&self.about);
    }
}

impl<'a> Decode<'a> for Given<'a> {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, Error> {
        Ok(Self {
            index: from.u32()?,
            grant: from.u64()?,
            handle: from.opaque(MAX_HANDLE)?,
            about: from.get()?,
        })
    }
}

/// Why a server ends a connection before it is a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No protocol version in common.
    #[error("it speaks lane versions {lowest} to {highest}, we speak {} to \
             {}", VERSIONS.start(), VERSIONS.end())]
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
            Self::Opened { serial, grant, generation, verifier, handle, about, directory } => {
                to.u32(if directory.is_some() { MADE } else { OPENED });
                to.u32(*serial);
                to.u64(*grant);
                to.u64(*generation);
                to.fixed(verifier);
                to.opaque(handle);
                to.put(about);
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
            number @ (OPENED | MADE) => Self::Opened {
                serial: from.u32()?,
                grant: from.u64()?,
                generation: from.u64()?,
                verifier: from.fixed()?,
                handle: from.opaque(MAX_HANDLE)?,
                about: from.get()?,
                directory: if number == MADE { Some(Box::new(from.get()?)) } else { None },
            },
            NOT_OPENED => Self::NotOpened { serial: from.u32()?, status: from.get()? },
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
