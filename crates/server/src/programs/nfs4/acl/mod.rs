//! Access control lists: NFSv4's (RFC 8881 section 6.2) over POSIX ones, which are what Linux keeps and
//! checks.
//!
//! Every POSIX list has its NFSv4 list (`to_nfs4`), which lets everybody do just what the POSIX list lets
//! him. The reverse isn't so: what a client sets (`from_nfs4`) is turned into the POSIX list that lets
//! everybody do as much as can be said and never more; what can't be said at all, such as audit entries or
//! rights that only files inherit, is refused. `wire` is how entries and the names in them are encoded.

mod from_nfs4;
#[cfg(test)]
mod tests;
mod to_nfs4;
mod wire;

use proto::nfs4::{
    ACE_APPEND_DATA, ACE_DELETE_CHILD, ACE_DIRECTORY_INHERIT, ACE_EXECUTE, ACE_FILE_INHERIT, ACE_READ_DATA,
    ACE_WRITE_DATA,
};
use store::PosixAcl;

pub(super) use from_nfs4::from_nfs4;
pub(super) use to_nfs4::to_nfs4;
pub(super) use wire::{decode, put};

/// Whom an entry is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    Owner,
    Group,
    Everyone,
    User(u32),
    NamedGroup(u32),
}

/// An entry that allows or denies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ace {
    pub allows: bool,
    /// How it is inherited: `ACE4_` flags, less that which says that `who` is a group.
    pub flags: u32,
    /// `ACE4_` rights.
    pub rights: u32,
    pub who: Who,
}

/// A file's list, and of a directory the one that new entries inherit.
pub(super) type Pair = (PosixAcl, Option<PosixAcl>);

const READ: u8 = 4;
const WRITE: u8 = 2;
const EXECUTE: u8 = 1;
/// Entries with both flags are inherited by whatever is made in a directory, as POSIX's default lists are.
const INHERITED: u32 = ACE_FILE_INHERIT | ACE_DIRECTORY_INHERIT;

/// The rights that each POSIX permission is.
const fn rights_of(directory: bool) -> [(u8, u32); 3] {
    let write = ACE_WRITE_DATA | ACE_APPEND_DATA | if directory { ACE_DELETE_CHILD } else { 0 };
    [(READ, ACE_READ_DATA), (WRITE, write), (EXECUTE, ACE_EXECUTE)]
}
