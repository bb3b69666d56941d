//! Round trips of every message, and arbitrary bytes.

use lane::message::{self, HandshakeRefusal, LaneReply, LaneRequest, MAX_MESSAGE, MAX_RELEASES};
use lane::request::{MAX_GIDS, MAX_HANDLE, MAX_NAME};
use lane::{
    Access, Commitment, CreateMode, DirectoryChange, GrantAttributes, LaneCredential, NewFile, Nonce,
    OpenStatus, PreOpAttributes, Target,
};
use proptest::collection::vec;
use proptest::prelude::*;
use samehost_lane as lane;
use sys::{Attributes, FileKind, Timestamp};

fn time() -> impl Strategy<Value = Timestamp> {
    (any::<i64>(), 0..1_000_000_000_u32).prop_map(|(seconds, nanoseconds)| Timestamp { seconds, nanoseconds })
}

fn changed() -> impl Strategy<Value = DirectoryChange> {
    let before = (any::<u64>(), time(), time());
    let before = before.prop_map(|(size, mtime, ctime)| PreOpAttributes { size, mtime, ctime });
    let after = attributes().prop_map(|attributes| attributes.file);
    (proptest::option::of(before), proptest::option::of(after))
        .prop_map(|(before, after)| DirectoryChange { before, after })
}

fn attributes() -> impl Strategy<Value = GrantAttributes> {
    let modes = prop::sample::select(vec![io::IoMode::Buffered, io::IoMode::DontCache, io::IoMode::Direct]);
    let modes = (modes.clone(), modes).prop_map(|(read, write)| io::IoModes { read, write });
    let kind = prop::sample::select(vec![
        FileKind::Regular,
        FileKind::Directory,
        FileKind::Block,
        FileKind::Character,
        FileKind::Symlink,
        FileKind::Socket,
        FileKind::Fifo,
    ]);
    ((kind, any::<[u32; 6]>(), any::<[u64; 5]>()), (time(), time(), time()), modes).prop_map(
        |(
            (kind, [mode, nlink, uid, gid, major, minor], [size, used, fsid, fileid, change]),
            (atime, mtime, ctime),
            modes,
        )| {
            let rdev = (major, minor);
            let attributes = Attributes {
                kind,
                mode: mode & 0o7777,
                nlink,
                uid,
                gid,
                size,
                used,
                rdev,
                fsid,
                fileid,
                atime,
                mtime,
                ctime,
                change,
            };
            GrantAttributes { file: attributes, modes }
        },
    )
}

fn there_and_back<'a, M: xdr::Encode + xdr::Decode<'a> + PartialEq + std::fmt::Debug>(
    message: &M,
    bytes: &'a mut Vec<u8>,
) {
    *bytes = message::encode(message);
    assert!(bytes.len() <= MAX_MESSAGE && bytes.len().is_multiple_of(4));
    assert_eq!(message::decode::<M>(bytes).as_ref(), Ok(message));
}

