//! The addresses to listen on, one for each socket.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

/// The addresses with `[::]` replaced by the unspecified addresses of both families, on one port, since each
/// socket has one family; by IPv4's alone if the kernel has no IPv6.
///
/// # Errors
/// When no free port can be found for a port of 0.
pub(crate) fn expand(addresses: &[SocketAddr]) -> io::Result<Vec<SocketAddr>> {
    let mut all = Vec::new();
    for address in addresses {
        if address.ip() != IpAddr::from(Ipv6Addr::UNSPECIFIED) {
            all.push(*address);
            continue;
        }
        let v6 = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok();
        let port = if address.port() == 0 { free_port()? } else { address.port() };
        all.push(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)));
        if v6 {
            all.push(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)));
        }
    }
    all.dedup();
    Ok(all)
}

/// Checks whether a socket can listen on an address.
///
/// # Errors
/// The error of the system call.
pub(crate) fn is_free(address: SocketAddr) -> io::Result<()> {
    // Without IPv6 this is IPv4's address.
    let addresses = expand(&[address])?;
    addresses.into_iter().try_for_each(|address| TcpListener::bind(address).map(drop))
}

fn free_port() -> io::Result<u16> {
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?.local_addr().map(|address| address.port())
}
