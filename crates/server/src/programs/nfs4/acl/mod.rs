//! Access control lists: NFSv4's (RFC 8881 section 6.2) over POSIX ones, which Linux keeps and checks.
//!
//! Every POSIX list has an NFSv4 list with the same meaning (`to_nfs4`). Not every NFSv4 list has a POSIX
//! one. A list that a client sets (`from_nfs4`) becomes the POSIX list that allows as much of it as possible
//! and nothing more. Audit entries, and rights that only files inherit, have no counterpart and are refused.
//! `wire` encodes entries and the names in them.

mod ace;
mod from_nfs4;
#[cfg(test)]
mod tests;
mod to_nfs4;
mod wire;

pub(super) use ace::{Ace, AclPair};
pub(super) use from_nfs4::from_nfs4;
pub(super) use to_nfs4::to_nfs4;
pub(super) use wire::{decode, put};
