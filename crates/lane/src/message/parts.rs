//! The encoding of the types that messages consist of.

use xdr::{Array, Decode, Decoder, Encode, Encoder, Error};

use crate::request::{
    Access, CreateMode, LaneCredential, MAX_GIDS, MAX_HANDLE, MAX_NAME, MAX_PREFETCH, NewFile, OpenStatus,
    PrefetchTargets, Target,
};

impl Encode for Access {
    fn encode(&self, to: &mut Encoder) {
        to.u32(*self as u32);
    }
}

impl<'a> Decode<'a> for Access {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, Error> {
        let value = from.u32()?;
        Self::from_number(value).ok_or(Error::Discriminant { of: "access", value })
    }
}

impl Encode for OpenStatus {
    fn encode(&self, to: &mut Encoder) {
        to.u32(*self as u32);
    }
}

impl<'a> Decode<'a> for OpenStatus {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, Error> {
        let value = from.u32()?;
        Self::from_number(value).ok_or(Error::Discriminant { of: "status", value })
    }
}

impl Encode for LaneCredential {
    fn encode(&self, to: &mut Encoder) {
        to.u32(self.uid);
        to.u32(self.gid);
        to.length(self.gids.len());
        self.gids.iter().for_each(|gid| to.u32(*gid));
    }
}

impl<'a> Decode<'a> for LaneCredential {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, Error> {
        let (uid, gid) = (from.u32()?, from.u32()?);
        let gids = from.get::<Array<u32, MAX_GIDS>>()?.0;
        Ok(Self { uid, gid, gids })
    }
}

const HANDLE: u32 = 1;
const ENTRY: u32 = 2;
const NEW: u32 = 3;
const TREE: u32 = 4;
const MOUNT: u32 = 5;

/// RFC 1813's numbers. Its GUARDED isn't used here.
const UNCHECKED: u32 = 0;
const EXCLUSIVE: u32 = 2;

impl Encode for CreateMode {
    fn encode(&self, to: &mut Encoder) {
        match self {
            Self::Unchecked => to.u32(UNCHECKED),
            Self::Exclusive(verifier) => {
                to.u32(EXCLUSIVE);
                to.fixed(verifier);
            }
        }
    }
}

impl<'a> Decode<'a> for CreateMode {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, Error> {
        match from.u32()? {
            UNCHECKED => Ok(Self::Unchecked),
            EXCLUSIVE => Ok(Self::Exclusive(from.fixed()?)),
            value => Err(Error::Discriminant { of: "how", value }),
        }
    }
}

impl Encode for Target<'_> {
    fn encode(&self, to: &mut Encoder) {
        match self {
            Self::Handle(handle) => {
                to.u32(HANDLE);
                to.opaque(handle);
            }
            Self::Entry { directory, name } => {
                to.u32(ENTRY);
                to.opaque(directory);
                to.opaque(name);
            }
            Self::New(NewFile { directory, name, mode, how }) => {
                to.u32(NEW);
                to.opaque(directory);
                to.opaque(name);
                to.u32(*mode);
                to.put(how);
            }
            Self::Tree(handle) => {
                to.u32(TREE);
                to.opaque(handle);
            }
            Self::Mount(handle) => {
                to.u32(MOUNT);
                to.opaque(handle);
            }
        }
    }
}

impl Encode for PrefetchTargets<'_> {
    fn encode(&self, to: &mut Encoder) {
        let all = match self {
            Self::Handles(handles) => {
                to.u32(HANDLE);
                handles
            }
            Self::Entries { directory, names } => {
                to.u32(ENTRY);
                to.opaque(directory);
                names
            }
        };
        to.length(all.len());
        all.iter().for_each(|one| to.opaque(one));
    }
}

impl<'a> Decode<'a> for PrefetchTargets<'a> {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, Error> {
        let all = |from: &mut Decoder<'a>, most| -> Result<Vec<&'a [u8]>, Error> {
            (0..from.length(MAX_PREFETCH)?).map(|_| from.opaque(most)).collect()
        };
        match from.u32()? {
            HANDLE => Ok(Self::Handles(all(from, MAX_HANDLE)?)),
            ENTRY => {
                let directory = from.opaque(MAX_HANDLE)?;
                Ok(Self::Entries { directory, names: all(from, MAX_NAME)? })
            }
            value => Err(Error::Discriminant { of: "targets", value }),
        }
    }
}

impl<'a> Decode<'a> for Target<'a> {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, Error> {
        match from.u32()? {
            HANDLE => Ok(Self::Handle(from.opaque(MAX_HANDLE)?)),
            ENTRY => Ok(Self::Entry { directory: from.opaque(MAX_HANDLE)?, name: from.opaque(MAX_NAME)? }),
            NEW => Ok(Self::New(NewFile {
                directory: from.opaque(MAX_HANDLE)?,
                name: from.opaque(MAX_NAME)?,
                mode: from.u32()? & 0o7777,
                how: from.get()?,
            })),
            TREE => Ok(Self::Tree(from.opaque(MAX_HANDLE)?)),
            MOUNT => Ok(Self::Mount(from.opaque(MAX_HANDLE)?)),
            value => Err(Error::Discriminant { of: "target", value }),
        }
    }
}
