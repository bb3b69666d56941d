//! Connections to a server and the calls on them, for every NFS version.
//!
//! Calls with small arguments and results are made on the lane's call socket while there is one, all others
//! over TCP.

use std::net::SocketAddr;

use rpc::client::{Client, Reply, Request};
use rpc::message::Credential;
use xdr::Encoder;

use crate::calling_session::CallingSession;
use crate::counters::bump;
use crate::error::{Error, Result, RpcError};
use crate::options::{MAX_TRANSFER, Options, ReservedPort};
use crate::url::Url;

/// Room for what surrounds a payload in a reply, in bytes.
const MAX_REPLY_HEAD: usize = 64 << 10;

/// The options of the connections of a session with these options.
pub(crate) fn rpc_options(options: &Options, connections: usize) -> rpc::client::Options {
    rpc::client::Options {
        policy: options.policy(),
        connections,
        reserved_port: match options.reserved_port {
            ReservedPort::Auto => rpc::client::ReservedPort::Auto,
            ReservedPort::Yes => rpc::client::ReservedPort::Yes,
            ReservedPort::No => rpc::client::ReservedPort::No,
        },
        max_reply: MAX_TRANSFER as usize + MAX_REPLY_HEAD,
        ..rpc::client::Options::default()
    }
}

/// The addresses of the URL's host.
///
/// # Errors
/// [`Error::Resolve`].
pub(crate) async fn resolve(url: &Url, port: u16) -> Result<Vec<SocketAddr>> {
    let addresses = tokio::net::lookup_host((url.host(), port)).await;
    Ok(addresses.map_err(|source| Error::Resolve { host: url.host().to_owned(), source })?.collect())
}

/// A connection to the first of these addresses that accepts one. `url` is for errors.
///
/// # Errors
/// [`Error::Rpc`], and [`Error::Resolve`] without any address.
pub(crate) async fn connect_to_any(
    url: &Url,
    addresses: &[SocketAddr],
    options: &rpc::client::Options,
) -> Result<Client> {
    let mut last = None;
    for address in addresses {
        match Client::connect(*address, options.clone()).await {
            Ok(client) => return Ok(client),
            Err(error) => last = Some(error),
        }
    }
    Err(match last {
        Some(source) => Error::Rpc { object: url.to_string(), source: RpcError(source) },
        None => Error::Resolve {
            host: url.host().to_owned(),
            source: std::io::Error::new(std::io::ErrorKind::NotFound, "it has no address"),
        },
    })
}

/// Sends a call for a session, on its call socket if there is one and the call is `small`, and counts its
/// round trips.
///
/// # Errors
/// The call's.
pub(crate) async fn send(
    rpc: &Client,
    session: &CallingSession,
    request: Request<'_>,
    small: bool,
    args: impl FnOnce(&mut Encoder),
) -> Result<Reply, rpc::client::Error> {
    // The server makes no calls without a user on a call socket.
    let small = small && !matches!(request.credential, Credential::None);
    let counters = &session.counters;
    let Some(socket) = session.call_socket().filter(|_| small) else {
        bump(&counters.wire.round_trips);
        return rpc.call(request, args).await;
    };
    bump(&counters.lane.round_trips);
    bump(&counters.lane_calls);
    let reply = rpc.call_on(&socket, request, args).await;
    if !matches!(reply, Ok(Reply { local: true, .. })) {
        bump(&counters.wire.round_trips);
    }
    reply
}
