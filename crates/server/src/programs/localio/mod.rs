//! The LOCALIO program: receives a client's nonce over its NFS connection and passes it to the lane.
//!
//! The result is void whether or not the nonce is known, as the kernel's is. When it is sent, the lane's
//! message, if there is one, is already in the client's Unix socket.

use std::ops::RangeInclusive;
use std::sync::Arc;

use lane::{LaneServer, NfsConnection, Nonce, NonceOutcome};
use proto::localio::{self, Procedure, UuidIsLocalArgs};
use rpc::message::{AuthStat, Credential};
use rpc::server::{CallContext, CallError, Peer, Program, Reply};
use xdr::Decoder;

use crate::programs::request::{Done, RequestSpan, data_path};
use crate::service::{LaneAttempt, Service};
use crate::status::counters::{BegunCall, CallEnd, CountedOperation, NO_RESULTS};

/// The program.
pub(crate) struct Localio {
    service: Arc<Service>,
    lane: Arc<LaneServer>,
}

impl Localio {
    pub(crate) const fn new(service: Arc<Service>, lane: Arc<LaneServer>) -> Self {
        Self { service, lane }
    }
}

impl Program for Localio {
    fn number(&self) -> u32 {
        localio::PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        localio::VERSION..=localio::VERSION
    }

    fn call(
        &self,
        cx: &CallContext<'_>,
        procedure: u32,
        args: &mut Decoder<'_>,
        _: &mut Reply,
    ) -> Result<(), CallError> {
        let procedure = Procedure::from_number(procedure).ok_or(CallError::ProcedureUnavailable)?;
        let begun = BegunCall::now();
        let span = RequestSpan::enter(cx, "LOCALIO", procedure.name());
        let peer = cx.peer.address;
        let nfs = NfsConnection { number: cx.peer.connection, peer, share: cx.peer.share() };
        let done = match procedure {
            Procedure::Null => Ok(Done { status: None, bytes: 0 }),
            Procedure::UuidIsLocal => match cx.credential {
                Credential::Sys(sys) => args.get::<UuidIsLocalArgs>().map_err(CallError::from).map(|args| {
                    self.service.lane_attempts.record(peer);
                    let answer = self.lane.answer(Nonce(args.uuid), nfs);
                    if answer != NonceOutcome::Local {
                        // The kernel's client has sent a stamp of 0 since Linux 5.1; other clients send a
                        // time or a number.
                        let note = LaneAttempt::Refused { answer, kernel: sys.stamp == 0 };
                        self.service.lane_attempts.answered(peer, note);
                    } else if let Some(lane) = self.lane.status().iter().find(|l| l.bound.nfs_peer == peer) {
                        self.service.access.audit.lane(peer, lane.bound.process.pid, lane.bound.process.uid);
                    }
                    Done { status: Some(answer), bytes: 0 }
                }),
                Credential::None => {
                    self.service.lane_attempts.record(peer);
                    self.service.lane_attempts.answered(peer, LaneAttempt::Anonymous);
                    Err(CallError::Denied(AuthStat::TooWeak))
                }
            },
        };
        let end = CallEnd {
            operation: CountedOperation::Localio(procedure),
            data_path: data_path(cx),
            failure: done.is_err().then_some(NO_RESULTS),
            bytes: 0,
        };
        self.service.counters.record(begun, &end);
        span.end(&done)
    }

    fn closed(&self, peer: &Peer) {
        // The lane first: its end is recorded in the attempt.
        self.lane.connection_closed(peer.connection);
        self.service.lane_attempts.closed(peer.address);
    }
}
