//! POSIX rules of a filesystem, each a small named check. The checks are independent of NFS: they run on a
//! local directory first, which validates the checks themselves.
//!
//! A check may rely on the following: it runs as root, and its directory is empty, accessible to every user
//! and used by no other check. Where NFSv3 can't do what POSIX requires ([`TestDir::local`]), the check says
//! what a client may do instead.

mod attributes;
mod creation;
mod data;
mod directories;
mod links;
mod names;
mod permissions;
mod renaming;
pub mod test_dir;
mod times;

pub use test_dir::TestDir;

use std::panic::{AssertUnwindSafe, catch_unwind};

/// One rule.
pub struct Check {
    pub name: &'static str,
    pub run: fn(&TestDir),
}

/// Declares functions of the module as checks.
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

/// Asserts that a call fails with one of the given errors.
macro_rules! fails {
    ($call:expr, $($errno:ident)|+) => {
        match $call {
            Err(error) if $(rustix::io::Errno::$errno == error)||+ => {}
            Err(error) => panic!("{}: {error:?} instead of {}", stringify!($call), stringify!($($errno)|+)),
            Ok(_) => panic!("{}: succeeded instead of {}", stringify!($call), stringify!($($errno)|+)),
        }
    };
}
pub(crate) use fails;

/// Runs every check in a directory of its own below `base`; returns the number of checks, and those that
/// failed with their messages.
pub fn run_all(base: &TestDir) -> (usize, Vec<String>) {
    let only = std::env::var("SAMEHOST_POSIX_ONLY").ok();
    let groups = [
        names::CHECKS,
        creation::CHECKS,
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
        let own = base.own(&format!("check-{number}"));
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| (check.run)(&own))) else { continue };
        let words = panic.downcast_ref::<String>().cloned();
        let words = words.or_else(|| panic.downcast_ref::<&str>().map(|&words| words.to_owned()));
        failed.push(format!("{}: {}", check.name, words.unwrap_or_default()));
    }
    (count, failed)
}
