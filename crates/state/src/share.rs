//! Share reservations (RFC 8881 section 9.7): the access that an open wants and that which it denies to
//! others.

/// The access and deny bits of an OPEN: 1 to read, 2 to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Share {
    /// The access that the open is for.
    pub access: u8,
    /// The access that it denies to others.
    pub deny: u8,
}

impl Share {
    /// Whether one of the two denies what the other is for.
    #[must_use]
    pub const fn conflicts(self, other: Self) -> bool {
        self.access & other.deny != 0 || self.deny & other.access != 0
    }

    const fn union(self, other: Self) -> Self {
        Self { access: self.access | other.access, deny: self.deny | other.deny }
    }

    const fn contains(self, other: Self) -> bool {
        self.union(other).access == self.access && self.union(other).deny == self.deny
    }
}

/// The OPENs of one owner on one file. The open's bits are the union of theirs.
#[derive(Debug, Clone, Default)]
pub(crate) struct OpenShares {
    /// Each pair once, twelve at most.
    opened: Vec<Share>,
}

impl OpenShares {
    pub fn union(&self) -> Share {
        self.opened.iter().fold(Share::default(), |all, share| all.union(*share))
    }

    /// Whether any access is denied to others.
    pub fn denies(&self) -> bool {
        self.opened.iter().any(|share| share.deny != 0)
    }

    pub fn add(&mut self, share: Share) {
        if !self.opened.contains(&share) {
            self.opened.push(share);
        }
    }

    /// OPEN_DOWNGRADE: closes the OPENs that aren't part of `to`. False, and no change, if the union of the
    /// others isn't `to`.
    pub fn downgrade(&mut self, to: Share) -> bool {
        let left = Self { opened: self.opened.iter().copied().filter(|share| to.contains(*share)).collect() };
        let can = left.union() == to;
        if can {
            *self = left;
        }
        can
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn share(access: u8, deny: u8) -> Share {
        Share { access, deny }
    }

    #[test]
    fn denied_access_conflicts() {
        assert!(share(1, 2).conflicts(share(2, 0)) && share(2, 0).conflicts(share(1, 2)));
        assert!(!share(1, 2).conflicts(share(1, 2)) && !share(3, 0).conflicts(share(3, 0)));
    }

    #[test]
    fn a_downgrade_leaves_only_what_was_opened() {
        let mut shares = OpenShares::default();
        shares.add(share(3, 0));
        assert!(!shares.downgrade(share(1, 0)), "no OPEN was for reading only");
        shares.add(share(1, 0));
        shares.add(share(2, 1));
        assert_eq!(shares.union(), share(3, 1));
        assert!(shares.clone().downgrade(share(3, 1)));
        assert!(shares.downgrade(share(1, 0)));
        assert!(!shares.downgrade(share(3, 0)), "that one is closed");
        assert_eq!(shares.union(), share(1, 0));
    }
}
