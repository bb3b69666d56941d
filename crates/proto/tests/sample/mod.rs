//! Random values of every wire type, made from a string of random bytes, so that proptest can shrink failures
//! and borrowing types have something to borrow from.

use proto::nfs3::Outcome;
use xdr::{Array, List, Opaque};

#[macro_use]
mod macros;
#[macro_use]
pub mod survives;
mod types;
mod types4;

/// Random bytes that are consumed as values are made; zeros when they run out.
pub struct Source<'a> {
    rest: &'a [u8],
}

impl<'a> Source<'a> {
    /// All of `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// A value of any type.
    pub fn any<T: Sample<'a>>(&mut self) -> T {
        T::sample(self)
    }

    /// Up to `len` bytes, borrowed.
    fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (head, rest) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = rest;
        head
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let bytes = self.bytes(N);
        array[..bytes.len()].copy_from_slice(bytes);
        array
    }

    /// A number below `bound`, at most 256.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::from(self.array::<1>()[0]) % bound
    }
}

/// A type that random bytes make a value of.
pub trait Sample<'a>: Sized {
    fn sample(from: &mut Source<'a>) -> Self;
}

impl<'a> Sample<'a> for () {
    fn sample(_: &mut Source<'a>) -> Self {}
}

impl<'a> Sample<'a> for bool {
    fn sample(from: &mut Source<'a>) -> Self {
        from.below(2) == 1
    }
}

// Edge values are as likely as all other values together.
impl<'a> Sample<'a> for u32 {
    fn sample(from: &mut Source<'a>) -> Self {
        match from.below(6) {
            0 => 0,
            1 => 1,
            2 => Self::MAX,
            _ => Self::from_be_bytes(from.array()),
        }
    }
}

impl<'a> Sample<'a> for u64 {
    fn sample(from: &mut Source<'a>) -> Self {
        match from.below(6) {
            0 => 0,
            1 => u64::from(u32::MAX) + 1,
            2 => Self::MAX,
            _ => Self::from_be_bytes(from.array()),
        }
    }
}

impl<'a> Sample<'a> for i64 {
    fn sample(from: &mut Source<'a>) -> Self {
        from.any::<u64>().cast_signed()
    }
}

impl<'a, const N: usize> Sample<'a> for [u8; N] {
    fn sample(from: &mut Source<'a>) -> Self {
        from.array()
    }
}

impl<'a, const MAX: usize> Sample<'a> for Opaque<'a, MAX> {
    fn sample(from: &mut Source<'a>) -> Self {
        let len = from.below(256).min(MAX);
        Self(from.bytes(if len > 80 { len } else { len % 9 }))
    }
}

impl<'a, T: Sample<'a>> Sample<'a> for Option<T> {
    fn sample(from: &mut Source<'a>) -> Self {
        from.any::<bool>().then(|| from.any())
    }
}

fn some<'a, T: Sample<'a>>(from: &mut Source<'a>) -> Vec<T> {
    (0..from.below(4)).map(|_| from.any()).collect()
}

impl<'a, T: Sample<'a>, const MAX: usize> Sample<'a> for List<T, MAX> {
    fn sample(from: &mut Source<'a>) -> Self {
        Self(some(from))
    }
}

impl<'a, T: Sample<'a>, const MAX: usize> Sample<'a> for Array<T, MAX> {
    fn sample(from: &mut Source<'a>) -> Self {
        let mut items = some(from);
        items.truncate(MAX);
        Self(items)
    }
}

impl<'a, O: Sample<'a>, F: Sample<'a>> Sample<'a> for Outcome<O, F> {
    fn sample(from: &mut Source<'a>) -> Self {
        match from.any() {
            proto::nfs3::Nfsstat3::Ok => Self::Ok(from.any()),
            status => Self::Fail(status, from.any()),
        }
    }
}
