//! What the engine runs.

use std::ops::RangeInclusive;

use super::{CallContext, Peer, Reply};
use crate::message::AuthStat;

/// Where a call's payload had better lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// Anywhere.
    Anywhere,
    /// That can't be told before more of the call has come.
    NotYet,
    /// The bytes from `at` on should lie at an address that leaves the same remainder as `offset` when
    /// divided by the size of a page.
    At {
        /// Counted from the beginning of the arguments.
        at: usize,
        /// Where they go in their file.
        offset: u64,
    },
}

/// An RPC program in one or more versions.
pub trait Program: Send + Sync + 'static {
    /// Its number.
    fn number(&self) -> u32;

    /// The versions that [`Program::call`] is ready for.
    fn versions(&self) -> RangeInclusive<u32>;

    /// Runs one procedure and writes its results into `reply`. Called on a worker thread; may block (see
    /// [`CallContext::will_block`]). Procedure 0 (NULL) is answered by the engine and never comes here.
    ///
    /// # Errors
    /// A [`CallError`] replaces whatever `reply` holds by the protocol's own error. A panic becomes
    /// [`CallError::SystemError`].
    fn call(
        &self,
        cx: &CallContext<'_>,
        procedure: u32,
        args: &mut xdr::Decoder<'_>,
        reply: &mut Reply,
    ) -> Result<(), CallError>;

    /// Whether everybody is answered, also those whom [`Admission`](super::Admission) doesn't let in.
    fn answers_strangers(&self) -> bool {
        false
    }

    /// Answers a call of a connection that may yet be admitted: "not now, ask again", in the program's own
    /// words, as [`Program::call`] would. Nothing else is to be done. The arguments may be cut off anywhere.
    /// A program that has no words for that denies the call.
    ///
    /// # Errors
    /// As for [`Program::call`].
    fn postpone(
        &self,
        cx: &CallContext<'_>,
        procedure: u32,
        args: &mut xdr::Decoder<'_>,
        reply: &mut Reply,
    ) -> Result<(), CallError> {
        let _ = (cx, procedure, args, reply);
        Err(CallError::Denied(AuthStat::BadCred))
    }

    /// Whether [`Program::place`] has anything to say at present. Then connections receive the beginnings of
    /// calls by themselves, which costs small calls something.
    fn places(&self) -> bool {
        false
    }

    /// Where the payload of a call should lie, of which `args` is what has come of the arguments. A wish: a
    /// call that has come in one piece with others, or in fragments, isn't moved.
    fn place(&self, version: u32, procedure: u32, args: &[u8]) -> Placement {
        let _ = (version, procedure, args);
        Placement::Anywhere
    }

    /// A connection has gone; no call of its is running any more.
    fn closed(&self, peer: &Peer) {
        let _ = peer;
    }
}

/// Why a call has no results (RFC 5531 section 9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// PROC_UNAVAIL.
    #[error("no such procedure")]
    ProcedureUnavailable,
    /// GARBAGE_ARGS.
    #[error("arguments can't be decoded")]
    GarbageArguments,
    /// SYSTEM_ERR.
    #[error("the server failed")]
    SystemError,
    /// AUTH_ERROR.
    #[error("denied: {0}")]
    Denied(AuthStat),
    /// No answer at all: the call is a duplicate of one in progress, whose answer serves both.
    #[error("not answered")]
    Drop,
}

impl From<xdr::Error> for CallError {
    fn from(_: xdr::Error) -> Self {
        Self::GarbageArguments
    }
}
