//! Connecting: ports, timeouts, socket options.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpSocket, TcpStream};

use crate::transport::Transport;

/// The range of reserved ports, that of the kernel client (`min_resvport`, `max_resvport`).
const RESERVED: std::ops::RangeInclusive<u16> = 665..=1023;

/// Whether to connect from a port below 1024, which needs a privilege.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReservedPort {
    /// If the process may, else from an ordinary port.
    Auto,
    /// Always. Connecting fails without the privilege.
    Yes,
    /// Never.
    #[default]
    No,
}

/// Connects to `address`. A reconnect uses the old port again if possible, because servers also tell
/// duplicate requests by it.
pub(super) async fn connect(
    address: SocketAddr,
    reserved: ReservedPort,
    last_port: Option<u16>,
    limit: Duration,
) -> io::Result<Transport<TcpStream>> {
    let attempt = async {
        if let Some(port) = last_port
            && let Ok(stream) = from_port(address, port).await
        {
            return Ok(stream);
        }
        match reserved {
            ReservedPort::No => from_port(address, 0).await,
            ReservedPort::Yes => from_reserved(address).await,
            ReservedPort::Auto => match from_reserved(address).await {
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::AddrInUse) =>
                {
                    from_port(address, 0).await
                }
                other => other,
            },
        }
    };
    let stream = tokio::time::timeout(limit, attempt)
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    stream.set_nodelay(true)?;
    Ok(Transport::plain(stream))
}

/// Sets keepalive so that the kernel notices a dead peer. Best effort: calls have timeouts of their own.
pub(super) fn watch(stream: &Transport<TcpStream>, timeo: Duration, timeout: Duration) {
    use rustix::net::sockopt;
    let idle = timeo.clamp(Duration::from_secs(1), Duration::from_secs(600));
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, idle);
    let _ = sockopt::set_tcp_keepintvl(stream, idle);
    let _ = sockopt::set_tcp_user_timeout(stream, u32::try_from(timeout.as_millis()).unwrap_or(0));
}

async fn from_reserved(address: SocketAddr) -> io::Result<TcpStream> {
    let mut seed = [0; 2];
    let _ = getrandom::fill(&mut seed);
    let count = RESERVED.end() - RESERVED.start() + 1;
    let start = u16::from_ne_bytes(seed) % count;
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for step in 0..count {
        match from_port(address, RESERVED.start() + (start + step) % count).await {
            // The port is in use, or was until a moment ago. Try the next one.
            Err(error)
                if matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable) =>
            {
                last = io::Error::new(io::ErrorKind::AddrInUse, error);
            }
            other => return other,
        }
    }
    Err(last)
}

async fn from_port(address: SocketAddr, port: u16) -> io::Result<TcpStream> {
    let (socket, any) = match address {
        SocketAddr::V4(_) => (TcpSocket::new_v4()?, IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        SocketAddr::V6(_) => (TcpSocket::new_v6()?, IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
    };
    if port != 0 {
        socket.set_reuseaddr(true)?;
        socket.bind(SocketAddr::new(any, port))?;
    }
    socket.connect(address).await
}
