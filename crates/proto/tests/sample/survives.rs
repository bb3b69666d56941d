//! The properties of every wire type: an encoded value is decoded to itself; a truncated value is an error;
//! and arbitrary bytes decode to an error or to a value with the same properties.

use super::{Sample, Source};
use proptest::prelude::*;
use std::fmt::Debug;
use xdr::{Decode, Decoder, Encode, Encoder};

/// A test for each type: `round_trips! { name: Type; ... }`.
macro_rules! round_trips {
    ($($test:ident: $type:ty;)*) => {
        proptest::proptest! {
            #![proptest_config(proptest::prelude::ProptestConfig {
                cases: 128,
                failure_persistence: None,
                ..Default::default()
            })]
            $(
                #[test]
                fn $test(seed in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300)) {
                    let (value, bytes) = $crate::sample::survives::made::<$type>(&seed);
                    $crate::sample::survives::whole(&value, &bytes)?;
                    // Usually not a value: it may be refused but must not panic.
                    if let Ok(value) = xdr::Decoder::new(&seed).get::<$type>() {
                        $crate::sample::survives::whole(&value, &$crate::sample::survives::encoded(&value))?;
                    }
                    let nearly = $crate::sample::survives::damaged(&bytes, &seed);
                    let _ = xdr::Decoder::new(&nearly).get::<$type>();
                }
            )*
        }
    };
}

/// A value made of `seed`, and its bytes.
pub fn made<'a, T: Sample<'a> + Encode>(seed: &'a [u8]) -> (T, Vec<u8>) {
    let value = Source::new(seed).any();
    let bytes = encoded(&value);
    (value, bytes)
}

/// The bytes of a value.
pub fn encoded(value: &impl Encode) -> Vec<u8> {
    let mut to = Encoder::new();
    to.put(value);
    to.into_vec()
}

/// `bytes`, which `value` was encoded to, are `value`, and no shorter part of them is a whole value.
pub fn whole<'a, T: Decode<'a> + PartialEq + Debug>(value: &T, bytes: &'a [u8]) -> Result<(), TestCaseError> {
    prop_assert_eq!(bytes.len() % xdr::UNIT, 0);
    let mut from = Decoder::new(bytes);
    let again = from.get::<T>();
    prop_assert_eq!(again.as_ref(), Ok(value));
    prop_assert_eq!(from.finish(), Ok(()));
    for end in 0..bytes.len() {
        prop_assert!(Decoder::new(&bytes[..end]).get::<T>().is_err(), "{:?} cut at {}", value, end);
    }
    Ok(())
}

/// `bytes` with one bit changed, if there are any.
pub fn damaged(bytes: &[u8], seed: &[u8]) -> Vec<u8> {
    let mut damaged = bytes.to_vec();
    if !damaged.is_empty() {
        let at = usize::from(seed.last().copied().unwrap_or(0)) % damaged.len();
        damaged[at] ^= 1 << (at % 8);
    }
    damaged
}
