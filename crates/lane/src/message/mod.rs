//! The messages of the lane and their encoding (XDR, RFC 4506; one message is one datagram of at most 8 KiB).
//!
//! Requests go from client to server, replies the other way; `docs/lane.md` has the table. A datagram that
//! isn't exactly one of these messages, to its last byte, ends the connection: both ends are the same program
//! or implement the same specification, so leniency has no use.

mod parts;
mod replies;
mod requests;

use xdr::{Decode, Decoder, Encode, Encoder, Error};

pub use replies::{HandshakeRefusal, LaneReply, PrefetchedFile};
pub use requests::{LaneRequest, encode_calls, encode_open, encode_prefetch};

/// The largest datagram of the protocol, in bytes.
pub const MAX_MESSAGE: usize = 8192;
/// The protocol versions that this crate implements.
pub const VERSIONS: std::ops::RangeInclusive<u32> = 2..=5;
/// The most releases in one message.
pub const MAX_RELEASES: usize = 256;

/// Decodes the message in a datagram.
///
/// # Errors
/// Any [`Error`], also for bytes behind the message.
pub fn decode<'a, M: Decode<'a>>(datagram: &'a [u8]) -> Result<M, Error> {
    let mut decoder = Decoder::new(datagram);
    let message = decoder.get()?;
    decoder.finish()?;
    Ok(message)
}

/// Encodes a message.
#[must_use]
pub fn encode<M: Encode>(message: &M) -> Vec<u8> {
    let mut encoder = Encoder::new();
    encoder.put(message);
    encoder.into_vec()
}

/// The highest version that is in both ranges.
#[must_use]
pub fn negotiate(lowest: u32, highest: u32) -> Option<u32> {
    let version = highest.min(*VERSIONS.end());
    (version >= lowest && version >= *VERSIONS.start()).then_some(version)
}

/// For fuzzing: decodes the bytes as each kind of message, and checks that encoding a decoded message gives
/// the same bytes.
///
/// # Panics
/// If the bytes differ.
pub fn decode_any(datagram: &[u8]) {
    // Decoding ignores padding and encoding writes zeroes, so compare values and lengths, not bytes.
    macro_rules! there_and_back {
        ($message:ty) => {
            if let Ok(message) = decode::<$message>(datagram) {
                let bytes = encode(&message);
                assert_eq!(bytes.len(), datagram.len());
                assert_eq!(decode::<$message>(&bytes).as_ref(), Ok(&message));
            }
        };
    }
    there_and_back!(LaneRequest<'_>);
    there_and_back!(LaneReply<'_>);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::{DirectoryChange, GrantAttributes, PreOpAttributes};
    use crate::nonce::Commitment;
    use crate::request::{
        Access, CreateMode, LaneCredential, MAX_GIDS, MAX_HANDLE, MAX_NAME, MAX_PREFETCH, NewFile,
        PrefetchTargets, Target,
    };

    #[test]
    fn versions_meet_at_the_highest_common_one() {
        assert_eq!(negotiate(2, 2), Some(2));
        assert_eq!(negotiate(2, u32::MAX), Some(5));
        assert_eq!(negotiate(1, 6), Some(5));
        assert_eq!(negotiate(3, 3), Some(3));
        assert_eq!(negotiate(6, 7), None);
        assert_eq!(negotiate(1, 1), None);
        assert_eq!(negotiate(0, 0), None);
        assert_eq!(negotiate(5, 1), None);
    }

    #[test]
    fn the_largest_messages_fit_a_datagram() {
        let open = LaneRequest::Open {
            serial: 1,
            releases: vec![7; MAX_RELEASES],
            target: Target::New(NewFile {
                directory: &[1; MAX_HANDLE],
                name: &[2; MAX_NAME],
                mode: 0o7777,
                how: CreateMode::Exclusive([3; 8]),
            }),
            access: Access::ReadWrite,
            credential: LaneCredential { uid: 1, gid: 2, gids: vec![3; MAX_GIDS] },
        };
        assert!(encode(&open).len() <= MAX_MESSAGE);
        let opened = LaneReply::Opened {
            serial: 1,
            grant: 2,
            generation: 3,
            verifier: [4; 8],
            handle: &[5; MAX_HANDLE],
            attributes: GrantAttributes::default(),
            directory: Some(Box::new(DirectoryChange {
                before: Some(PreOpAttributes::default()),
                after: Some(sys::Attributes::default()),
            })),
        };
        assert!(encode(&opened).len() <= MAX_MESSAGE);
        let file = PrefetchedFile {
            index: 31,
            grant: 1,
            handle: &[5; MAX_HANDLE],
            attributes: GrantAttributes::default(),
        };
        let given = LaneReply::Prefetched {
            serial: 1,
            generation: 3,
            verifier: [4; 8],
            files: vec![file; MAX_PREFETCH],
        };
        assert!(encode(&given).len() <= MAX_MESSAGE);
    }

    #[test]
    fn requests_that_fit_are_encoded_and_others_reported() {
        let round_trip = |targets: PrefetchTargets<'_>| {
            let credential = LaneCredential { uid: 1, gid: 2, gids: vec![3; MAX_GIDS] };
            let request =
                LaneRequest::Prefetch { serial: 1, releases: vec![7; MAX_RELEASES], targets, credential };
            assert_eq!(decode::<LaneRequest<'_>>(&encode(&request)).as_ref(), Ok(&request));
            encode(&request).len()
        };
        let handles = PrefetchTargets::Handles(vec![&[1; MAX_HANDLE]; MAX_PREFETCH]);
        assert!(handles.fits() && round_trip(handles) <= MAX_MESSAGE);
        let entries = |length, many| {
            let names: Vec<&[u8]> = vec![&[2; 300][..length]; many];
            PrefetchTargets::Entries { directory: &[1; MAX_HANDLE], names }
        };
        let long = entries(MAX_NAME, MAX_PREFETCH);
        assert!(!long.fits());
        let many = (1..=MAX_PREFETCH).rev().find(|many| entries(MAX_NAME, *many).fits()).unwrap();
        assert!(many >= 16 && round_trip(entries(MAX_NAME, many)) <= MAX_MESSAGE);
        assert!(entries(100, MAX_PREFETCH).fits());
        assert!(!entries(MAX_NAME + 1, 1).fits() && !entries(1, MAX_PREFETCH + 1).fits());
    }

    #[test]
    fn register_to_the_byte() {
        let register = LaneRequest::Register { lowest: 1, highest: 2, commitment: Commitment([0xcc; 32]) };
        let mut bytes = vec![0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2];
        bytes.extend([0xcc; 32]);
        assert_eq!(encode(&register), bytes);
        assert_eq!(decode::<LaneRequest<'_>>(&bytes), Ok(register));
        bytes.push(0);
        assert_eq!(decode::<LaneRequest<'_>>(&bytes), Err(Error::Trailing(1)));
    }
}
