//! XDR encoding and decoding (RFC 4506).
//!
//! Every RPC, and every message of the lane, is XDR. Decoding borrows from the received record (opaque data
//! is never copied), never panics, and checks a length against its declared bound before it reads the data,
//! so that a hostile peer can't cause allocations. Encoding appends to one growing buffer and can't fail:
//! every value of a type can be encoded.

// Makes `::xdr::`, which `#[derive(xdr::Encode)]` generates, valid inside this crate's own tests, too.
extern crate self as xdr;

mod decode;
mod encode;
mod types;

pub use decode::{Decode, Decoder, Error};
pub use encode::{Encode, Encoder};
pub use types::{Array, List, Opaque};
pub use xdr_derive::{Decode, Encode};

/// XDR's unit (RFC 4506 section 3): every encoding is a multiple of four bytes.
pub const UNIT: usize = 4;

/// The number of zero bytes behind `len` bytes of opaque data.
#[must_use]
pub const fn padding(len: usize) -> usize {
    len.wrapping_neg() & (UNIT - 1)
}
