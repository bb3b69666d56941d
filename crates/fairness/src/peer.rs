//! The party that a resource is charged to.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// How [`Peer::LocalUnknown`] is displayed.
const UNKNOWN_LOCAL: &str = "unknown local users";

/// The party that is charged for what a connection or a socket makes the server hold.
///
/// A peer must be something that an attacker has few of. So an IPv6 address counts as its /64, the smallest
/// network that is usually given to one customer, and a process of this host counts as its user, whatever
/// loopback address it connects from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Peer {
    /// A host, by its IPv4 address.
    V4([u8; 4]),
    /// A network, by the first 64 bits of its IPv6 addresses.
    V6([u8; 8]),
    /// A user of this host, by the uid that the kernel reports.
    Local(u32),
    /// Processes of this host whose user is unknown: all of them together.
    LocalUnknown,
}

impl Peer {
    /// The peer behind an IP address. An IPv4-mapped IPv6 address counts as the IPv4 address.
    #[must_use]
    pub fn remote(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address.octets()),
            IpAddr::V6(address) => {
                let octets = address.octets();
                Self::V6([
                    octets[0], octets[1], octets[2], octets[3], octets[4], octets[5], octets[6], octets[7],
                ])
            }
        }
    }

    /// Whether this is root of this host.
    #[must_use]
    pub const fn is_local_root(&self) -> bool {
        matches!(self, Self::Local(0))
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(octets) => write!(f, "{}", Ipv4Addr::from(*octets)),
            Self::V6(network) => {
                let mut octets = [0; 16];
                octets[..8].copy_from_slice(network);
                write!(f, "{}/64", Ipv6Addr::from(octets))
            }
            Self::Local(uid) => write!(f, "local uid {uid}"),
            Self::LocalUnknown => f.write_str(UNKNOWN_LOCAL),
        }
    }
}

/// A peer, as it is displayed.
impl FromStr for Peer {
    type Err = UnknownPeer;

    fn from_str(text: &str) -> Result<Self, UnknownPeer> {
        let network =
            |text: &str| Some(Self::remote(text.strip_suffix("/64")?.parse::<Ipv6Addr>().ok()?.into()));
        let local = |text: &str| text.strip_prefix("local uid ")?.parse().ok().map(Self::Local);
        let host = |text: &str| Some(Self::V4(text.parse::<Ipv4Addr>().ok()?.octets()));
        if text == UNKNOWN_LOCAL {
            return Ok(Self::LocalUnknown);
        }
        host(text).or_else(|| network(text)).or_else(|| local(text)).ok_or(UnknownPeer)
    }
}

/// The text names no peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownPeer;

impl fmt::Display for UnknownPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("neither an IPv4 address, nor an IPv6 network of 64 bits, nor local users")
    }
}

impl std::error::Error for UnknownPeer {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_network_is_one_peer() {
        let peer = |text: &str| Peer::remote(text.parse().unwrap());
        assert_eq!(peer("192.0.2.1"), peer("::ffff:192.0.2.1"));
        assert_ne!(peer("192.0.2.1"), peer("192.0.2.2"));
        assert_eq!(peer("2001:db8::1"), peer("2001:db8::ffff:1"));
        assert_ne!(peer("2001:db8::1"), peer("2001:db8:0:1::1"));
        assert_eq!(peer("2001:db8::1").to_string(), "2001:db8::/64");
        assert_eq!(peer("192.0.2.1").to_string(), "192.0.2.1");
        assert!(Peer::Local(0).is_local_root() && !Peer::Local(1).is_local_root());
        assert!(!Peer::LocalUnknown.is_local_root());
        for peer in [peer("192.0.2.1"), peer("2001:db8::1"), Peer::Local(7), Peer::LocalUnknown] {
            assert_eq!(peer.to_string().parse(), Ok(peer));
        }
        for text in ["", "2001:db8::", "local uid", "local uid -1", "192.0.2.1/64", "192.0.2"] {
            assert_eq!(text.parse::<Peer>(), Err(UnknownPeer), "{text}");
        }
    }
}
