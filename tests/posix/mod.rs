//! POSIX rules of a filesystem, each a small check with a name. They know nothing of NFS: the same ones are
//! run on a local directory first, which proves the checks right.
//!
//! What a check may rely on: it is root, its directory is its own, empty and open to everybody, and nobody
//! else is at work in it. Where NFSv3 can't do what POSIX says ([`Place::local`]), the check says what a
//! client may do instead.

mod attributes;
mod data;
mod directories;
mod links;
mod making;
mod names;
mod permissions;
pub mod place;
mod renaming;
mod times;

pub use place::Place;

use std::panic::{AssertUnwindSafe, catch_unwind};

/// One rule.
pub struct Check {
    pub name: &'static str,
    pub run: fn(&Place),
}

/// Names functions of the module as checks.
macro_rules! checks {
    ($($name:ident),* $(,)?) => {
        pub const CHECKS: &[crate::posix::Check] =
            &[$(crate::posix::Check {
                name: concat!(module_path!(), "::", stringify!($name)),
                run: $name,
            }),*];
    };
}
pub(crate) use checks;

/// What must fail, and how.
macro_rules! fails {
    ($call:expr, $($errno:ident)|+) => {
        match $call {
            Err(error) if $(rustix::io::Errno::$errno == error)||+ => {}
            Err(error) => panic!("{}: {error:?} instead of {}", stringify!($call), stringify!($($errno)|+)),
            Ok(_) => panic!("{}: done instead of {}", stringify!($call), stringify!($($errno)|+)),
        }
    };
}
pub(crate) use fails;

/// Runs every check in a directory of its own below `place`; returns how many there were, and those that
/// failed with their words.
pub fn run_all(place: &Place) -> (usize, Vec<String>) {
    let only = std::env::var("SAMEHOST_POSIX_ONLY").ok();
    let groups = [
        names::CHECKS,
        making::CHECKS,
        links::CHECKS,
        renaming::CHECKS,
        permissions::CHECKS,
        attributes::CHECKS,
        times::CHECKS,
        data::CHECKS,
        directories::CHECKS,
    ];
    let all = groups.iter().flat_map(|group| group.iter());
    let wanted = all.filter(|check| only.as_ref().is_none_or(|only| check.name.contains(only)));
    let (mut count, mut failed) = (0, Vec::new());
    for (number, check) in wanted.enumerate() {
        count += 1;
        let own = place.own(&format!("check-{number}"));
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| (check.run)(&own))) else { continue };
        let words = panic.downcast_ref::<String>().cloned();
        let words = words.or_else(|| panic.downcast_ref::<&str>().map(|&words| words.to_owned()));
        failed.push(format!("{}: {}", check.name, words.unwrap_or_default()));
    }
    (count, failed)
}
