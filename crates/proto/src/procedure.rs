//! A program's procedures as a type: numbers for dispatch, names for counters and logs.

/// Defines a program's `Procedure`: `procedures!("what it is", Null = 0 "NULL", ...)`, in the order of the numbers.
macro_rules! procedures {
    ($doc:literal, $($variant:ident = $number:literal $name:literal,)+) => {
        #[doc = $doc]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Procedure {
            $(
                #[doc = concat!("Procedure ", $number, ", ", $name, ".")]
                $variant = $number,
            )+
        }

        impl Procedure {
            /// Every procedure, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The procedure with this number, if the program has one.
            #[must_use]
            pub const fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)+
                    _ => None,
                }
            }

            /// Its number in a call.
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

        impl ::core::fmt::Display for Procedure {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

pub(crate) use procedures;
