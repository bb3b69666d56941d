//! Clients that may reclaim from this node: those of its former runs, and those of nodes that it takes over.

use std::collections::BTreeSet;
use std::time::Instant;

use super::{Member, Task};
use crate::database::{Database, Versioned};
use crate::event::{Effect, Fate};

/// What is known of the clients of a node's former run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FormerClients {
    /// Whether there are any isn't known.
    Unknown,
    /// There are some in the records up to that epoch.
    Found { up_to: u64 },
    /// The filesystem held their state when the node started. That it still does has to be seen when all
    /// nodes enforce.
    Held,
    /// The filesystem held their state when all nodes enforced.
    Verified,
    /// Their state is released: they may have it back.
    Released,
    /// Their reclaims are accepted.
    Accepted,
    /// Their state was lost, and their records are to be removed.
    Lost,
    /// There are none in the records up to that epoch, or they have reclaimed.
    Nothing { up_to: u64 },
}

impl FormerClients {
    /// A claim whose sessions were examined, before all nodes enforced or after.
    pub(super) const fn examined(fate: Fate, enforced: bool) -> Self {
        match (fate, enforced) {
            (Fate::Held, false) => Self::Held,
            (Fate::Held, true) => Self::Verified,
            (Fate::Lost, _) => Self::Lost,
        }
    }

    /// Whether it isn't known yet if anything may be reclaimed.
    const fn is_open(self) -> bool {
        matches!(self, Self::Unknown | Self::Found { .. } | Self::Lost)
    }

    /// Whether something is being, or is to be, reclaimed.
    const fn is_due(self) -> bool {
        matches!(self, Self::Held | Self::Verified | Self::Released | Self::Accepted)
    }
}

impl Member {
    /// Whether this node doesn't know yet if its former run has left clients.
    pub(super) fn is_looking(&self) -> bool {
        self.claims.get(&self.config.node).is_none_or(|claim| claim.is_open())
    }

    /// What has to be done to know the claims, and to have a grace period for them. Returns whether anything
    /// was begun.
    pub(super) fn decide_claims(&mut self, now: Instant, seen: &Versioned) -> bool {
        let database = &seen.database;
        let node = self.config.node.clone();
        self.update_claims(database);
        if let Some((of, claim)) = self.claims.iter().find(|(_, claim)| claim.is_open()) {
            let (of, claim) = (of.clone(), *claim);
            return self.look_at(&of, claim, database);
        }
        let flags = database.flags(&node).unwrap_or_default();
        let has_grace = database.in_grace() && flags.needs_grace();
        if self.claims.values().any(|claim| claim.is_due()) && !has_grace {
            return self.write(now, seen, database.begin_recovery(&node));
        }
        let is_ordered = |of: &str| {
            let notes = database.notes.get(of);
            notes.is_some_and(|notes| notes.successor.as_deref() == Some(&node))
                && !database.is_taken_over(of)
        };
        if let Some(from) = database.nodes.keys().find(|of| is_ordered(of)) {
            return self.write(now, seen, database.take_over(from, &node));
        }
        if !flags.enforces() {
            return false;
        }
        let silence = self.silence_of_others();
        let overdue = self.awaited.iter().find(|(_, since)| now >= **since + silence);
        match overdue.map(|(of, _)| database.expel(of)) {
            Some(change) => self.write(now, seen, change),
            None => false,
        }
    }

    /// Nodes that are taken over have clients, too. What was found in records of another epoch, before this
    /// node had a part in the grace period, is found again.
    fn update_claims(&mut self, database: &Database) {
        let node = &self.config.node;
        if !database.in_grace() {
            self.claims.retain(|of, _| of == node);
        }
        for of in database.predecessors(node).filter(|of| database.flags(of).is_none()) {
            self.claims.entry(of.to_owned()).or_insert(FormerClients::Unknown);
        }
        let up_to = records_up_to(database);
        if let Some(own) = self.claims.get_mut(node).filter(|_| self.records.is_none())
            && let FormerClients::Found { up_to: at } | FormerClients::Nothing { up_to: at } = *own
            && at < up_to
        {
            *own = FormerClients::Unknown;
        }
    }

