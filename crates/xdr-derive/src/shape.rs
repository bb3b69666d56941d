//! The XDR shape of a Rust type, and the code that encodes and decodes that shape.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::spanned::Spanned;
use syn::{Attribute, Data, DeriveInput, Error, Expr, Fields, Ident, Index, Type, Variant};

/// The shape of a type.
pub enum Shape<'a> {
    /// RFC 4506 section 4.14.
    Structure(&'a Fields),
    /// Section 4.3: the type's name and its variants.
    Enumeration(&'a Ident, Vec<&'a Ident>),
    /// Section 4.15: the type's name and its arms; the default, if any, is the last.
    Union(&'a Ident, Vec<Arm<'a>>),
}

/// One arm of a union.
pub struct Arm<'a> {
    name: &'a Ident,
    fields: &'a Fields,
    /// `None`: the default arm.
    discriminant: Option<Expr>,
}

impl<'a> Shape<'a> {
    /// Determines the shape of `input`, or the reason why it has none.
    pub fn of(input: &'a DeriveInput) -> syn::Result<Self> {
        match &input.data {
            Data::Struct(data) => Ok(Self::Structure(&data.fields)),
            Data::Union(data) => Err(Error::new(
                data.union_token.span(),
                "XDR's unions are Rust's enums: use an enum with #[xdr(N)]",
            )),
            Data::Enum(data) if data.variants.is_empty() => {
                Err(Error::new_spanned(&input.ident, "an enum without variants has no value to encode"))
            }
            Data::Enum(data) if data.variants.iter().any(|v| marks(v).next().is_some()) => {
                let arms = data.variants.iter().map(Arm::of).collect::<syn::Result<Vec<_>>>()?;
                if let Some((_, before)) = arms.split_last()
                    && let Some(early) = before.iter().find(|arm| arm.discriminant.is_none())
                {
                    return Err(Error::new_spanned(
                        early.name,
                        "the default arm must be the last, and the only one",
                    ));
                }
                Ok(Self::Union(&input.ident, arms))
            }
            Data::Enum(data) => {
                let names = data.variants.iter().map(enumerator).collect::<syn::Result<Vec<_>>>()?;
                Ok(Self::Enumeration(&input.ident, names))
            }
        }
    }

