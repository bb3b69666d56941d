//! What a program is told about a call beside its arguments.

use std::net::SocketAddr;
use std::sync::Arc;

use sys::TcpOwner;

use super::back::BackChannel;
use super::engine::Engine;
use crate::message::Credential;

/// The other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peer {
    /// The connection's number: unique in this process, never used again.
    pub connection: u64,
    /// The peer's address and port.
    pub address: SocketAddr,
    /// The address of ours that it connected to.
    pub local: SocketAddr,
    /// Whose process it is, if it is one of this host.
    pub owner: TcpOwner,
}

impl Peer {
    /// Whom to charge for what the connection makes this process hold.
    #[must_use]
    pub fn share(&self) -> fairness::Peer {
        match self.owner {
            TcpOwner::Remote => fairness::Peer::remote(self.address.ip()),
            TcpOwner::User(uid) => fairness::Peer::Local(uid),
            TcpOwner::Unknown => fairness::Peer::LocalUnknown,
        }
    }
}

/// One call, as the engine presents it to a [`super::Program`].
pub struct CallContext<'a> {
    /// The caller's number for this call; the same number from the same peer soon after is a retransmission.
    pub xid: u32,
    /// The program's version that was called.
    pub version: u32,
    /// Who is connected.
    pub peer: &'a Peer,
    /// Who the peer says is calling.
    pub credential: &'a Credential,
    /// The engine, and what gives the connection to another worker; none outside of the engine.
    within: Option<(&'a Arc<Engine>, &'a dyn Fn())>,
}

impl<'a> CallContext<'a> {
    /// A call without an engine, as tests of a program make it.
    #[must_use]
    pub const fn new(xid: u32, version: u32, peer: &'a Peer, credential: &'a Credential) -> Self {
        Self { xid, version, peer, credential, within: None }
    }

    /// A call within the engine.
    pub(super) const fn within(self, engine: &'a Arc<Engine>, hand_over: &'a dyn Fn()) -> Self {
        Self { within: Some((engine, hand_over)), ..self }
    }

    /// The way to call the client on this connection.
    #[must_use]
    pub fn back_channel(&self) -> Option<BackChannel> {
        self.within.map(|(engine, _)| BackChannel::new(engine, self.peer.connection))
    }

    /// Says that this call is about to wait for something slow (a disk). The connection's other calls then go
    /// on at once on another worker, without waiting until the engine notices. Costs a few microseconds: not
    /// for what usually is in memory.
    pub fn will_block(&self) {
        if let Some((_, hand_over)) = self.within {
            hand_over();
        }
    }
}

impl std::fmt::Debug for CallContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallContext")
            .field("xid", &self.xid)
            .field("version", &self.version)
            .field("peer", &self.peer)
            .field("credential", &self.credential)
            .finish_non_exhaustive()
    }
}
