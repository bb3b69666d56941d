//! Procedures and operations as enums: numbers for dispatch, names for counters and logs.

/// Defines such an enum: `numbered!("what it is", Procedure, Null = 0 "NULL", ...)`, in the order of the
/// numbers.
macro_rules! numbered {
    ($doc:literal, $type:ident, $($variant:ident = $number:literal $name:literal,)+) => {
        #[doc = $doc]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $type {
            $(
                #[doc = concat!(stringify!($type), " ", $number, ", ", $name, ".")]
                $variant = $number,
            )+
        }

        impl $type {
            /// All variants, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The variant with this number.
            #[must_use]
            pub const fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)+
                    _ => None,
                }
            }

            /// Its number on the wire.
            #[must_use]
            pub const fn number(self) -> u32 {
                self as u32
            }

            /// Its name in the specification, in capitals.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }

        impl ::core::fmt::Display for $type {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

pub(crate) use numbered;
