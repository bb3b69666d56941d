//! The party that a resource is charged to.

use std::fmt;
use std::net::IpAddr;

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
            Self::V4(octets) => write!(f, "{}", std::net::Ipv4Addr::from(*octets)),
            Self::V6(network) => {
                let mut octets = [0; 16];
                octets[..8].copy_from_slice(network);
                write!(f, "{}/64", std::net::Ipv6Addr::from(octets))
            }
            Self::Local(uid) => write!(f, "local uid {uid}"),
            Self::LocalUnknown => f.write_str("unknown local users"),
        }
    }
}

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
    }
}
