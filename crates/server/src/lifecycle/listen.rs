//! The addresses to listen on: what the configuration says, made into what sockets need.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

/// Sockets are of one family each, so `[::]` becomes both families' "all addresses", on one port; just IPv4's
/// where the kernel has no IPv6.
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

/// Whether an address could be listened on now.
///
/// # Errors
/// Why not.
pub(crate) fn is_free(address: SocketAddr) -> io::Result<()> {
    // [`expand`] makes IPv4's of it where there is no IPv6.
    let addresses = expand(&[address])?;
    addresses.into_iter().try_for_each(|address| TcpListener::bind(address).map(drop))
}

fn free_port() -> io::Result<u16> {
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?.local_addr().map(|address| address.port())
}
