//! The permitted changes of the grace database: pure functions from the old contents to the new ones.
//!
//! A change is written under the condition that the object's version is the one whose contents it was made
//! from, so what it has checked still holds when it takes effect.

use crate::database::{Database, Flags, Notes};

/// Why a change isn't permitted now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChangeRefused {
    /// The name of a node is empty, or has characters that the database can't hold.
    #[error("{0:?} can't be the name of a node")]
    Name(String),
    /// The node isn't a member.
    #[error("{0} isn't a node of the cluster")]
    NotMember(String),
    /// The node is a member already.
    #[error("{0} is a node of the cluster already")]
    Member(String),
    /// The node may have clients with state.
    #[error("{0} may have clients with opens and locks")]
    HasState(String),
    /// The node is being drained.
    #[error("{0} is being drained to {1}")]
    Drained(String, String),
    /// A node can't take its own clients over.
    #[error("{0} can't be drained to itself")]
    ToItself(String),
    /// A node that never ran Samehost takes no clients over.
    #[error("{0} has never served as a node of Samehost")]
    NeverServed(String),
    /// A grace period stands.
    #[error("the grace period stands")]
    Grace,
    /// No grace period stands, or the node has no part in it.
    #[error("{0} doesn't recover clients")]
    NotRecovering(String),
    /// Not all members enforce the grace period.
    #[error("not all nodes enforce the grace period yet")]
    NotEnforced,
}

impl Database {
    /// A new member. It enforces until it has started.
    ///
    /// # Errors
    /// `Name`, `Member`, and `Drained` while the clients of a node of that name are being taken over.
    pub fn add(&self, node: &str) -> Result<Self, ChangeRefused> {
        if node.is_empty() || node.contains(|c: char| c.is_control() || c == ',' || c == '/') {
            return Err(ChangeRefused::Name(node.to_owned()));
        }
        if self.nodes.contains_key(node) {
            return Err(ChangeRefused::Member(node.to_owned()));
        }
        if self.is_taken_over(node) {
            let successor = self.notes[node].successor.clone().unwrap_or_default();
            return Err(ChangeRefused::Drained(node.to_owned(), successor));
        }
        let mut new = self.clone();
        new.nodes.insert(node.to_owned(), Flags::ENFORCES);
        new.notes.remove(node);
        Ok(new)
    }

    /// Removes a member without clients.
    ///
    /// # Errors
    /// `NotMember`; `HasState` unless the node enforces, needs no grace period, and has left no state.
    pub fn remove(&self, node: &str) -> Result<Self, ChangeRefused> {
        let flags = self.member(node)?;
        let may_hold_state = self.notes.get(node).is_some_and(|notes| !notes.sessions.is_empty());
        if !flags.enforces() || flags.needs_grace() || may_hold_state {
            return Err(ChangeRefused::HasState(node.to_owned()));
        }
        let mut new = self.clone();
        new.nodes.remove(node);
        new.notes.remove(node);
        Ok(new)
    }

    /// Orders that `to` takes over the clients of `from`.
    ///
    /// # Errors
    /// `NotMember`, `ToItself`, `NeverServed`; `Drained` if one of them is being drained already, or another
    /// node to `from`.
    pub fn drain(&self, from: &str, to: &str) -> Result<Self, ChangeRefused> {
        self.member(from)?;
        self.member(to)?;
        if from == to {
            return Err(ChangeRefused::ToItself(from.to_owned()));
        }
        let successor = |node: &str| self.notes.get(node).and_then(|notes| notes.successor.clone());
        for node in [from, to] {
            if let Some(successor) = successor(node) {
                return Err(ChangeRefused::Drained(node.to_owned(), successor));
            }
        }
        let to_it = self.notes.iter().find(|(_, notes)| notes.successor.as_deref() == Some(from));
        if let Some((predecessor, _)) = to_it {
            return Err(ChangeRefused::Drained(predecessor.clone(), from.to_owned()));
        }
        if !self.notes.contains_key(to) {
            return Err(ChangeRefused::NeverServed(to.to_owned()));
        }
        let mut new = self.clone();
        let notes = new.notes(from);
        (notes.successor, notes.taken) = (Some(to.to_owned()), 0);
        Ok(new)
    }

