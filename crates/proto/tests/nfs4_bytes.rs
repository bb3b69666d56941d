//! NFSv4's types, compared with bytes written down by hand from the RFCs.

use proto::nfs4::*;
use xdr::{Decode, Decoder, Encode, Encoder, Opaque};

fn encoded(value: &impl Encode) -> Vec<u8> {
    let mut to = Encoder::new();
    to.put(value);
    to.into_vec()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Both ways.
fn is<'a, T: Encode + Decode<'a> + PartialEq + std::fmt::Debug>(value: &T, bytes: &'a [u8]) {
    assert_eq!(encoded(value), bytes);
    let mut from = Decoder::new(bytes);
    assert_eq!(from.get::<T>().as_ref(), Ok(value));
    assert_eq!(from.finish(), Ok(()));
}

#[test]
fn sequence_is_a_session_and_four_words() {
    let args = Sequence4Args {
        sessionid: *b"0123456789abcdef",
        sequenceid: 7,
        slotid: 1,
        highest_slotid: 3,
        cachethis: true,
    };
    is(&args, &[b"0123456789abcdef".as_slice(), &words(&[7, 1, 3, 1])].concat());
}

#[test]
fn open_by_name_creates_unchecked() {
    let args = Open4Args {
        seqid: 9,
        share_access: SHARE_ACCESS_BOTH,
        share_deny: 0,
        owner: StateOwner4 { clientid: 0x1_0000_0002, owner: Opaque(b"me") },
        openhow: Openflag4::Create(Createhow4::Unchecked(Fattr4 {
            attrmask: Bitmap4::of(&[attributes::MODE]),
            attr_vals: Opaque(&[0, 0, 1, 0xa4]),
        })),
        claim: OpenClaim4::Null(Opaque(b"file")),
    };
    let mut bytes = words(&[9, 3, 0, 1, 2, 2]);
    bytes.extend_from_slice(b"me\0\0");
    // OPEN4_CREATE, UNCHECKED4, a bitmap of two words with bit 33, four bytes of values, CLAIM_NULL, the
    // name.
    bytes.extend(words(&[1, 0, 2, 0, 2, 4, 0o644, 0, 4]));
    bytes.extend_from_slice(b"file");
    is(&args, &bytes);
}

#[test]
fn a_lock_of_a_new_owner_names_the_open() {
    let stateid = Stateid4 { seqid: 1, other: *b"abcdefghijkl" };
    let args = Lock4Args {
        locktype: NfsLockType4::Writew,
        reclaim: false,
        offset: 5,
        length: u64::MAX,
        locker: Locker4::New(OpenToLockOwner4 {
            open_seqid: 2,
            open_stateid: stateid,
            lock_seqid: 0,
            lock_owner: StateOwner4 { clientid: 1, owner: Opaque(b"lock") },
        }),
    };
    let mut bytes = words(&[4, 0, 0, 5, u32::MAX, u32::MAX, 1, 2, 1]);
    bytes.extend_from_slice(b"abcdefghijkl");
    bytes.extend(words(&[0, 0, 1, 4]));
    bytes.extend_from_slice(b"lock");
    is(&args, &bytes);
}

#[test]
fn numbers_are_the_rfcs() {
    assert_eq!(Operation::from_number(53), Some(Operation::Sequence));
    assert_eq!(Operation::from_number(71), Some(Operation::Clone));
    assert_eq!(Operation::from_number(2), None);
    for operation in Operation::ALL {
        assert_eq!(Operation::from_number(operation.number()), Some(*operation));
    }
    assert_eq!(encoded(&Nfsstat4::SeqMisordered), words(&[10_063]));
    assert_eq!(encoded(&Nfsstat4::Noxattr), words(&[10_095]));
}
