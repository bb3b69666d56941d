//! The reply's header (RFC 5531 section 9, `reply_body`).

use xdr::{Decode as _, Decoder, Encode, Encoder};

use super::{AuthStat, Error, OpaqueAuth, REPLY};

/// `accept_stat` (section 9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum AcceptStat {
    /// RPC executed successfully.
    Success = 0,
    /// Remote hasn't exported program.
    ProgUnavail = 1,
    /// Remote can't support version number.
    ProgMismatch = 2,
    /// Program can't support procedure.
    ProcUnavail = 3,
    /// Procedure can't decode parameters.
    GarbageArgs = 4,
    /// Memory allocation failure and the like.
    SystemErr = 5,
}

/// `reject_stat` (section 9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum RejectStat {
    /// RPC version number is not 2.
    RpcMismatch = 0,
    /// Remote can't authenticate caller.
    AuthError = 1,
}

/// The status of a call: `reply_stat`, `accept_stat`, `reject_stat` and `auth_stat` in one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyStatus {
    /// Results follow.
    Success,
    /// The server doesn't have the program.
    ProgUnavail,
    /// The server has other versions of the program.
    ProgMismatch {
        /// Lowest version it has.
        low: u32,
        /// Highest version it has.
        high: u32,
    },
    /// The program doesn't have the procedure.
    ProcUnavail,
    /// The arguments could not be decoded.
    GarbageArgs,
    /// The server failed.
    SystemErr,
    /// Denied: another version of RPC.
    RpcMismatch {
        /// Lowest version the server speaks.
        low: u32,
        /// Highest version the server speaks.
        high: u32,
    },
    /// Denied: the credential.
    AuthError(AuthStat),
}

/// `MSG_ACCEPTED` (`reply_stat`, section 9).
const MSG_ACCEPTED: u32 = 0;
/// `MSG_DENIED`.
const MSG_DENIED: u32 = 1;

/// The header of a reply: everything before a procedure's results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyHeader {
    /// The transaction id of the call.
    pub xid: u32,
    /// The status of the call.
    pub status: ReplyStatus,
}

impl ReplyHeader {
    /// The length in bytes of a successful reply's header as encoded here (with an AUTH_NONE verifier).
    pub const SUCCESS_LENGTH: usize = 24;
}

impl Encode for ReplyHeader {
    #[inline]
    fn encode(&self, to: &mut Encoder) {
        let accepted = |to: &mut Encoder, stat: AcceptStat| {
            for word in [self.xid, REPLY, MSG_ACCEPTED, 0, 0, stat as u32] {
                to.u32(word);
            }
        };
        let denied = |to: &mut Encoder, stat: RejectStat| {
            for word in [self.xid, REPLY, MSG_DENIED, stat as u32] {
                to.u32(word);
            }
        };
        match self.status {
            ReplyStatus::Success => accepted(to, AcceptStat::Success),
            ReplyStatus::ProgUnavail => accepted(to, AcceptStat::ProgUnavail),
            ReplyStatus::ProgMismatch { low, high } => {
                accepted(to, AcceptStat::ProgMismatch);
                to.u32(low);
                to.u32(high);
            }
            ReplyStatus::ProcUnavail => accepted(to, AcceptStat::ProcUnavail),
            ReplyStatus::GarbageArgs => accepted(to, AcceptStat::GarbageArgs),
            ReplyStatus::SystemErr => accepted(to, AcceptStat::SystemErr),
            ReplyStatus::RpcMismatch { low, high } => {
                denied(to, RejectStat::RpcMismatch);
                to.u32(low);
                to.u32(high);
            }
            ReplyStatus::AuthError(stat) => {
                denied(to, RejectStat::AuthError);
                to.put(&stat);
            }
        }
    }
}

impl ReplyHeader {
    /// Decodes the header. Results follow in `from` if the status is [`ReplyStatus::Success`].
    ///
    /// # Errors
    /// [`Error::Direction`] for a call, [`Error::Xdr`] for a header that ends early or has an unknown
    /// discriminant.
    pub fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
        let xid = from.u32()?;
        match from.u32()? {
            REPLY => {}
            other => return Err(Error::Direction(other)),
        }
        let status = match from.u32()? {
            MSG_ACCEPTED => {
                let _verifier = OpaqueAuth::decode(from)?;
                match from.u32()? {
                    0 => ReplyStatus::Success,
                    1 => ReplyStatus::ProgUnavail,
                    2 => ReplyStatus::ProgMismatch { low: from.u32()?, high: from.u32()? },
                    3 => ReplyStatus::ProcUnavail,
                    4 => ReplyStatus::GarbageArgs,
                    5 => ReplyStatus::SystemErr,
                    value => return Err(xdr::Error::Discriminant { of: "accept_stat", value }.into()),
                }
            }
            MSG_DENIED => match from.u32()? {
                0 => ReplyStatus::RpcMismatch { low: from.u32()?, high: from.u32()? },
                1 => ReplyStatus::AuthError(from.get()?),
                value => return Err(xdr::Error::Discriminant { of: "reject_stat", value }.into()),
            },
            value => return Err(xdr::Error::Discriminant { of: "reply_stat", value }.into()),
        };
        Ok(Self { xid, status })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_comes_back() {
        for status in [
            ReplyStatus::Success,
            ReplyStatus::ProgUnavail,
            ReplyStatus::ProgMismatch { low: 2, high: 4 },
            ReplyStatus::ProcUnavail,
            ReplyStatus::GarbageArgs,
            ReplyStatus::SystemErr,
            ReplyStatus::RpcMismatch { low: 2, high: 2 },
            ReplyStatus::AuthError(AuthStat::TooWeak),
        ] {
            let mut to = Encoder::new();
            to.put(&ReplyHeader { xid: 5, status });
            let bytes = to.into_vec();
            let mut from = Decoder::new(&bytes);
            assert_eq!(ReplyHeader::decode(&mut from), Ok(ReplyHeader { xid: 5, status }));
            from.finish().unwrap();
            if status == ReplyStatus::Success {
                assert_eq!(bytes.len(), ReplyHeader::SUCCESS_LENGTH);
            }
            for cut in 0..bytes.len() {
                assert!(ReplyHeader::decode(&mut Decoder::new(&bytes[..cut])).is_err(), "cut at {cut}");
            }
        }
    }
}
