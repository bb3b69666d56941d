//! `#[derive(Encode, Decode)]` for the three kinds of composite types in XDR's language, so that a wire type
//! is written once, as its RFC defines it, and both directions follow from it.
//!
//! | RFC 4506 | Rust |
//! |---|---|
//! | structure (4.14) | a struct; its fields in order |
//! | enumeration (4.3) | an enum without data, every variant with a discriminant: `A = 0, B = 5` |
//! | discriminated union (4.15) | an enum whose variants are marked `#[xdr(N)]`, with `N` a constant `u32` expression; at most one, the last, is `#[xdr(default)]` and keeps the discriminant that it was found under in its first field, a `u32` |
//!
//! A value that isn't a discriminant of the type decodes to `xdr::Error::Discriminant`. A type may have one
//! lifetime (that of the record it borrows from), constant parameters, and type parameters, which get the
//! derived trait as bound. The generated code names `::xdr`, so the crate must be known under that name.

mod generics;
mod shape;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Derives `xdr::Encode`.
#[proc_macro_derive(Encode, attributes(xdr))]
pub fn encode(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input, |input, body| generics::encode_impl(input, &body.encode())).into()
}

/// Derives `xdr::Decode`.
#[proc_macro_derive(Decode, attributes(xdr))]
pub fn decode(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input, |input, body| generics::decode_impl(input, &body.decode())).into()
}

/// Runs `with`, or reports an error at the user's code.
fn expand(
    input: &DeriveInput,
    with: impl FnOnce(&DeriveInput, &shape::Shape<'_>) -> syn::Result<proc_macro2::TokenStream>,
) -> proc_macro2::TokenStream {
    shape::Shape::of(input).and_then(|shape| with(input, &shape)).unwrap_or_else(|e| e.to_compile_error())
}
