//! The interface of the programs that the engine runs.

use std::ops::RangeInclusive;

use super::{CallContext, CallTimer, Peer, Reply};
use crate::message::AuthStat;

/// The alignment that a program wants for a call's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PayloadAlignment {
    /// Anywhere.
    Anywhere,
    /// Unknown before more of the call has been received.
    NotYet,
    /// The byte at `at` should have an address with the same remainder as `offset` modulo the size of a page.
    At {
        /// The payload's first byte, counted from the beginning of the arguments.
        at: usize,
        /// The payload's offset in its file.
        offset: u64,
    },
}

/// An RPC program in one or more versions.
pub trait Program: Send + Sync + 'static {
    /// Its number.
    fn number(&self) -> u32;

    /// The versions that [`Program::call`] implements.
    fn versions(&self) -> RangeInclusive<u32>;

    /// Runs one procedure and writes its results into `reply`. Called on a worker thread; may block (see
    /// [`CallContext::will_block`]). The engine answers procedure 0 (NULL) itself.
    ///
    /// # Errors
    /// A [`CallError`] replaces the contents of `reply` by the protocol's own error. A panic becomes
    /// [`CallError::SystemError`].
    fn call(
        &self,
        cx: &CallContext<'_>,
        procedure: u32,
        args: &mut xdr::Decoder<'_>,
        reply: &mut Reply,
    ) -> Result<(), CallError>;

    /// Whether calls of all peers are run, also of those that [`Admission`](super::Admission) doesn't admit.
    fn answers_strangers(&self) -> bool {
        false
    }

    /// Answers a call of a connection whose admission isn't decided yet with the program's own "try again
    /// later", as [`Program::call`] would, and does nothing else. The arguments may be truncated anywhere. A
    /// program without such an answer denies the call.
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

    /// Whether [`Program::payload_alignment`] wants any alignment at present. Connections then receive the
    /// beginning of each call separately, which costs small calls something.
    fn aligns_payloads(&self) -> bool {
        false
    }

    /// The alignment of a call's payload, of which `args` is the received part of the arguments. A hint: a
    /// call that arrived in one piece with others, or in fragments, isn't moved.
    fn payload_alignment(&self, version: u32, procedure: u32, args: &[u8]) -> PayloadAlignment {
        let _ = (version, procedure, args);
        PayloadAlignment::Anywhere
    }

    /// The payload of a reply with a [`CallTimer`] was read, or will be sent from its file without being read
    /// by this process. Called on the thread of [`Program::call`].
    fn completed(&self, timer: CallTimer) {
        let _ = timer;
    }

    /// A connection was closed, and none of its calls is running any more.
    fn closed(&self, peer: &Peer) {
        let _ = peer;
    }
}

/// A program that is one function: for programs without lifecycle, and for the servers of tests.
pub struct ProgramFn<F> {
    number: u32,
    versions: RangeInclusive<u32>,
    call: F,
}

impl<F> ProgramFn<F>
where
    F: Fn(&CallContext<'_>, u32, &mut xdr::Decoder<'_>, &mut Reply) -> Result<(), CallError>
        + Send
        + Sync
        + 'static,
{
    /// The program with this number and these versions. `call` is its [`Program::call`].
    #[must_use]
    pub const fn new(number: u32, versions: RangeInclusive<u32>, call: F) -> Self {
        Self { number, versions, call }
    }
}

impl<F> Program for ProgramFn<F>
where
    F: Fn(&CallContext<'_>, u32, &mut xdr::Decoder<'_>, &mut Reply) -> Result<(), CallError>
        + Send
        + Sync
        + 'static,
{
    fn number(&self) -> u32 {
        self.number
    }

    fn versions(&self) -> RangeInclusive<u32> {
        self.versions.clone()
    }

    fn call(
        &self,
        cx: &CallContext<'_>,
        procedure: u32,
        args: &mut xdr::Decoder<'_>,
        reply: &mut Reply,
    ) -> Result<(), CallError> {
        (self.call)(cx, procedure, args, reply)
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
    /// No reply: the call is a duplicate of one in progress, whose reply serves both.
    #[error("not answered")]
    Drop,
    /// No reply, and the connection ends: the client is to repeat its calls on another. A client of NFSv4
    /// doesn't repeat a call while the connection lasts (RFC 8881 section 2.9.2).
    #[error("not answered, and disconnected")]
    Disconnect,
}

impl From<xdr::Error> for CallError {
    fn from(_: xdr::Error) -> Self {
        Self::GarbageArguments
    }
}
