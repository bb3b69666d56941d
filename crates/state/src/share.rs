//! Share reservations: what an open is for and what it denies to others (RFC 8881 section 9.7), as values.

/// Access and deny bits of one OPEN: 1 read, 2 write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Share {
    /// What for.
    pub access: u8,
    /// What others may not.
    pub deny: u8,
}

impl Share {
    /// Whether the two can't be at the same time.
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

/// The OPENs of one owner on one file: one open, whose bits are the union of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shares {
    /// Each pair once: there are twelve at most.
    opened: Vec<Share>,
}

impl Shares {
    pub fn union(&self) -> Share {
        self.opened.iter().fold(Share::default(), |all, share| all.union(*share))
    }

    /// Whether others may not do something.
    pub fn denies(&self) -> bool {
        self.opened.iter().any(|share| share.deny != 0)
    }

    pub fn add(&mut self, share: Share) {
        if !self.opened.contains(&share) {
            self.opened.push(share);
        }
    }

    /// OPEN_DOWNGRADE: what is left must be the union of some of the OPENs; the others are closed. False if
    /// it isn't.
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
    fn what_one_denies_the_other_cannot_have() {
        assert!(share(1, 2).conflicts(share(2, 0)) && share(2, 0).conflicts(share(1, 2)));
        assert!(!share(1, 2).conflicts(share(1, 2)) && !share(3, 0).conflicts(share(3, 0)));
    }

    #[test]
    fn only_what_was_opened_is_left_by_a_downgrade() {
        let mut shares = Shares::default();
        shares.add(share(3, 0));
        assert!(!shares.downgrade(share(1, 0)), "nobody has opened for reading only");
        shares.add(share(1, 0));
        shares.add(share(2, 1));
        assert_eq!(shares.union(), share(3, 1));
        assert!(shares.clone().downgrade(share(3, 1)));
        assert!(shares.downgrade(share(1, 0)));
        assert!(!shares.downgrade(share(3, 0)), "that one is closed");
        assert_eq!(shares.union(), share(1, 0));
    }
}