    /// Statements that write `self` to `to`.
    pub fn encode(&self) -> TokenStream {
        match self {
            Self::Structure(fields) => {
                let members = members(fields);
                quote!(#(::xdr::Encoder::put(to, &self.#members);)*)
            }
            Self::Enumeration(_, names) => {
                quote!(::xdr::Encoder::u32(to, match self { #(Self::#names => Self::#names as u32,)* });)
            }
            Self::Union(_, arms) => {
                let arms = arms.iter().map(Arm::encode);
                quote!(match self { #(#arms)* })
            }
        }
    }

    /// An expression that reads the value from `from`.
    pub fn decode(&self) -> TokenStream {
        match self {
            Self::Structure(fields) => {
                let members = members(fields);
                quote!(::core::result::Result::Ok(Self { #(#members: ::xdr::Decoder::get(from)?,)* }))
            }
            Self::Enumeration(of, names) => {
                let unknown = unknown(of);
                quote! {
                    let found = ::xdr::Decoder::u32(from)?;
                    #(if found == Self::#names as u32 {
                        return ::core::result::Result::Ok(Self::#names);
                    })*
                    #unknown
                }
            }
            Self::Union(of, arms) => {
                let constants: Vec<_> = (0..arms.len()).map(|n| format_ident!("ARM_{n}")).collect();
                let named = arms.iter().zip(&constants);
                let values = named.clone().filter_map(|(arm, constant)| {
                    arm.discriminant.as_ref().map(|value| quote!(const #constant: u32 = #value;))
                });
                let known = named.filter(|(arm, _)| arm.discriminant.is_some()).map(|(arm, constant)| {
                    let value = arm.decode();
                    quote!(#constant => ::core::result::Result::Ok(#value),)
                });
                let otherwise = match arms.last() {
                    Some(arm) if arm.discriminant.is_none() => {
                        let value = arm.decode();
                        quote!(::core::result::Result::Ok(#value))
                    }
                    _ => unknown(of),
                };
                quote! {
                    #(#values)*
                    let found = ::xdr::Decoder::u32(from)?;
                    match found {
                        #(#known)*
                        _ => #otherwise,
                    }
                }
            }
        }
    }
}

impl<'a> Arm<'a> {
    fn of(variant: &'a Variant) -> syn::Result<Self> {
        if let Some((_, value)) = &variant.discriminant {
            return Err(Error::new_spanned(value, "in a union the discriminant stands in #[xdr(N)]"));
        }
        let mut marks = marks(variant);
        let Some(mark) = marks.next() else {
            return Err(Error::new_spanned(variant, "this arm of the union has no #[xdr(N)]"));
        };
        if let Some(second) = marks.next() {
            return Err(Error::new_spanned(second, "one #[xdr(N)] for an arm"));
        }
        let value: Expr = mark.parse_args()?;
        let default = matches!(&value, Expr::Path(path) if path.path.is_ident("default"));
        if default && !variant.fields.iter().next().is_some_and(|first| is_u32(&first.ty)) {
            return Err(Error::new_spanned(
                variant,
                "the default arm's first field is the discriminant, a u32",
            ));
        }
        Ok(Self { name: &variant.ident, fields: &variant.fields, discriminant: (!default).then_some(value) })
    }

    /// `Self::Name { 0: field_0, ... } => { write them }`.
    fn encode(&self) -> TokenStream {
        let name = self.name;
        let members = members(self.fields);
        let values: Vec<_> = (0..members.len()).map(|n| format_ident!("field_{n}")).collect();
        // The default arm's discriminant is its first field, written like any other.
        let discriminant = self.discriminant.as_ref().map(|value| {
            quote! {
                const ARM: u32 = #value;
                ::xdr::Encoder::u32(to, ARM);
            }
        });
        quote! {
            Self::#name { #(#members: #values,)* } => {
                #discriminant
                #(::xdr::Encoder::put(to, #values);)*
            }
        }
    }

    /// An expression that reads this arm's fields, the discriminant being read already.
    fn decode(&self) -> TokenStream {
        let name = self.name;
        let members = members(self.fields);
        let values = members.iter().enumerate().map(|(n, _)| {
            if n == 0 && self.discriminant.is_none() {
                quote!(found)
            } else {
                quote!(::xdr::Decoder::get(from)?)
            }
        });
        quote!(Self::#name { #(#members: #values,)* })
    }
}

/// The name of an enumeration's value.
fn enumerator(variant: &Variant) -> syn::Result<&Ident> {
    if !matches!(variant.fields, Fields::Unit) {
        return Err(Error::new_spanned(
            variant,
            "an enum with data is a union: mark its variants with #[xdr(N)]",
        ));
    }
    if variant.discriminant.is_none() {
        return Err(Error::new_spanned(
            variant,
            "an enumeration's values are part of the protocol: write them out",
        ));
    }
    Ok(&variant.ident)
}

/// The `#[xdr(...)]` attributes of a variant.
fn marks(variant: &Variant) -> impl Iterator<Item = &Attribute> {
    variant.attrs.iter().filter(|attribute| attribute.path().is_ident("xdr"))
}

/// The name or index of each field.
fn members(fields: &Fields) -> Vec<TokenStream> {
    let name = |(n, field): (usize, &syn::Field)| {
        field.ident.as_ref().map_or_else(
            || {
                let index = Index::from(n);
                quote!(#index)
            },
            |name| quote!(#name),
        )
    };
    fields.iter().enumerate().map(name).collect()
}

fn is_u32(ty: &Type) -> bool {
    matches!(ty, Type::Path(path) if path.path.is_ident("u32"))
}

/// The error for a discriminant, `found`, that the type `of` doesn't have.
fn unknown(of: &Ident) -> TokenStream {
    let of = of.to_string();
    quote!(::core::result::Result::Err(::xdr::Error::Discriminant { of: #of, value: found }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generics;
    use syn::parse_quote;

    fn refusal(input: &DeriveInput) -> String {
        Shape::of(input)
            .and_then(|shape| generics::decode_impl(input, &shape.decode()))
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn types_without_an_xdr_form_are_compile_errors() {
        let refused: [(DeriveInput, &str); 9] = [
            (parse_quote!(union U { a: u32 }), "unions are Rust's enums"),
            (
                parse_quote!(
                    enum Never {}
                ),
                "no value to encode",
            ),
            (
                parse_quote!(
                    enum Implicit {
                        A,
                        B = 1,
                    }
                ),
                "write them out",
            ),
            (
                parse_quote!(
                    enum Unmarked {
                        A(u32),
                    }
                ),
                "mark its variants",
            ),
            (
                parse_quote!(
                    enum Half {
                        #[xdr(0)]
                        A,
                        B,
                    }
                ),
                "has no #[xdr(N)]",
            ),
            (
                parse_quote!(
                    enum Twice {
                        #[xdr(0)]
                        #[xdr(1)]
                        A,
                    }
                ),
                "one #[xdr(N)]",
            ),
            (
                parse_quote!(
                    enum Early {
                        #[xdr(default)]
                        A(u32),
                        #[xdr(0)]
                        B,
                    }
                ),
                "must be the last",
            ),
            (
                parse_quote!(
                    enum Bare {
                        #[xdr(0)]
                        A,
                        #[xdr(default)]
                        B,
                    }
                ),
                "a u32",
            ),
            (
                parse_quote!(
                    struct Borrows<'a, 'b>(X<'a>, X<'b>);
                ),
                "one lifetime",
            ),
        ];
        for (input, why) in refused {
            let refusal = refusal(&input);
            assert!(refusal.contains(why), "{refusal}");
        }
    }

    #[test]
    fn a_discriminant_stands_in_one_place() {
        let input: DeriveInput = parse_quote!(
            enum Both {
                #[xdr(0)]
                A = 0,
            }
        );
        assert!(refusal(&input).contains("stands in #[xdr(N)]"));
    }
}
