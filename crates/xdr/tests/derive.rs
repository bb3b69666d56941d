//! The output of the derive macros for each of XDR's shapes, byte for byte.

// The derived code uses `::xdr`, the name of this crate in every other one.
extern crate samehost_xdr as xdr;

use xdr::{Decode, Decoder, Encode, Encoder, Error, Opaque};

const LIMIT: u32 = 9;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
enum Colour {
    Red = 0,
    Blue = 5,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
struct Point {
    x: u32,
    y: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
struct Named<'a> {
    name: Opaque<'a, 8>,
    colour: Colour,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
struct Pair<T, const N: usize>(T, [u8; N]);

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
struct Nothing;

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
enum Shape<'a, T> {
    #[xdr(1)]
    Dot,
    #[xdr(LIMIT)]
    Line(Point, T),
    #[xdr(Colour::Blue as u32)]
    Label { text: Opaque<'a, 4> },
    #[xdr(default)]
    Other(u32, bool),
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
enum Closed {
    #[xdr(0)]
    No,
    #[xdr(7)]
    Yes(u32),
}

type WordShape<'a> = Shape<'a, u32>;

fn both<'a, T: Encode + Decode<'a> + PartialEq + std::fmt::Debug>(value: &T, bytes: &'a [u8]) {
    let mut to = Encoder::new();
    to.put(value);
    assert_eq!(to.as_slice(), bytes);
    let mut from = Decoder::new(bytes);
    assert_eq!(from.get::<T>().as_ref(), Ok(value));
    assert_eq!(from.finish(), Ok(()));
    for end in 0..bytes.len() {
        assert!(Decoder::new(&bytes[..end]).get::<T>().is_err(), "{value:?} cut at {end}");
    }
}

#[test]
fn structures_are_their_fields_in_order() {
    both(&Point { x: 1, y: -2 }, &[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe]);
    both(&Named { name: Opaque(b"ab"), colour: Colour::Blue }, b"\0\0\0\x02ab\0\0\0\0\0\x05");
    both(&Pair(7_u32, *b"xyz"), b"\0\0\0\x07xyz\0");
    both(&Nothing, b"");
}

#[test]
fn enumerations_are_their_discriminants() {
    both(&Colour::Red, &[0, 0, 0, 0]);
    both(&Colour::Blue, &[0, 0, 0, 5]);
    let unknown = Decoder::new(&[0, 0, 0, 1]).get::<Colour>();
    assert_eq!(unknown, Err(Error::Discriminant { of: "Colour", value: 1 }));
}

#[test]
fn unions_are_a_discriminant_and_its_arm() {
    both(&WordShape::Dot, &[0, 0, 0, 1]);
    both(&Shape::Line(Point { x: 1, y: 2 }, true), b"\0\0\0\x09\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\x01");
    both(&WordShape::Label { text: Opaque(b"a") }, b"\0\0\0\x05\0\0\0\x01a\0\0\0");
    both(&WordShape::Other(77, true), b"\0\0\0\x4d\0\0\0\x01");
}

#[test]
fn a_union_without_default_is_closed() {
    both(&Closed::No, &[0, 0, 0, 0]);
    both(&Closed::Yes(3), &[0, 0, 0, 7, 0, 0, 0, 3]);
    let unknown = Decoder::new(&[0, 0, 0, 3]).get::<Closed>();
    assert_eq!(unknown, Err(Error::Discriminant { of: "Closed", value: 3 }));
}

#[test]
fn a_bound_in_a_field_is_checked() {
    let overlong = Decoder::new(b"\0\0\0\x09abcdefghijkl\0\0\0\0").get::<Named<'_>>();
    assert_eq!(overlong, Err(Error::TooLong { max: 8, len: 9 }));
}
