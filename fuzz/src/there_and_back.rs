//! What holds for every wire type: whatever bytes decode to a value, that value encodes to bytes that decode
//! to it again. What the padding held may differ.

use std::fmt::Debug;
use xdr::{Decode, Decoder, Encode};

/// Reads `data` as each type in turn; `length` says of how many bytes the value was encoded to and of how
/// many it was decoded from whether the one may come of the other.
macro_rules! there_and_back {
    ($data:ident, $length:expr; $($name:ty,)*) => {$(
        let mut from = xdr::Decoder::new($data);
        if let Ok(value) = from.get::<$name>() {
            let mut to = xdr::Encoder::new();
            to.put(&value);
            let (encoded, decoded) = (to.as_slice().len(), $data.len() - from.rest().len());
            assert!($length(&encoded, &decoded), "{encoded} bytes come of {decoded}: {value:?}");
            super::there_and_back::is(&value, to.as_slice());
        }
    )*};
}
pub(crate) use there_and_back;

/// `bytes`, which `value` was encoded to, are it.
pub fn is<'a, T: Encode + Decode<'a> + PartialEq + Debug>(value: &T, bytes: &'a [u8]) {
    let mut from = Decoder::new(bytes);
    assert_eq!(from.get::<T>().as_ref(), Ok(value));
    assert_eq!(from.finish(), Ok(()), "{value:?}");
}