    /// `node` starts with clients that may reclaim: it sets N and E. Without a grace period one begins.
    ///
    /// # Errors
    /// `NotMember`.
    pub fn begin_recovery(&self, node: &str) -> Result<Self, ChangeRefused> {
        let mut new = self.with(node, Flags::NEEDS_GRACE.with(Flags::ENFORCES))?;
        new.begin_grace();
        Ok(new)
    }

    /// `node`, which may be giving state, takes over the clients of `from`: it sets N. Without a grace period
    /// one begins.
    ///
    /// # Errors
    /// `NotMember`; `NotRecovering` without such an order.
    pub fn take_over(&self, from: &str, node: &str) -> Result<Self, ChangeRefused> {
        self.member(from)?;
        let mut new = self.with(node, Flags::NEEDS_GRACE)?;
        new.begin_grace();
        let recovery = new.recovery;
        let notes = new.notes.get_mut(from).filter(|notes| notes.successor.as_deref() == Some(node));
        notes.ok_or_else(|| ChangeRefused::NotRecovering(node.to_owned()))?.taken = recovery;
        Ok(new)
    }

    /// `node` enforces the grace period: it gives no state, and its clients are recorded for the current
    /// epoch.
    ///
    /// # Errors
    /// `NotMember`.
    pub fn enforce(&self, node: &str) -> Result<Self, ChangeRefused> {
        self.with(node, Flags::ENFORCES)
    }

    /// `node` is about to release the state of the former runs of the nodes `of`, which the filesystem still
    /// held after all members enforced. `session` is its own.
    ///
    /// # Errors
    /// `NotMember`, `NotRecovering`, `NotEnforced`.
    pub fn release(&self, node: &str, session: &str, of: &[&str]) -> Result<Self, ChangeRefused> {
        self.recovering(node)?;
        let mut new = self.clone();
        for of in of {
            new.notes(of).released = self.current;
        }
        let sessions = &mut new.notes(node).sessions;
        if !sessions.iter().any(|other| other == session) {
            sessions.push(session.to_owned());
        }
        Ok(new)
    }

    /// `node` accepts no reclaims any more: it clears N. The last N ends the grace period. Its former
    /// sessions have been evicted; `session` is left.
    ///
    /// # Errors
    /// `NotMember`, `NotRecovering`, `NotEnforced`; `Drained` while a predecessor is still a member.
    pub fn end_recovery(&self, node: &str, session: &str) -> Result<Self, ChangeRefused> {
        self.recovering(node)?;
        if let Some(from) = self.predecessors(node).find(|from| self.nodes.contains_key(*from)) {
            return Err(ChangeRefused::Drained(from.to_owned(), node.to_owned()));
        }
        let mut new = self.clone();
        new.nodes.insert(node.to_owned(), self.member(node)?.without(Flags::NEEDS_GRACE));
        new.notes(node).sessions = vec![session.to_owned()];
        if !new.nodes.values().any(|flags| flags.needs_grace()) {
            new.recovery = 0;
        }
        Ok(new)
    }

    /// After the grace period `node` is about to give state, by `session`: it clears E. Its predecessors are
    /// forgotten.
    ///
    /// # Errors
    /// `NotMember`, `Grace`.
    pub fn resume(&self, node: &str, session: &str) -> Result<Self, ChangeRefused> {
        let flags = self.member(node)?;
        if self.in_grace() {
            return Err(ChangeRefused::Grace);
        }
        let mut new = self.clone();
        new.nodes.insert(node.to_owned(), flags.without(Flags::ENFORCES.with(Flags::NEEDS_GRACE)));
        new.notes(node).sessions = vec![session.to_owned()];
        new.notes.retain(|of, notes| self.nodes.contains_key(of) || notes.successor.as_deref() != Some(node));
        Ok(new)
    }

    /// `node` stops, and its clients have no state.
    ///
    /// # Errors
    /// `NotMember`, and `HasState` if it needs a grace period.
    pub fn stop(&self, node: &str) -> Result<Self, ChangeRefused> {
        let mut new = self.with(node, Flags::ENFORCES)?;
        if self.member(node)?.needs_grace() {
            return Err(ChangeRefused::HasState(node.to_owned()));
        }
        new.notes(node).sessions.clear();
        Ok(new)
    }

