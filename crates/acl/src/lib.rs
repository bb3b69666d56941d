//! Access control lists: POSIX ones, which Linux keeps and checks (acl(5)), as they are in NFSACL and in
//! NFSv4 (RFC 8881 section 6.2). Pure functions.
//!
//! Every POSIX list has an NFSv4 list with the same meaning ([`to_nfs4`]). Not every NFSv4 list has a POSIX
//! one. A server sets the POSIX list that allows as much of it as possible and nothing more ([`from_nfs4`]).
//! A client shows a POSIX list only if it means the same ([`same_as_nfs4`]).
//!
//! The types of the POSIX lists are those of the crate `sys`.

mod ace;
mod from_nfs4;
pub mod nfsacl;
mod same_as_nfs4;
#[cfg(test)]
mod tests;
mod to_nfs4;

pub use ace::{Ace, NoCounterpart, Who};
pub use from_nfs4::from_nfs4;
pub use same_as_nfs4::same_as_nfs4;
pub use to_nfs4::to_nfs4;
