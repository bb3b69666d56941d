//! The `union switch (nfsstat3 status)` of every result but NULL's.

use super::Nfsstat3;
use xdr::{Decode, Decoder, Encode, Encoder, Error};

/// A result: `O` behind `NFS3_OK`, `F` behind any other status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome<O, F> {
    /// `NFS3_OK`.
    Ok(O),
    /// Any other status, never [`Nfsstat3::Ok`].
    Fail(Nfsstat3, F),
}

impl<O, F> Outcome<O, F> {
    /// The status in front of the body.
    #[must_use]
    pub const fn status(&self) -> Nfsstat3 {
        match self {
            Self::Ok(_) => Nfsstat3::Ok,
            Self::Fail(status, _) => *status,
        }
    }

    /// As a `Result`.
    ///
    /// # Errors
    /// The status and the body that came with it.
    pub fn into_result(self) -> Result<O, (Nfsstat3, F)> {
        match self {
            Self::Ok(body) => Ok(body),
            Self::Fail(status, body) => Err((status, body)),
        }
    }
}

impl<O: Encode, F: Encode> Encode for Outcome<O, F> {
    fn encode(&self, to: &mut Encoder) {
        to.put(&self.status());
        match self {
            Self::Ok(body) => to.put(body),
            Self::Fail(status, body) => {
                debug_assert_ne!(*status, Nfsstat3::Ok, "a failure has a status of its own");
                to.put(body);
            }
        }
    }
}

impl<'a, O: Decode<'a>, F: Decode<'a>> Decode<'a> for Outcome<O, F> {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, Error> {
        match from.get()? {
            Nfsstat3::Ok => from.get().map(Self::Ok),
            status => Ok(Self::Fail(status, from.get()?)),
        }
    }
}
