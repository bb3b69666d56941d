//! Entries of NFSv4's access control lists, and the rights that POSIX permissions stand for.

use proto::nfs4::{
    ACE_APPEND_DATA, ACE_DELETE_CHILD, ACE_DIRECTORY_INHERIT, ACE_EXECUTE, ACE_FILE_INHERIT, ACE_READ_DATA,
    ACE_WRITE_DATA,
};

/// The subject of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// `OWNER@`.
    Owner,
    /// `GROUP@`.
    Group,
    /// `EVERYONE@`.
    Everyone,
    /// A user.
    User(u32),
    /// A group.
    NamedGroup(u32),
}

/// An entry that allows or denies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ace {
    /// Whether it allows the rights. Otherwise it denies them.
    pub allows: bool,
    /// `ACE4_` flags of inheritance, without the flag for a group.
    pub flags: u32,
    /// `ACE4_` rights.
    pub rights: u32,
    /// Whom it concerns.
    pub who: Who,
}

/// The NFSv4 list has no POSIX counterpart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoCounterpart;

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
