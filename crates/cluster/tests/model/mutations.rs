//! Mistakes, each against one of the rules. The checker must notice them.
//!
//! They are made outside of the machine: what it sees, what it is answered, or what is done with its effects
//! differs from the truth.

use samehost_cluster::{Database, Flags};

/// A mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    /// A restarted server accepts reclaims without a grace period.
    RecoverWithoutGrace,
    /// A recovering node doesn't wait until the others enforce.
    ReleaseEarly,
    /// E is set while operations that give state are still running.
    EnforceEarly,
    /// E is set before the clients are recorded for the new epoch.
    ForgetRecords,
    /// The server gives state in the grace period.
    GiveInGrace,
    /// State that the filesystem has given to others is taken for held.
    BelieveHeld,
    /// The records of clients whose state was lost are kept, also in new epochs.
    KeepLostRecords,
    /// The first node that is done ends the grace period for all.
    LiftForAll,
    /// A node resumes before the grace period has ended.
    ResumeEarly,
    /// Reclaims are accepted after N was cleared.
    ReclaimLate,
    /// A server that should be silent goes on.
    NeverSilent,
    /// A successor doesn't wait until its predecessor is silent.
    HastySuccessor,
    /// Records of the epoch that is being written permit to reclaim.
    ReclaimFromNewest,
    /// A client's record stays when its state goes to others.
    RememberForever,
    /// A drained server unlocks its mark while it holds locks of its clients.
    UnmarkHeld,
    /// Writes ignore the object's version.
    WriteBlindly,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::RecoverWithoutGrace,
        Self::ReleaseEarly,
        Self::EnforceEarly,
        Self::ForgetRecords,
        Self::GiveInGrace,
        Self::BelieveHeld,
        Self::KeepLostRecords,
        Self::LiftForAll,
        Self::ResumeEarly,
        Self::ReclaimLate,
        Self::NeverSilent,
        Self::HastySuccessor,
        Self::ReclaimFromNewest,
        Self::RememberForever,
        Self::UnmarkHeld,
        Self::WriteBlindly,
    ];

    /// What the node sees of the database.
    pub fn view(self, node: &str, database: &Database) -> Database {
        let mut seen = database.clone();
        let flags = database.flags(node).unwrap_or_default();
        match self {
            Self::ReleaseEarly => {
                seen.nodes.values_mut().for_each(|flags| *flags = flags.with(Flags::ENFORCES));
                if seen.nodes.contains_key(node) {
                    seen.nodes.insert(node.to_owned(), flags);
                }
            }
            Self::ResumeEarly if flags.enforces() && !flags.needs_grace() => seen.recovery = 0,
            Self::HastySuccessor => {
                let taken: Vec<_> = database.predecessors(node).map(str::to_owned).collect();
                seen.nodes.retain(|of, _| !taken.contains(of));
            }
            _ => {}
        }
        seen
    }

    /// What the node writes.
    pub fn written(self, node: &str, old: &Database, new: &mut Database) {
        let needs_grace = |database: &Database| database.flags(node).is_some_and(Flags::needs_grace);
        if self == Self::LiftForAll && needs_grace(old) && !needs_grace(new) {
            new.recovery = 0;
        }
    }
}