proptest! {
    #[test]
    fn opens(
        serial in any::<u32>(),
        releases in vec(any::<u64>(), 0..=MAX_RELEASES),
        directory in vec(any::<u8>(), 0..=MAX_HANDLE),
        name in proptest::option::of(vec(any::<u8>(), 0..=MAX_NAME)),
        new in proptest::option::of((0..=0o7777_u32, proptest::option::of(any::<[u8; 8]>()))),
        whole in proptest::option::of(any::<bool>()),
        access in 1..=3_u32,
        (uid, gid, gids) in (any::<u32>(), any::<u32>(), vec(any::<u32>(), 0..=MAX_GIDS)),
    ) {
        let target = match (&name, new) {
            (Some(name), Some((mode, verifier))) => {
                let how = verifier.map_or(CreateMode::Unchecked, CreateMode::Exclusive);
                Target::New(NewFile { directory: &directory, name, mode, how })
            }
            (Some(name), None) => Target::Entry { directory: &directory, name },
            (None, _) => match whole {
                None => Target::Handle(&directory),
                Some(false) => Target::Tree(&directory),
                Some(true) => Target::Mount(&directory),
            },
        };
        let access = Access::from_number(access).unwrap();
        let credential = LaneCredential { uid, gid, gids };
        let request = lane::OpenRequest { target, access, credential: &credential };
        assert!(request.fits());
        let mut bytes = Vec::new();
        there_and_back(
            &LaneRequest::Open { serial, releases, target, access, credential: credential.clone() },
            &mut bytes,
        );
        // Truncated anywhere, it is invalid.
        for length in 0..bytes.len() {
            assert!(message::decode::<LaneRequest<'_>>(&bytes[..length]).is_err());
        }
    }

    #[test]
    fn other_requests(
        lowest in any::<u32>(),
        highest in any::<u32>(),
        commitment in any::<[u8; 32]>(),
        releases in vec(any::<u64>(), 0..=MAX_RELEASES),
        serial in any::<u32>(),
    ) {
        let commitment = Commitment(commitment);
        let mut bytes = Vec::new();
        there_and_back(&LaneRequest::Calls { serial, releases: releases.clone() }, &mut bytes);
        assert_eq!((&bytes[..4], bytes.len()), (&[0, 0, 0, 6][..], 12 + 8 * releases.len()));
        there_and_back(&LaneRequest::Register { lowest, highest, commitment }, &mut Vec::new());
        there_and_back(&LaneRequest::Release(releases), &mut Vec::new());
        there_and_back(&LaneRequest::Async, &mut Vec::new());
    }

    #[test]
    fn grants(
        serial in any::<u32>(),
        grant in any::<u64>(),
        generation in any::<u64>(),
        verifier in any::<[u8; 8]>(),
        handle in vec(any::<u8>(), 0..=MAX_HANDLE),
        attributes in attributes(),
        directory in proptest::option::of(changed().prop_map(Box::new)),
    ) {
        let directory_change = directory.clone();
        let opened = LaneReply::Opened {
            serial,
            grant,
            generation,
            verifier,
            handle: &handle,
            attributes,
            directory: directory_change,
        };
        let mut bytes = Vec::new();
        there_and_back(&opened, &mut bytes);
        let number = if directory.is_some() { 23 } else { 18 };
        assert_eq!(bytes[..4], [0, 0, 0, number]);
        for length in 0..bytes.len() {
            assert!(message::decode::<LaneReply<'_>>(&bytes[..length]).is_err());
        }
    }

    #[test]
    fn other_replies(
        (version, nonce, instance) in any::<(u32, [u8; 16], [u8; 16])>(),
        (grants, outstanding, slots, serial) in any::<(u32, u32, u32, u32)>(),
        generation in any::<u64>(),
        status in 1..=15_u32,
    ) {
        let nonce = Nonce(nonce);
        let status = OpenStatus::from_number(status).unwrap();
        let local = LaneReply::Local { version, nonce, instance, grants, outstanding, slots };
        there_and_back(&local, &mut Vec::new());
        there_and_back(&LaneReply::NotOpened { serial, status }, &mut Vec::new());
        there_and_back(&LaneReply::Recall { generation }, &mut Vec::new());
        let mut bytes = Vec::new();
        there_and_back(&LaneReply::CallSocket { serial }, &mut bytes);
        assert_eq!(bytes, [[0, 0, 0, 24], serial.to_be_bytes()].concat());
        there_and_back(&LaneReply::Drain, &mut Vec::new());
        let version = HandshakeRefusal::Version { lowest: version, highest: grants };
        use HandshakeRefusal::{Ambiguous, Draining, TooMany};
        for refusal in [version, TooMany, Ambiguous, Draining] {
            there_and_back(&LaneReply::Refused(refusal), &mut Vec::new());
        }
    }

    #[test]
    fn any_bytes(bytes in vec(any::<u8>(), 0..300), number in 0..32_u32) {
        message::decode_any(&bytes);
        // With a message's number in front, the bytes behind it are decoded.
        message::decode_any(&[&number.to_be_bytes()[..], &bytes].concat());
    }
}

#[test]
fn lengths_above_their_bounds_are_refused_before_the_data_is_read() {
    let open = |fill: &dyn Fn(&mut xdr::Encoder)| {
        let mut to = xdr::Encoder::new();
        to.u32(2);
        to.u32(1);
        fill(&mut to);
        message::decode::<LaneRequest<'_>>(to.as_slice()).map(|_| ())
    };
    let too_long = |max, len| Err(xdr::Error::TooLong { max, len });
    assert_eq!(open(&|to| to.u32(257)), too_long(MAX_RELEASES, 257));
    let calls = [0, 0, 0, 6, 0, 0, 0, 1, 0, 0, 1, 1];
    assert_eq!(message::decode::<LaneRequest<'_>>(&calls).map(|_| ()), too_long(MAX_RELEASES, 257));
    assert_eq!(open(&|to| [0, 1, 129].iter().for_each(|word| to.u32(*word))), too_long(MAX_HANDLE, 129));
    assert_eq!(open(&|to| [0, 2, 0, 256].iter().for_each(|word| to.u32(*word))), too_long(MAX_NAME, 256));
    assert_eq!(
        open(&|to| [0, 1, 0, 1, 0, 0, 17].iter().for_each(|word| to.u32(*word))),
        too_long(MAX_GIDS, 17)
    );
    assert_eq!(open(&|to| [0, 3, 129].iter().for_each(|word| to.u32(*word))), too_long(MAX_HANDLE, 129));
    assert_eq!(open(&|to| [0, 3, 0, 256].iter().for_each(|word| to.u32(*word))), too_long(MAX_NAME, 256));
    for kind in [4, 5] {
        let directory = open(&|to| [0, kind, 129].iter().for_each(|word| to.u32(*word)));
        assert_eq!(directory, too_long(MAX_HANDLE, 129));
    }
    // GUARDED, and a number that RFC 1813 doesn't define.
    for how in [1, 3, u32::MAX] {
        let wrong = open(&|to| [0, 3, 0, 0, 0o644, how].iter().for_each(|word| to.u32(*word)));
        assert_eq!(wrong, Err(xdr::Error::Discriminant { of: "how", value: how }));
    }
    for (words, of) in [([0, 6, 0], "target"), ([0, 0, 0], "target")] {
        let wrong = open(&|to| words.iter().for_each(|word| to.u32(*word)));
        assert!(matches!(wrong, Err(xdr::Error::Discriminant { of: is, .. }) if is == of));
    }
    for access in [0, 4, u32::MAX] {
        let wrong = open(&|to| [0, 1, 0, access].iter().for_each(|word| to.u32(*word)));
        assert_eq!(wrong, Err(xdr::Error::Discriminant { of: "access", value: access }));
    }
}
