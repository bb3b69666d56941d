//! XDR's own types: their bytes as RFC 4506 defines them, their bounds, and round trips.

use proptest::collection::vec;
use proptest::prelude::*;
use samehost_xdr::{Array, Decode, Decoder, Encode, Encoder, Error, List, Opaque, padding};
use std::fmt::Debug;

fn encoded<T: Encode + ?Sized>(value: &T) -> Vec<u8> {
    let mut to = Encoder::new();
    to.put(value);
    to.into_vec()
}

/// `bytes` are exactly `value`, and no shorter part of them is a whole value.
fn same<'a, T: Encode + Decode<'a> + PartialEq + Debug>(value: &T, bytes: &'a [u8]) {
    assert_eq!(encoded(value), bytes);
    let mut from = Decoder::new(bytes);
    assert_eq!(from.get::<T>().as_ref(), Ok(value));
    assert_eq!(from.finish(), Ok(()));
    for end in 0..bytes.len() {
        assert!(Decoder::new(&bytes[..end]).get::<T>().is_err(), "{value:?} cut at {end}");
    }
}

#[test]
fn scalars() {
    same(&0x0102_0304_u32, &[1, 2, 3, 4]);
    same(&-2_i32, &[0xff, 0xff, 0xff, 0xfe]);
    same(&0x0102_0304_0506_0708_u64, &[1, 2, 3, 4, 5, 6, 7, 8]);
    same(&i64::MIN, &[0x80, 0, 0, 0, 0, 0, 0, 0]);
    same(&true, &[0, 0, 0, 1]);
    same(&false, &[0, 0, 0, 0]);
    same(&(), &[]);
    assert_eq!(Decoder::new(&[0, 0, 0, 2]).bool(), Err(Error::NotBoolean(2)));
}

#[test]
fn opaque_data_is_padded_to_the_unit() {
    assert_eq!([0, 1, 2, 3, 4, 5].map(padding), [0, 3, 2, 1, 0, 3]);
    same(&Opaque::<5>(b""), &[0, 0, 0, 0]);
    same(&Opaque::<5>(b"abcde"), b"\0\0\0\x05abcde\0\0\0");
    same(b"abcde", b"abcde\0\0\0");
    same(b"abcd", b"abcd");
    same::<[u8; 0]>(&[], b"");
    // The padding may have any value.
    assert_eq!(Decoder::new(b"\0\0\0\x01aXYZ").opaque(1), Ok(&b"a"[..]));
}

#[test]
fn opaque_data_is_borrowed() {
    let record = b"\0\0\0\x02hi\0\0".as_slice();
    let data = Decoder::new(record).get::<Opaque<'_, 2>>().unwrap().0;
    assert!(std::ptr::eq(data, &record[4..6]));
}

#[test]
fn arrays_lists_and_options() {
    same(&Array::<u32, 2>(vec![7, 8]), &[0, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0, 8]);
    same(&List::<u32, 2>(vec![7, 8]), b"\0\0\0\x01\0\0\0\x07\0\0\0\x01\0\0\0\x08\0\0\0\0");
    same(&List::<u32, 0>(vec![]), &[0, 0, 0, 0]);
    same(&Some(7_u32), &[0, 0, 0, 1, 0, 0, 0, 7]);
    same(&None::<u32>, &[0, 0, 0, 0]);
}

#[test]
fn a_bound_is_checked_before_the_data() {
    let huge = [0xff; 4];
    let refused = Error::TooLong { max: 3, len: 0xffff_ffff };
    assert_eq!(Decoder::new(&huge).opaque(3), Err(refused));
    assert_eq!(Decoder::new(&huge).get::<Array<u32, 3>>(), Err(refused));
    // Within the bound, but missing: an error at once, whatever the declared length.
    let needed = 4_294_967_296_usize;
    assert_eq!(Decoder::new(&huge).opaque(usize::MAX), Err(Error::Truncated { needed, left: 0 }));
    let absent = Decoder::new(&huge).get::<Array<u32, { usize::MAX }>>();
    assert_eq!(absent, Err(Error::Truncated { needed: 4, left: 0 }));

    let three = encoded(&List::<u32, 3>(vec![1, 2, 3]));
    assert!(Decoder::new(&three).get::<List<u32, 3>>().is_ok());
    assert_eq!(Decoder::new(&three).get::<List<u32, 2>>(), Err(Error::TooLong { max: 2, len: 3 }));
}

#[test]
fn trailing_bytes_are_errors() {
    let mut from = Decoder::new(&[0, 0, 0, 1, 9]);
    assert_eq!(from.u32(), Ok(1));
    assert_eq!(from.rest(), &[9]);
    assert_eq!(from.finish(), Err(Error::Trailing(1)));
}

#[test]
fn an_encoder_can_be_patched_and_truncated() {
    let mut to = Encoder::from_vec(b"kept".to_vec());
    let place = to.position();
    to.u32(0);
    to.raw(b"payload");
    to.patch_u32(place, 7);
    assert_eq!(to.as_slice(), b"kept\0\0\0\x07payload");
    to.truncate(place);
    assert_eq!(to.into_vec(), b"kept");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_values_round_trip(
        numbers in vec(any::<u64>(), 0..9),
        data in vec(any::<u8>(), 0..70),
        choice in any::<Option<i32>>(),
    ) {
        same(&Array::<u64, 9>(numbers.clone()), &encoded(&Array::<u64, 9>(numbers.clone())));
        same(&List::<u64, 9>(numbers.clone()), &encoded(&List::<u64, 9>(numbers)));
        same(&Opaque::<70>(&data), &encoded(&Opaque::<70>(&data)));
        same(&choice, &encoded(&choice));
    }

    #[test]
    fn random_bytes_never_panic(record in vec(any::<u8>(), 0..70), max in any::<usize>()) {
        let from = Decoder::new(&record);
        let _ = (from.clone().opaque(max), from.clone().length(max), from.clone().fixed::<13>());
        let _ = (from.clone().get::<List<Option<bool>, 4>>(), from.clone().get::<Array<Opaque<'_, 9>, 5>>());
    }
}
