//! The nonce of the handshake and the values derived from it.
//!
//! The client makes a nonce N and discloses three values in three places: N itself only on the NFS
//! connection, the commitment C = SHA-256(N) only to a peer that it trusts, and the calling name SHA-256(C)
//! to every process (it is the name of the abstract socket on which a client waits to be called, and any
//! process of the network namespace can list those). None of them can be computed from the next.

use sha2::{Digest, Sha256};

/// A server instance: 16 random bytes, new at every start, so that its names can't be taken in advance.
pub type Instance = [u8; 16];

/// The single-use UUID of one handshake (RFC 9562 version 4). It expires ten seconds after it was registered.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Nonce(pub [u8; 16]);

/// SHA-256 of a [`Nonce`]: enough to find a registration by its nonce, useless to compute the nonce.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Commitment(pub [u8; 32]);

impl Nonce {
    /// A random nonce from the kernel's generator.
    ///
    /// # Errors
    /// When the kernel gives no random numbers.
    pub fn random() -> std::io::Result<Self> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
        Ok(Self::from_random(bytes))
    }

    /// The nonce of these random bytes, with the version and variant bits of RFC 9562 section 5.4.
    #[must_use]
    pub const fn from_random(mut bytes: [u8; 16]) -> Self {
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Self(bytes)
    }

    /// The commitment, disclosed to the endpoints that the client trusts.
    #[must_use]
    pub fn commitment(&self) -> Commitment {
        Commitment(Sha256::digest(self.0).into())
    }
}

impl Commitment {
    /// The name of a client that waits to be called, visible to every process: lower-case hex of SHA-256(C).
    #[must_use]
    pub fn calling_name(&self) -> String {
        hex(&Sha256::digest(self.0))
    }
}

impl std::fmt::Debug for Nonce {
    /// A live nonce is a secret and must not be logged.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Nonce(..)")
    }
}

impl std::fmt::Debug for Commitment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Commitment(..)")
    }
}

/// A new random instance.
///
/// # Errors
/// When the kernel gives no random numbers.
pub fn random_instance() -> std::io::Result<Instance> {
    let mut instance = [0; 16];
    getrandom::fill(&mut instance).map_err(std::io::Error::other)?;
    Ok(instance)
}

/// Lower-case hex.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(DIGITS[usize::from(byte >> 4)] as char);
        text.push(DIGITS[usize::from(byte & 15)] as char);
    }
    text
}

/// Parses an instance: exactly 32 lower-case hex digits.
#[must_use]
pub fn parse_instance(text: &str) -> Option<Instance> {
    let digits = text.as_bytes();
    let mut instance = [0; 16];
    if digits.len() != 32 {
        return None;
    }
    for (byte, pair) in instance.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(instance)
}

const fn digit(character: u8) -> Option<u8> {
    match character {
        b'0'..=b'9' => Some(character - b'0'),
        b'a'..=b'f' => Some(character - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nonce_is_a_version_4_uuid() {
        let nonce = Nonce::from_random([0xff; 16]);
        assert_eq!(nonce.0[6] >> 4, 4);
        assert_eq!(nonce.0[8] >> 6, 0b10);
        assert_ne!(Nonce::random().unwrap(), Nonce::random().unwrap());
    }

    #[test]
    fn the_commitment_is_sha_256() {
        // `printf '\0%.0s' $(seq 16) | sha256sum`
        assert_eq!(
            hex(&Nonce([0; 16]).commitment().0),
            "374708fff7719dd5979ec875d56cd2286f6d3cf7ec317a3b25632aab28ec37bb"
        );
        assert_eq!(Nonce([0; 16]).commitment().calling_name().len(), 64);
    }

    #[test]
    fn instances_are_lower_case_hex_and_nothing_else() {
        let instance = random_instance().unwrap();
        assert_eq!(parse_instance(&hex(&instance)), Some(instance));
        for bad in [
            "",
            "00",
            &"0".repeat(31),
            &"0".repeat(33),
            &"A".repeat(32),
            &"g".repeat(32),
            "../../../etc/passwd",
        ] {
            assert_eq!(parse_instance(bad), None, "{bad}");
        }
    }
}
