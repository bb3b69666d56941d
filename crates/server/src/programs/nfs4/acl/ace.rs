//! Entries of NFSv4's access control lists, and the rights that POSIX permissions stand for.

use proto::nfs4::{
    ACE_APPEND_DATA, ACE_DELETE_CHILD, ACE_DIRECTORY_INHERIT, ACE_EXECUTE, ACE_FILE_INHERIT, ACE_READ_DATA,
    ACE_WRITE_DATA,
};
use store::PosixAcl;

/// The subject of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    Owner,
    Group,
    Everyone,
    User(u32),
    NamedGroup(u32),
}

/// An entry that allows or denies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ace {
    pub allows: bool,
    /// `ACE4_` flags of inheritance, without the flag for a group.
    pub flags: u32,
    /// `ACE4_` rights.
    pub rights: u32,
    pub who: Who,
}

/// A file's access list, and a directory's default list, which new entries inherit.
pub(crate) type AclPair = (PosixAcl, Option<PosixAcl>);

pub(super) const READ: u8 = 4;
pub(super) const WRITE: u8 = 2;
pub(super) const EXECUTE: u8 = 1;
/// The flags of an entry that every new entry of a directory inherits, as from a POSIX default list.
pub(super) const INHERITED: u32 = ACE_FILE_INHERIT | ACE_DIRECTORY_INHERIT;

/// The NFSv4 rights of each POSIX permission.
pub(super) const fn rights_of(directory: bool) -> [(u8, u32); 3] {
    let write = ACE_WRITE_DATA | ACE_APPEND_DATA | if directory { ACE_DELETE_CHILD } else { 0 };
    [(READ, ACE_READ_DATA), (WRITE, write), (EXECUTE, ACE_EXECUTE)]
}
