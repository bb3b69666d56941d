//! The NFS program, version 4, minor versions 0 to 2 (RFC 7530, 8881, 7862): one procedure, COMPOUND.
//!
//! `compound` runs a COMPOUND's operations one after the other, within the bounds of `room`; each works on
//! what is `current`, is one function in `ops`, which asks `state_manager` (clients, sessions, opens, locks)
//! whether it may and does it in `store`, through the one check (`access`) as NFSv3 does. `namespace` joins
//! the exports under one root, `nested` those that lie in one another.

mod acl;
mod attributes;
mod callbacks;
mod clock;
mod compound;
mod copies;
mod current;
mod dispatch;
mod effect;
mod fsfacts;
mod inherited;
mod lock_file;
mod namespace;
mod nested;
mod object;
mod ops;
mod owners;
mod place;
mod records;
mod room;
mod settable;
mod state_manager;
mod status;
mod users;
mod v40;
mod writers;

use std::ops::RangeInclusive;
use std::sync::Arc;

use proto::nfs4::{self, Nfsstat4};
use rpc::server::{CallContext, CallError, Peer, Placement, Program, Reply};
use xdr::Decoder;

pub(crate) use owners::Owners;
pub(crate) use records::open_records;
pub(crate) use state_manager::StateManager;
pub(crate) use writers::Asker;

use crate::service::Service;

/// How an operation ends that doesn't succeed.
pub(super) type Result<T> = std::result::Result<T, Nfsstat4>;

/// The program.
pub(crate) struct Nfs4(pub Arc<Service>);

impl Program for Nfs4 {
    fn number(&self) -> u32 {
        nfs4::PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        nfs4::VERSION..=nfs4::VERSION
    }

    fn places(&self) -> bool {
        self.0.gate.has_direct_writes()
    }

    fn place(&self, _version: u32, procedure: u32, args: &[u8]) -> Placement {
        if procedure == nfs4::COMPOUND { place::place(args) } else { Placement::Anywhere }
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
        compound::run(&self.0, cx, args, reply)
    }

    fn closed(&self, peer: &Peer) {
        self.0.state.callbacks.paths.with(|paths| paths.connection_closed(peer.connection));
    }
}
