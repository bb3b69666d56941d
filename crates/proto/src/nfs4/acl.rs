//! Access control lists (RFC 8881 section 6.2).

use super::OPAQUE_LIMIT;
use xdr::{Array, Decode, Encode, Opaque};

/// The most entries in a list. The RFC has no bound; an attribute's values hold no more.
pub const MAX_ACES: usize = 8192;

/// `nfsace4`: an access control entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Nfsace4<'a> {
    /// The type: allow, deny, audit or alarm ([`ACE_ALLOWED`] and others).
    pub kind: u32,
    /// `ACE4_` flags.
    pub flag: u32,
    /// `ACE4_` rights.
    pub access_mask: u32,
    /// "OWNER@", "GROUP@", "EVERYONE@", or a name.
    pub who: Opaque<'a, OPAQUE_LIMIT>,
}

/// `fattr4_acl`.
pub type Acl4<'a> = Array<Nfsace4<'a>, MAX_ACES>;

/// `ACE4_ACCESS_ALLOWED_ACE_TYPE`.
pub const ACE_ALLOWED: u32 = 0;
/// `ACE4_ACCESS_DENIED_ACE_TYPE`.
pub const ACE_DENIED: u32 = 1;

/// `ACL4_SUPPORT_ALLOW_ACL`.
pub const ACL_SUPPORT_ALLOW: u32 = 1;
/// `ACL4_SUPPORT_DENY_ACL`.
pub const ACL_SUPPORT_DENY: u32 = 2;

/// `ACE4_FILE_INHERIT_ACE`.
pub const ACE_FILE_INHERIT: u32 = 0x01;
/// `ACE4_DIRECTORY_INHERIT_ACE`.
pub const ACE_DIRECTORY_INHERIT: u32 = 0x02;
/// `ACE4_INHERIT_ONLY_ACE`.
pub const ACE_INHERIT_ONLY: u32 = 0x08;
/// `ACE4_IDENTIFIER_GROUP`.
pub const ACE_IDENTIFIER_GROUP: u32 = 0x40;

/// `ACE4_READ_DATA` and `ACE4_LIST_DIRECTORY`.
pub const ACE_READ_DATA: u32 = 0x01;
/// `ACE4_WRITE_DATA` and `ACE4_ADD_FILE`.
pub const ACE_WRITE_DATA: u32 = 0x02;
/// `ACE4_APPEND_DATA` and `ACE4_ADD_SUBDIRECTORY`.
pub const ACE_APPEND_DATA: u32 = 0x04;
/// `ACE4_EXECUTE`: of a directory, search.
pub const ACE_EXECUTE: u32 = 0x20;
/// `ACE4_DELETE_CHILD`.
pub const ACE_DELETE_CHILD: u32 = 0x40;
/// `ACE4_READ_ATTRIBUTES`.
pub const ACE_READ_ATTRIBUTES: u32 = 0x80;
/// `ACE4_WRITE_ATTRIBUTES`.
pub const ACE_WRITE_ATTRIBUTES: u32 = 0x100;
/// `ACE4_READ_ACL`.
pub const ACE_READ_ACL: u32 = 0x2_0000;
/// `ACE4_WRITE_ACL`.
pub const ACE_WRITE_ACL: u32 = 0x4_0000;
/// `ACE4_SYNCHRONIZE`.
pub const ACE_SYNCHRONIZE: u32 = 0x10_0000;
