//! Universal addresses (RFC 5665 section 5.2.3): rpcbind's text form of a socket's address, `host.high.low`.

use std::net::{IpAddr, SocketAddr};

/// `address` as a universal address: `127.0.0.1.8.1` is port 2049.
#[must_use]
pub fn to_universal(address: SocketAddr) -> String {
    let [high, low] = address.port().to_be_bytes();
    format!("{}.{high}.{low}", address.ip())
}

/// Parses a universal address.
#[must_use]
pub fn from_universal(text: &[u8]) -> Option<SocketAddr> {
    let mut parts = std::str::from_utf8(text).ok()?.rsplitn(3, '.');
    let low = octet(parts.next()?)?;
    let high = octet(parts.next()?)?;
    let host: IpAddr = parts.next()?.parse().ok()?;
    Some(SocketAddr::new(host, u16::from_be_bytes([high, low])))
}

/// A decimal octet; unlike `str::parse`, without a sign.
fn octet(digits: &str) -> Option<u8> {
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn universal_addresses_go_both_ways() {
        for (address, text) in [
            ("127.0.0.1:2049", "127.0.0.1.8.1"),
            ("0.0.0.0:111", "0.0.0.0.0.111"),
            ("[::]:2049", "::.8.1"),
            ("[fe80::1]:65535", "fe80::1.255.255"),
        ] {
            let address: SocketAddr = address.parse().unwrap();
            assert_eq!(to_universal(address), text);
            assert_eq!(from_universal(text.as_bytes()), Some(address));
        }
    }

    #[test]
    fn invalid_universal_addresses_are_refused() {
        for text in
            ["", ".", "..", "1.2", "127.0.0.1", "127.0.0.1.8", "127.0.0.1.8.256", "127.0.0.1.+8.1", "a.b.c"]
        {
            assert_eq!(from_universal(text.as_bytes()), None, "{text}");
        }
        assert_eq!(from_universal(b"\xff.8.1"), None);
    }
}
