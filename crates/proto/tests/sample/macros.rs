//! Macros for samples of structures, enumerations and unions: field by field, variant by variant.

macro_rules! structures {
    ($($name:ident $(<$lifetime:lifetime>)? { $($field:ident),* })*) => {$(
        impl<'a> Sample<'a> for $name $(<$lifetime>)? {
            fn sample(from: &mut Source<'a>) -> Self {
                Self { $($field: from.any()),* }
            }
        }
    )*};
}

macro_rules! choices {
    ($($name:ident $(<$lifetime:lifetime>)? { $($variant:ident $(($($of:ty),+))?),* $(,)? })*) => {$(
        impl<'a> Sample<'a> for $name $(<$lifetime>)? {
            fn sample(from: &mut Source<'a>) -> Self {
                let all: &[fn(&mut Source<'a>) -> Self] =
                    &[$(|_from| Self::$variant $(($(_from.any::<$of>()),+))?),*];
                all[from.below(all.len())](from)
            }
        }
    )*};
}
