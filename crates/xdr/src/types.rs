//! XDR's own types as Rust values, with their bounds in the type.

use crate::{Decode, Decoder, Encode, Encoder, Error};

/// Variable-length opaque data or a string of at most `MAX` bytes, borrowed from the record. XDR strings are
/// bytes here: NFS file names are not UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Opaque<'a, const MAX: usize>(pub &'a [u8]);

/// A variable-length array of at most `MAX` elements (RFC 4506 section 4.13).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Array<T, const MAX: usize>(pub Vec<T>);

/// A linked list of at most `MAX` elements (RFC 4506 section 4.19): each behind a `true`, the end a `false`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct List<T, const MAX: usize>(pub Vec<T>);

impl<'a, const MAX: usize> Decode<'a> for Opaque<'a, MAX> {
    #[inline]
    fn decode(from: &mut Decoder<'a>) -> Result<Self, Error> {
        from.opaque(MAX).map(Self)
    }
}

impl<const MAX: usize> Encode for Opaque<'_, MAX> {
    #[inline]
    fn encode(&self, to: &mut Encoder) {
        to.opaque(self.0);
    }
}

impl<'a, T: Decode<'a>, const MAX: usize> Decode<'a> for Array<T, MAX> {
    #[inline]
    fn decode(from: &mut Decoder<'a>) -> Result<Self, Error> {
        let len = from.length(MAX)?;
        // The declared length is bounded, but the record may still be shorter: grow as elements are decoded.
        let mut items = Vec::with_capacity(len.min(64));
        for _ in 0..len {
            items.push(from.get()?);
        }
        Ok(Self(items))
    }
}

impl<T: Encode, const MAX: usize> Encode for Array<T, MAX> {
    #[inline]
    fn encode(&self, to: &mut Encoder) {
        to.length(self.0.len());
        self.0.iter().for_each(|item| to.put(item));
    }
}

impl<'a, T: Decode<'a>, const MAX: usize> Decode<'a> for List<T, MAX> {
    #[inline]
    fn decode(from: &mut Decoder<'a>) -> Result<Self, Error> {
        let mut items = Vec::new();
        while from.bool()? {
            if items.len() == MAX {
                return Err(Error::TooLong { max: MAX, len: MAX + 1 });
            }
            items.push(from.get()?);
        }
        Ok(Self(items))
    }
}

impl<T: Encode, const MAX: usize> Encode for List<T, MAX> {
    #[inline]
    fn encode(&self, to: &mut Encoder) {
        for item in &self.0 {
            to.bool(true);
            to.put(item);
        }
        to.bool(false);
    }
}

impl<'a, T: Decode<'a>> Decode<'a> for Option<T> {
    #[inline]
    fn decode(from: &mut Decoder<'a>) -> Result<Self, Error> {
        if from.bool()? { from.get().map(Some) } else { Ok(None) }
    }
}

impl<T: Encode> Encode for Option<T> {
    #[inline]
    fn encode(&self, to: &mut Encoder) {
        to.bool(self.is_some());
        if let Some(value) = self {
            to.put(value);
        }
    }
}

impl<'a, const N: usize> Decode<'a> for [u8; N] {
    #[inline]
    fn decode(from: &mut Decoder<'a>) -> Result<Self, Error> {
        from.fixed()
    }
}

impl<const N: usize> Encode for [u8; N] {
    #[inline]
    fn encode(&self, to: &mut Encoder) {
        to.fixed(self);
    }
}

macro_rules! integers {
    ($($type:ty: $via:ident),*) => {$(
        impl<'a> Decode<'a> for $type {
            #[inline]
            fn decode(from: &mut Decoder<'a>) -> Result<Self, Error> {
                from.$via().map(|value| value as $type)
            }
        }
        impl Encode for $type {
            #[inline]
            fn encode(&self, to: &mut Encoder) {
                to.$via(*self as _);
            }
        }
    )*};
}
integers!(u32: u32, i32: u32, u64: u64, i64: u64);

impl<'a> Decode<'a> for bool {
    #[inline]
    fn decode(from: &mut Decoder<'a>) -> Result<Self, Error> {
        from.bool()
    }
}

impl Encode for bool {
    #[inline]
    fn encode(&self, to: &mut Encoder) {
        to.bool(*self);
    }
}

impl<'a> Decode<'a> for () {
    #[inline]
    fn decode(_: &mut Decoder<'a>) -> Result<Self, Error> {
        Ok(())
    }
}

impl Encode for () {
    #[inline]
    fn encode(&self, _: &mut Encoder) {}
}
