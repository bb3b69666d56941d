//! The property of every wire type: a decoded value encodes to bytes that decode to it again. Padding may
//! differ.

use std::fmt::Debug;
use xdr::{Decode, Decoder, Encode};

/// Decodes `data` as each type in turn. `length` checks the length of the encoded value against the length of
/// the bytes it was decoded from.
macro_rules! round_trip {
    ($data:ident, $length:expr; $($name:ty,)*) => {$(
        let mut from = xdr::Decoder::new($data);
        if let Ok(value) = from.get::<$name>() {
            let mut to = xdr::Encoder::new();
            to.put(&value);
            let (encoded, decoded) = (to.as_slice().len(), $data.len() - from.rest().len());
            assert!($length(&encoded, &decoded), "{decoded} bytes encode to {encoded}: {value:?}");
            super::round_trip::check(&value, to.as_slice());
        }
    )*};
}
pub(crate) use round_trip;

/// Checks that `bytes`, the encoding of `value`, decode to it.
pub fn check<'a, T: Encode + Decode<'a> + PartialEq + Debug>(value: &T, bytes: &'a [u8]) {
    let mut from = Decoder::new(bytes);
    assert_eq!(from.get::<T>().as_ref(), Ok(value));
    assert_eq!(from.finish(), Ok(()), "{value:?}");
}
