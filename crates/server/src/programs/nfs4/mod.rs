//! The NFS program, version 4, minor versions 0 to 2 (RFC 7530, 8881, 7862): one procedure, COMPOUND.
//!
//! `compound` executes the operations of a COMPOUND one after the other, as the table in `operations` says,
//! within `reply_limits`. Each operation is a function in `ops` of the shared `context`. It asks
//! `service::nfs4_state` (clients, sessions, opens, locks) for permission and acts through `store`, admitted
//! by the one check (`access`) as NFSv3 is. `lookup`, `namespace` and `nested` resolve handles and names
//! across exports.
//!
//! Dependencies go one way: `compound` -> `operations` -> `ops` -> the modules that several operations share
//! -> `context`.

mod acl;
mod attributes;
mod back_channel;
mod cb_getattr;
mod compound;
mod conflicts;
mod context;
mod copy_thread;
mod delegations;
mod lookup;
mod namespace;
mod nested;
mod object;
mod operations;
mod ops;
mod owner_seqid;
mod payload_alignment;
mod reply_limits;
mod status;

use std::ops::RangeInclusive;
use std::sync::Arc;

use proto::nfs4;
use rpc::server::{CallContext, CallError, CallTimer, PayloadAlignment, Peer, Program, Reply};
use xdr::Decoder;

pub(crate) use cb_getattr::AttributeReader;
pub use operations::{MaxResult, OPERATIONS, OperationSpec, Position};

use crate::programs::request::RequestSpan;
use crate::service::Service;

/// The program.
pub(crate) struct Nfs4(pub Arc<Service>);

impl Program for Nfs4 {
    fn number(&self) -> u32 {
        nfs4::PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        nfs4::VERSION..=nfs4::VERSION
    }

    fn aligns_payloads(&self) -> bool {
        self.0.access.has_direct_writes()
    }

    fn payload_alignment(&self, _version: u32, procedure: u32, args: &[u8]) -> PayloadAlignment {
        if procedure == nfs4::COMPOUND {
            payload_alignment::of_compound(args)
        } else {
            PayloadAlignment::Anywhere
        }
    }

    fn completed(&self, timer: CallTimer) {
        self.0.counters.record_completion(timer);
    }

    fn postpone(
        &self,
        _: &CallContext<'_>,
        procedure: u32,
        args: &mut Decoder<'_>,
        reply: &mut Reply,
    ) -> std::result::Result<(), CallError> {
        if procedure != nfs4::COMPOUND {
            return Err(CallError::ProcedureUnavailable);
        }
        compound::postpone(args, reply)
    }

    fn call(
        &self,
        cx: &CallContext<'_>,
        procedure: u32,
        args: &mut Decoder<'_>,
        reply: &mut Reply,
    ) -> std::result::Result<(), CallError> {
        if procedure != nfs4::COMPOUND {
            return Err(CallError::ProcedureUnavailable);
        }
        let _span = RequestSpan::enter(cx, "NFS", "COMPOUND");
        compound::run(&self.0, cx, args, reply)
    }

    fn closed(&self, peer: &Peer) {
        self.0.state.callbacks.paths.with(|paths| paths.connection_closed(peer.connection));
    }
}
