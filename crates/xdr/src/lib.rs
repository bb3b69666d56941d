//! RFC 4506 values to bytes and back.
//!
//! Every RPC that Samehost speaks, and every message of the lane, is XDR. Decoding borrows from the received
//! record (opaque data is never copied), never panics, and refuses a length above its declared bound before
//! it looks at the data, so that a hostile peer can't make us allocate. Encoding appends to one growing
//! buffer and can't fail: what a type can hold, it can encode.

// Lets `#[derive(xdr::Encode)]` say `::xdr::` inside this crate's own tests, too.
extern crate self as xdr;

mod decode;
mod encode;
mod types;

pub use decode::{Decode, Decoder, Error};
pub use encode::{Encode, Encoder};
pub use types::{Array, List, Opaque};
pub use xdr_derive::{Decode, Encode};

/// XDR's unit (RFC 4506 section 3): everything is a multiple of four bytes.
pub const UNIT: usize = 4;

/// How many zero bytes follow `len` bytes of opaque data.
#[must_use]
pub const fn padding(len: usize) -> usize {
    len.wrapping_neg() & (UNIT - 1)
}
