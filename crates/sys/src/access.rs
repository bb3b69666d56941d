//! Access rights to a file, in one representation for protocol, server and client.

/// A set of access rights, with the bits of NFSv3's ACCESS (RFC 1813 section 3.3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Access(pub u32);

impl Access {
    /// Read a file's data or a directory's names.
    pub const READ: Self = Self(0x01);
    /// Look up a name in a directory.
    pub const LOOKUP: Self = Self(0x02);
    /// Change existing data or names.
    pub const MODIFY: Self = Self(0x04);
    /// Add data or names.
    pub const EXTEND: Self = Self(0x08);
    /// Delete an existing name of a directory.
    pub const DELETE: Self = Self(0x10);
    /// Execute a file.
    pub const EXECUTE: Self = Self(0x20);

    /// Whether this set includes every right of `other`.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for Access {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl std::ops::BitAnd for Access {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}