    /// `node`, which is drained and has fallen silent, is about to release the state of its clients. The
    /// others enforce.
    ///
    /// # Errors
    /// `NotMember`, `NotEnforced`; `NotRecovering` if its successor hasn't taken over.
    pub fn release_drained(&self, node: &str) -> Result<Self, ChangeRefused> {
        if !self.expel(node)?.all_enforce() {
            return Err(ChangeRefused::NotEnforced);
        }
        let mut new = self.clone();
        new.notes(node).released = self.current;
        Ok(new)
    }

    /// `node`, which is drained and has fallen silent, leaves the cluster. The others enforce. Its clients'
    /// state is released, or is for its successor to examine.
    ///
    /// # Errors
    /// `NotMember`, `NotEnforced`; `NotRecovering` if its successor hasn't taken over.
    pub fn depart(&self, node: &str) -> Result<Self, ChangeRefused> {
        let new = self.expel(node)?;
        if new.all_enforce() { Ok(new) } else { Err(ChangeRefused::NotEnforced) }
    }

    /// The successor of `node`, which is drained, removes it from the cluster: it has not been in contact for
    /// so long that it has fallen silent.
    ///
    /// # Errors
    /// `NotMember`; `NotRecovering` if its successor hasn't taken over.
    pub fn expel(&self, node: &str) -> Result<Self, ChangeRefused> {
        self.member(node)?;
        if !self.is_taken_over(node) {
            return Err(ChangeRefused::NotRecovering(node.to_owned()));
        }
        let mut new = self.clone();
        new.nodes.remove(node);
        Ok(new)
    }

    fn member(&self, node: &str) -> Result<Flags, ChangeRefused> {
        self.flags(node).ok_or_else(|| ChangeRefused::NotMember(node.to_owned()))
    }

    /// With these flags of `node`, too.
    fn with(&self, node: &str, flags: Flags) -> Result<Self, ChangeRefused> {
        let flags = self.member(node)?.with(flags);
        let mut new = self.clone();
        new.nodes.insert(node.to_owned(), flags);
        Ok(new)
    }

    /// Checks that `node` may accept reclaims.
    fn recovering(&self, node: &str) -> Result<(), ChangeRefused> {
        if !self.member(node)?.needs_grace() || !self.in_grace() {
            return Err(ChangeRefused::NotRecovering(node.to_owned()));
        }
        if self.all_enforce() { Ok(()) } else { Err(ChangeRefused::NotEnforced) }
    }

    const fn begin_grace(&mut self) {
        if !self.in_grace() {
            self.recovery = self.current;
            self.current += 1;
        }
    }

