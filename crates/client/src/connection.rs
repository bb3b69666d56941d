//! TCP connections to a server, for every NFS version.

use std::net::SocketAddr;

use rpc::client::Client;

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
