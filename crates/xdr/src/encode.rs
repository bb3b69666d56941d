//! Encoding: one growing buffer.

use crate::padding;

/// A value that can be encoded as XDR.
pub trait Encode {
    /// Appends the value.
    fn encode(&self, to: &mut Encoder);
}

/// A growing XDR buffer.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Encoder {
    bytes: Vec<u8>,
}

impl Encoder {
    /// An empty buffer.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: Vec::new() }
    }

    /// An encoder that appends to `bytes` and reuses its capacity.
    #[must_use]
    pub const fn from_vec(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }

    /// Appends any value.
    #[inline]
    pub fn put<T: Encode + ?Sized>(&mut self, value: &T) {
        value.encode(self);
    }

    /// An unsigned integer (RFC 4506 section 4.2).
    #[inline]
    pub fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    /// An unsigned hyper integer (section 4.5).
    #[inline]
    pub fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    /// A boolean (section 4.4).
    #[inline]
    pub fn bool(&mut self, value: bool) {
        self.u32(u32::from(value));
    }

    /// A length word.
    ///
    /// # Panics
    /// If `len` is above 2^32 - 1. No XDR type allows it, and no bounded type in this workspace reaches it.
    #[inline]
    pub fn length(&mut self, len: usize) {
        self.u32(u32::try_from(len).expect("an XDR length fits 32 bits"));
    }

    /// Variable-length opaque data or a string (sections 4.10, 4.11).
    #[inline]
    pub fn opaque(&mut self, data: &[u8]) {
        self.length(data.len());
        self.fixed(data);
    }

    /// Fixed-length opaque data (section 4.9): the bytes and their padding.
    #[inline]
    pub fn fixed(&mut self, data: &[u8]) {
        self.bytes.extend_from_slice(data);
        self.bytes.extend_from_slice(&[0; 3][..padding(data.len())]);
    }

    /// Bytes that are XDR already (or, where the protocol defines so, no XDR).
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The position of the next value.
    #[must_use]
    pub const fn position(&self) -> usize {
        self.bytes.len()
    }

    /// Overwrites the four bytes at `position` with an unsigned integer. `position` was [`Encoder::position`]
    /// when a place-holder was written there.
    ///
    /// # Panics
    /// If fewer than four bytes follow `position`.
    pub fn patch_u32(&mut self, position: usize, value: u32) {
        self.bytes[position..position + 4].copy_from_slice(&value.to_be_bytes());
    }

    /// Removes everything from `position` on.
    pub fn truncate(&mut self, position: usize) {
        self.bytes.truncate(position);
    }

    /// The bytes so far.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    /// The buffer itself, for payload that is read into it in place.
    pub const fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// The bytes.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        self.bytes
    }
}
