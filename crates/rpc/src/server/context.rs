//! What a program learns about a call beside its arguments.

use std::net::SocketAddr;

use sys::TcpOwner;

use super::back_channel::BackChannel;
use crate::message::Credential;

/// The other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peer {
    /// The connection's number: unique in this process, never reused.
    pub connection: u64,
    /// The peer's address and port.
    pub address: SocketAddr,
    /// The local address that it connected to.
    pub local: SocketAddr,
    /// The owner of the process at the other end, if it is on this host.
    pub owner: TcpOwner,
}

impl Peer {
    /// The peer to charge for what the connection makes this process hold.
    #[must_use]
    pub fn share(&self) -> fairness::Peer {
        match self.owner {
            TcpOwner::Remote => fairness::Peer::remote(self.address.ip()),
            TcpOwner::User(uid) => fairness::Peer::Local(uid),
            TcpOwner::Unknown => fairness::Peer::LocalUnknown,
        }
    }
}

/// One call, as the engine passes it to a [`super::Program`].
pub struct CallContext<'a> {
    /// The transaction id. The same id from the same peer soon afterwards is a retransmission.
    pub xid: u32,
    /// The version of the program that was called.
    pub version: u32,
    /// The other end of the connection.
    pub peer: &'a Peer,
    /// The credential of the call, as the peer states it.
    pub credential: &'a Credential,
    /// Whether the call came on a call socket ([`super::CallSockets`]).
    pub is_call_socket: bool,
    /// `None` outside of the engine.
    within: Option<Within<'a>>,
}

/// What the engine offers to a call that it runs.
#[derive(Clone, Copy)]
pub(super) struct Within<'a> {
    /// Gives the connection to another worker.
    pub hand_over: &'a dyn Fn(),
    /// Makes the connection's back channel.
    pub back_channel: &'a dyn Fn() -> BackChannel,
}

impl<'a> CallContext<'a> {
    /// A call outside of the engine, for tests of a program.
    #[must_use]
    pub const fn new(xid: u32, version: u32, peer: &'a Peer, credential: &'a Credential) -> Self {
        Self { xid, version, peer, credential, is_call_socket: false, within: None }
    }

    /// A call within the engine.
    pub(super) const fn within(self, within: Within<'a>) -> Self {
        Self { within: Some(within), ..self }
    }

    /// The back channel of this connection. A call socket has none.
    #[must_use]
    pub fn back_channel(&self) -> Option<BackChannel> {
        let within = self.within.filter(|_| !self.is_call_socket)?;
        Some((within.back_channel)())
    }

    /// Announces that this call is about to wait for something slow (a disk). Another worker then continues
    /// with the connection's other calls at once. It costs a few microseconds, so don't call it before
    /// accesses that are usually served from memory.
    pub fn will_block(&self) {
        if let Some(within) = self.within {
            (within.hand_over)();
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