    /// The next step for a claim of which not enough is known.
    fn look_at(&mut self, of: &str, claim: FormerClients, database: &Database) -> bool {
        let of = of.to_owned();
        let notes = database.notes.get(&of).cloned().unwrap_or_default();
        let was_released = database.in_grace() && notes.released == database.current;
        let found = match claim {
            FormerClients::Lost => {
                return self.begin(Task::RemoveRecords { of: of.clone() }, Effect::RemoveRecords { of });
            }
            FormerClients::Found { .. } if was_released => FormerClients::Verified,
            FormerClients::Found { .. } if notes.sessions.is_empty() => FormerClients::Lost,
            FormerClients::Found { .. } if of != self.config.node => FormerClients::Held,
            FormerClients::Found { .. } => return self.examine(of, notes.sessions, false),
            _ => {
                let up_to = records_up_to(database);
                let task = Task::FindRecords { of: of.clone(), up_to };
                return self.begin(task, Effect::FindRecords { of, up_to });
            }
        };
        self.claims.insert(of, found);
        true
    }

    fn examine(&mut self, of: String, sessions: Vec<String>, enforced: bool) -> bool {
        self.begin(Task::Examine { of, enforced }, Effect::Examine { sessions })
    }

    /// All nodes enforce, and this one has set N: releases what the filesystem holds, accepts reclaims, and
    /// ends them. Returns whether anything was begun.
    pub(super) fn decide_recovery(&mut self, now: Instant, seen: &Versioned) -> bool {
        let database = &seen.database;
        let (node, session) = (self.config.node.clone(), self.config.session.clone());
        let notes = |of: &str| database.notes.get(of).cloned().unwrap_or_default();
        let held = self.with_claim(FormerClients::Held).next().map(str::to_owned);
        if let Some(of) = held {
            let sessions = notes(&of).sessions;
            return self.examine(of, sessions, true);
        }
        let verified: Vec<_> = self.with_claim(FormerClients::Verified).map(str::to_owned).collect();
        if !verified.is_empty() {
            let is_noted = verified.iter().all(|of| notes(of).released == database.current)
                && notes(&node).sessions.contains(&session);
            if !is_noted {
                let of: Vec<_> = verified.iter().map(String::as_str).collect();
                return self.write(now, seen, database.release(&node, &session, &of));
            }
            // A former run of this node may have held what the clients of others had reclaimed from it.
            let sessions: BTreeSet<_> =
                verified.iter().chain([&node]).flat_map(|of| notes(of).sessions).collect();
            let sessions = sessions.into_iter().filter(|other| *other != session).collect();
            return self.begin(Task::Release, Effect::Release { sessions });
        }
        if self.records != Some(database.current) {
            return self.open_records(database.current);
        }
        let of: Vec<_> = self.with_claim(FormerClients::Released).map(str::to_owned).collect();
        if !of.is_empty() {
            (self.accepts, self.has_served) = (true, true);
            let task = Task::AcceptReclaims { of: of.clone() };
            return self.begin(task, Effect::AcceptReclaims { of, up_to: database.recovery });
        }
        if self.accepts {
            return self.has_reclaimed && self.begin(Task::EndReclaims, Effect::EndReclaims);
        }
        self.write(now, seen, database.end_recovery(&node, &session))
    }

    /// A node has left no clients in the records up to an epoch. Those that have mounted its address come to
    /// its successor.
    pub(super) fn nothing_left(&mut self, of: String, up_to: u64) {
        if of != self.config.node {
            self.effects.push(Effect::TakeAddress { of: of.clone() });
        }
        self.claims.insert(of, FormerClients::Nothing { up_to });
    }

    fn with_claim(&self, claim: FormerClients) -> impl Iterator<Item = &str> {
        self.claims.iter().filter(move |(_, other)| **other == claim).map(|(of, _)| of.as_str())
    }

    /// The state of verified claims is released.
    pub(super) fn released(&mut self) {
        self.claims.values_mut().filter(|claim| **claim == FormerClients::Verified).for_each(|claim| {
            *claim = FormerClients::Released;
        });
    }

    /// The reclaims of these nodes' clients are accepted.
    pub(super) fn accepted(&mut self, of: Vec<String>) {
        self.has_reclaimed = false;
        for of in of {
            if of != self.config.node {
                self.effects.push(Effect::TakeAddress { of: of.clone() });
            }
            self.claims.insert(of, FormerClients::Accepted);
        }
    }

    /// No reclaims are accepted any more.
    pub(super) fn reclaims_ended(&mut self) {
        self.accepts = false;
        self.claims.values_mut().filter(|claim| **claim == FormerClients::Accepted).for_each(|claim| {
            *claim = FormerClients::Nothing { up_to: u64::MAX };
        });
    }
}

/// The newest epoch whose records may be reclaimed from, in this grace period or in one that begins now.
const fn records_up_to(database: &Database) -> u64 {
    if database.in_grace() { database.recovery } else { database.current }
}
