//! What the log says about a request: a span while it runs, and a line when it has ended.
//!
//! Whatever is logged while a request runs carries the span's fields. Span and line are at debug level.
//! Where that level is off, a request costs a relaxed load and a comparison: no field is evaluated.

use std::fmt::Debug;
use std::time::Instant;

use rpc::message::Credential;
use rpc::server::{CallContext, CallError};
use tracing::span::EnteredSpan;

use crate::status::counters::{CallEnd, CallPath, CountedOperation, NO_RESULTS};

/// How a request ended that a program has answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Done<S> {
    /// The status in the reply.
    pub status: S,
    /// Payload bytes, of READ and WRITE.
    pub bytes: u64,
}

/// How a request ended, for the counters. `succeeded` is the status that is no failure.
pub(crate) fn call_end<'a, S: Debug + PartialEq>(
    cx: &CallContext<'_>,
    operation: CountedOperation,
    done: &'a Result<Done<S>, CallError>,
    (succeeded, number): (&S, impl Fn(&S) -> u32),
) -> CallEnd<'a> {
    let data_path = data_path(cx);
    match done {
        Ok(Done { status, bytes }) => {
            let failure = (status != succeeded).then(|| (number(status), status as &dyn Debug));
            CallEnd { operation, data_path, failure, bytes: *bytes }
        }
        Err(_) => CallEnd { operation, data_path, failure: Some(NO_RESULTS), bytes: 0 },
    }
}

/// How a request has come.
pub(crate) const fn data_path(cx: &CallContext<'_>) -> CallPath {
    if cx.is_call_socket { CallPath::Lane } else { CallPath::Wire }
}

/// The span of one request. It ends with [`RequestSpan::end`], or when this is dropped.
pub(crate) struct RequestSpan {
    _span: EnteredSpan,
    /// When the request began; `None` where the span is disabled.
    began: Option<Instant>,
}

impl RequestSpan {
    /// Enters the span of a request to a procedure of `program`.
    #[inline]
    pub(crate) fn enter(cx: &CallContext<'_>, program: &'static str, procedure: &'static str) -> Self {
        let span = tracing::debug_span!(
            "request",
            program,
            version = cx.version,
            procedure,
            xid = %format_args!("{:#010x}", cx.xid),
            peer = %cx.peer.address,
            user = claimed_user(cx),
        );
        let began = (!span.is_disabled()).then(Instant::now);
        Self { _span: span.entered(), began }
    }

    /// Logs how the request ended.
    ///
    /// # Errors
    /// The error that `done` is, for the RPC engine.
    #[inline]
    pub(crate) fn end<S: Debug>(self, done: &Result<Done<S>, CallError>) -> Result<(), CallError> {
        if let Some(began) = self.began {
            let took = began.elapsed();
            match done {
                Ok(Done { status, bytes }) => tracing::debug!(?status, bytes, ?took, "answered"),
                Err(error) => tracing::debug!(%error, ?took, "no results"),
            }
        }
        match done {
            Ok(_) => Ok(()),
            Err(error) => Err(*error),
        }
    }
}

/// The user that the request claims to come from (AUTH_SYS); `None` with AUTH_NONE.
fn claimed_user(cx: &CallContext<'_>) -> Option<u32> {
    match cx.credential {
        Credential::None => None,
        Credential::Sys(sys) => Some(sys.uid),
    }
}
