//! The origin of a request, as far as the server knows it.

use std::net::SocketAddr;

use exports::Claim;
use rpc::server::TcpOwner;

/// How a request reaches the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Wire,
    Lane,
}

/// The origin of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Requester<'a> {
    /// The client's end of the NFS connection. A lane has the address of the connection that it is bound to.
    pub address: SocketAddr,
    /// The owner of the client's process. Never [`TcpOwner::Remote`] on the lane, where the kernel reports
    /// the owner of the Unix socket.
    pub owner: TcpOwner,
    /// The user named in the credential; `None` with AUTH_NONE.
    pub claim: Option<Claim<'a>>,
    pub transport: Transport,
}
