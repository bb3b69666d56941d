//! Decoding: a cursor over a received record.

use crate::padding;

/// Why bytes can't be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The record ends before the value does.
    #[error("record ends early: {needed} bytes needed, {left} left")]
    Truncated {
        /// Bytes the value needs.
        needed: usize,
        /// Bytes the record has left.
        left: usize,
    },
    /// A length word is above the type's bound.
    #[error("length {len} is above the bound {max}")]
    TooLong {
        /// The largest length the type allows.
        max: usize,
        /// The length that was declared.
        len: usize,
    },
    /// A boolean or optional marker that is neither 0 nor 1 (RFC 4506 section 4.4).
    #[error("{0} is not a boolean")]
    NotBoolean(u32),
    /// An enumeration or union discriminant that the type doesn't have.
    #[error("{value} is not a {of}")]
    Discriminant {
        /// The type's name.
        of: &'static str,
        /// The value in the record.
        value: u32,
    },
    /// Bytes are left behind the last value.
    #[error("{0} bytes behind the last value")]
    Trailing(usize),
}

/// A value that can be decoded from XDR; `'a` is the record it borrows from.
pub trait Decode<'a>: Sized {
    /// Decodes one value and moves the cursor behind it.
    ///
    /// # Errors
    /// Any [`Error`]; the cursor's position is then unspecified.
    fn decode(from: &mut Decoder<'a>) -> Result<Self, Error>;
}

/// A cursor over a received record.
#[derive(Debug, Clone, Copy)]
pub struct Decoder<'a> {
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    /// A cursor at the beginning of `record`.
    #[must_use]
    pub const fn new(record: &'a [u8]) -> Self {
        Self { rest: record }
    }

    /// The bytes that haven't been read yet.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Decodes a value.
    ///
    /// # Errors
    /// As [`Decode::decode`].
    #[inline]
    pub fn get<T: Decode<'a>>(&mut self) -> Result<T, Error> {
        T::decode(self)
    }

    /// The next `N` bytes (a multiple of four, or the caller skips the padding).
    #[inline]
    fn take<const N: usize>(&mut self) -> Result<&'a [u8; N], Error> {
        let Some((head, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(Error::Truncated { needed: N, left: self.rest.len() });
        };
        self.rest = rest;
        Ok(head)
    }

    /// `len` bytes and the padding behind them.
    #[inline]
    fn padded(&mut self, len: usize) -> Result<&'a [u8], Error> {
        let whole = len.saturating_add(padding(len));
        if whole > self.rest.len() {
            return Err(Error::Truncated { needed: whole, left: self.rest.len() });
        }
        let (data, rest) = self.rest.split_at(whole);
        self.rest = rest;
        Ok(&data[..len])
    }

    /// An unsigned integer (RFC 4506 section 4.2).
    ///
    /// # Errors
    /// [`Error::Truncated`].
    #[inline]
    pub fn u32(&mut self) -> Result<u32, Error> {
        self.take::<4>().map(|b| u32::from_be_bytes(*b))
    }

    /// An unsigned hyper integer (section 4.5).
    ///
    /// # Errors
    /// [`Error::Truncated`].
    #[inline]
    pub fn u64(&mut self) -> Result<u64, Error> {
        self.take::<8>().map(|b| u64::from_be_bytes(*b))
    }

    /// A boolean (section 4.4).
    ///
    /// # Errors
    /// [`Error::Truncated`] or [`Error::NotBoolean`].
    #[inline]
    pub fn bool(&mut self) -> Result<bool, Error> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(Error::NotBoolean(other)),
        }
    }

    /// A length word that may be at most `max`.
    ///
    /// # Errors
    /// [`Error::Truncated`] or [`Error::TooLong`].
    #[inline]
    pub fn length(&mut self, max: usize) -> Result<usize, Error> {
        let len = self.u32()? as usize;
        if len > max {
            return Err(Error::TooLong { max, len });
        }
        Ok(len)
    }

    /// Variable-length opaque data or a string of at most `max` bytes (sections 4.10, 4.11). The contents of
    /// the padding are ignored, as the kernel does.
    ///
    /// # Errors
    /// [`Error::Truncated`] or [`Error::TooLong`].
    #[inline]
    pub fn opaque(&mut self, max: usize) -> Result<&'a [u8], Error> {
        let len = self.length(max)?;
        self.padded(len)
    }

    /// Fixed-length opaque data (section 4.9).
    ///
    /// # Errors
    /// [`Error::Truncated`].
    #[inline]
    pub fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.padded(N)?);
        Ok(bytes)
    }

    /// Checks that the record ends here.
    ///
    /// # Errors
    /// [`Error::Trailing`].
    pub const fn finish(&self) -> Result<(), Error> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(Error::Trailing(left)),
        }
    }
}
