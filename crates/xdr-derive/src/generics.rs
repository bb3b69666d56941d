//! The `impl` header around a generated body: the record's lifetime, and the bounds of type parameters.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{DeriveInput, GenericParam, Lifetime, LifetimeParam, parse_quote};

/// `impl xdr::Encode` with `body` working on `self` and `to`.
pub fn encode_impl(input: &DeriveInput, body: &TokenStream) -> syn::Result<TokenStream> {
    let name = &input.ident;
    let mut generics = input.generics.clone();
    for parameter in generics.type_params_mut() {
        parameter.bounds.push(parse_quote!(::xdr::Encode));
    }
    let (parameters, arguments, conditions) = generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #parameters ::xdr::Encode for #name #arguments #conditions {
            #[inline]
            #[allow(unused_variables, reason = "a type without data writes nothing")]
            fn encode(&self, to: &mut ::xdr::Encoder) {
                #body
            }
        }
    })
}

/// `impl xdr::Decode` with `body` reading from `from`.
pub fn decode_impl(input: &DeriveInput, body: &TokenStream) -> syn::Result<TokenStream> {
    let name = &input.ident;
    let record = record_lifetime(input)?;
    let mut generics = input.generics.clone();
    for parameter in generics.type_params_mut() {
        parameter.bounds.push(parse_quote!(::xdr::Decode<#record>));
    }
    let (_, arguments, conditions) = generics.split_for_impl();
    let mut with_record = generics.clone();
    if input.generics.lifetimes().next().is_none() {
        with_record.params.insert(0, GenericParam::Lifetime(LifetimeParam::new(record.clone())));
    }
    let (parameters, _, _) = with_record.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #parameters ::xdr::Decode<#record> for #name #arguments #conditions {
            #[inline]
            #[allow(unused_variables, reason = "a type without data reads nothing")]
            fn decode(
                from: &mut ::xdr::Decoder<#record>,
            ) -> ::core::result::Result<Self, ::xdr::Error> {
                #body
            }
        }
    })
}

/// The type's own lifetime, or a new one for a type without borrows.
fn record_lifetime(input: &DeriveInput) -> syn::Result<Lifetime> {
    let mut lifetimes = input.generics.lifetimes();
    let first = lifetimes.next();
    if let Some(second) = lifetimes.next() {
        return Err(syn::Error::new_spanned(
            second,
            "an XDR value borrows from one record: one lifetime at most",
        ));
    }
    Ok(first.map_or_else(|| parse_quote!('record), |first| first.lifetime.clone()))
}