    fn notes(&mut self, node: &str) -> &mut Notes {
        self.notes.entry(node.to_owned()).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two nodes that give state.
    fn two() -> Database {
        let added = Database::default().add("a").and_then(|new| new.add("b")).unwrap();
        added.resume("a", "s1").and_then(|new| new.resume("b", "s2")).unwrap()
    }

    fn flags(database: &Database) -> (u64, u64, [u8; 2]) {
        let of = |node| database.flags(node).map_or(0xff, |flags| flags.0);
        (database.current, database.recovery, [of("a"), of("b")])
    }

    #[test]
    fn a_grace_period_from_its_beginning_to_its_end() {
        let added = Database::default().add("a").and_then(|new| new.add("b")).unwrap();
        assert_eq!(flags(&added), (1, 0, [2, 2]), "a new node enforces");
        let begun = two().begin_recovery("a").unwrap();
        assert_eq!(flags(&begun), (2, 1, [3, 0]));
        assert_eq!(begun.release("a", "s3", &["a"]), Err(ChangeRefused::NotEnforced));
        assert_eq!(begun.end_recovery("a", "s3"), Err(ChangeRefused::NotEnforced));
        assert_eq!(begun.resume("b", "s2"), Err(ChangeRefused::Grace));
        let joined = begun.begin_recovery("b").unwrap();
        assert_eq!(flags(&joined), (2, 1, [3, 3]), "one grace period, however many join");
        let first = joined.end_recovery("a", "s3").unwrap();
        assert_eq!(flags(&first), (2, 1, [2, 3]));
        assert_eq!(first.end_recovery("a", "s3"), Err(ChangeRefused::NotRecovering("a".to_owned())));
        let enforced = begun.enforce("b").unwrap();
        let released = enforced.release("a", "s3", &["a"]).unwrap();
        assert_eq!(
            (&released.notes["a"].sessions[..], released.notes["a"].released),
            (&["s1".to_owned(), "s3".to_owned()][..], 2)
        );
        let lifted = released.end_recovery("a", "s3").unwrap();
        assert_eq!(flags(&lifted), (2, 0, [2, 2]), "each node ends its enforcing itself");
        assert_eq!(lifted.notes["a"].sessions, ["s3"]);
        assert_eq!(flags(&lifted.resume("b", "s2").unwrap()), (2, 0, [2, 0]));
    }

    #[test]
    fn a_node_with_state_is_drained_before_it_goes() {
        let two = two();
        assert_eq!(two.remove("a"), Err(ChangeRefused::HasState("a".to_owned())));
        assert_eq!(two.enforce("a").unwrap().remove("a"), Err(ChangeRefused::HasState("a".to_owned())));
        assert_eq!(flags(&two.stop("a").unwrap().remove("a").unwrap()), (1, 0, [0xff, 0]));
        assert_eq!(two.drain("a", "a"), Err(ChangeRefused::ToItself("a".to_owned())));
        let ganesha = two.add("c").unwrap();
        assert_eq!(ganesha.drain("a", "c"), Err(ChangeRefused::NeverServed("c".to_owned())));
        let ordered = two.drain("a", "b").unwrap();
        assert_eq!(ordered.drain("b", "a"), Err(ChangeRefused::Drained("a".to_owned(), "b".to_owned())));
        let third = ordered.add("c").and_then(|new| new.resume("c", "s3")).unwrap();
        assert_eq!(third.drain("b", "c"), Err(ChangeRefused::Drained("a".to_owned(), "b".to_owned())));
        assert_eq!(ordered.depart("a"), Err(ChangeRefused::NotRecovering("a".to_owned())));
        assert_eq!(ordered.take_over("b", "a"), Err(ChangeRefused::NotRecovering("a".to_owned())));
        let taken = ordered.take_over("a", "b").unwrap();
        assert_eq!(flags(&taken), (2, 1, [0, 1]));
        assert_eq!(taken.depart("a"), Err(ChangeRefused::NotEnforced));
        let enforced = taken.enforce("b").unwrap();
        assert_eq!(
            enforced.enforce("a").unwrap().end_recovery("b", "s2"),
            Err(ChangeRefused::Drained("a".to_owned(), "b".to_owned()))
        );
        assert_eq!(taken.release_drained("a"), Err(ChangeRefused::NotEnforced));
        let released = enforced.release_drained("a").unwrap();
        assert_eq!(flags(&released), (2, 1, [0, 3]), "a member until it has released everything");
        let gone = released.depart("a").unwrap();
        assert_eq!(gone.predecessors("b").collect::<Vec<_>>(), ["a"]);
        assert_eq!(gone.notes["a"].released, gone.current);
        assert_eq!(gone.add("a"), Err(ChangeRefused::Drained("a".to_owned(), "b".to_owned())));
        let lifted = gone.end_recovery("b", "s2").unwrap();
        assert_eq!(lifted.predecessors("b").count(), 0);
        let resumed = lifted.resume("b", "s2").unwrap();
        assert_eq!((flags(&resumed), resumed.notes.len()), ((2, 0, [0xff, 0]), 1));
    }

    #[test]
    fn names_that_the_database_cannot_hold() {
        for name in ["", "a,b", "a\n", "a/b"] {
            assert_eq!(Database::default().add(name), Err(ChangeRefused::Name(name.to_owned())));
        }
        assert_eq!(two().add("a"), Err(ChangeRefused::Member("a".to_owned())));
        assert_eq!(two().enforce("c"), Err(ChangeRefused::NotMember("c".to_owned())));
    }
}
