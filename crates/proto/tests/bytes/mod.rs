//! Compares values with bytes written down by hand from the RFC.

use std::fmt::Debug;
use xdr::{Decode, Decoder, Encode, Encoder};

/// The bytes that hexadecimal digits stand for. White space separates, `#` begins a comment to the end of its
/// line.
pub fn hex(parts: &[&str]) -> Vec<u8> {
    let lines = parts.iter().flat_map(|part| part.lines());
    let digits: Vec<u32> = lines
        .flat_map(|line| line.split('#').next().unwrap_or("").chars())
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).expect("a hexadecimal digit"))
        .collect();
    assert_eq!(digits.len() % 8, 0, "whole words");
    digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap()).collect()
}

/// `value` is encoded to `bytes` and decoded from them; no shorter part of them is a value.
pub fn same<'a, T: Encode + Decode<'a> + PartialEq + Debug>(value: &T, bytes: &'a [u8]) {
    let mut to = Encoder::new();
    to.put(value);
    assert_eq!(to.as_slice(), bytes, "encoding {value:?}");
    let mut from = Decoder::new(bytes);
    assert_eq!(from.get::<T>().as_ref(), Ok(value));
    assert_eq!(from.finish(), Ok(()));
    for end in 0..bytes.len() {
        assert!(Decoder::new(&bytes[..end]).get::<T>().is_err(), "{value:?} cut at {end}");
    }
}
