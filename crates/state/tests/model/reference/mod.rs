//! What an NFSv4 server remembers, as plainly as it can be said: lists that are searched, locks byte by byte,
//! no bounds. Two clients (by number), which renew their lease with whatever they do.

mod delegations;
mod locks;
mod queue;

use std::collections::{BTreeMap, BTreeSet};

use delegations::NotLent;
pub use delegations::{Delegation, Touched};
pub use locks::{Lock, LockDenied, Wanted};
pub use queue::Waiter;
use state::Error;

use crate::common::{COURTESY, DISTRUST, LEASE};

/// Bytes of a file that locks are about.
pub const BYTES: usize = 8;
/// Files.
pub const FILES: usize = 2;
/// Clients.
pub const CLIENTS: usize = 2;

/// A client, from one start to the next.
pub type Instance = (usize, u8);

/// What the server knows of a client.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known {
    /// It has a session.
    pub alive: bool,
    renewed: u64,
    /// It has reclaimed everything.
    pub complete: bool,
}

/// The opens of one owner of one client on one file.
#[derive(Debug, Clone)]
pub struct Open {
    /// Its name here.
    pub nr: u64,
    pub who: usize,
    pub owner: u8,
    pub file: u32,
    /// Access and deny bits of each OPEN.
    shares: BTreeSet<(u8, u8)>,
}

/// Everything.
#[derive(Debug, Clone, Default)]
pub struct Reference {
    now: u64,
    /// Until when and for whom others wait after a restart.
    grace_ends: u64,
    waiting: BTreeSet<Instance>,
    /// Each client's verifier: another when it has restarted.
    verifiers: [u8; CLIENTS],
    pub known: [Known; CLIENTS],
    /// In the order in which they were made.
    pub opens: Vec<Open>,
    pub locks: Vec<Lock>,
    /// In the order in which they came.
    pub waiters: Vec<Waiter>,
    /// Owners on files that were told since the last look that it is their turn.
    pub told: Vec<(usize, u8, u32)>,
    pub delegations: Vec<Delegation>,
    /// Delegations that were taken away, and their files, until their clients say that they know.
    pub revoked: [Vec<(u64, u32)>; CLIENTS],
    /// Delegations that were recalled since the last look.
    pub recalled: Vec<u64>,
    /// Files that delegations were in somebody's way of.
    contended: BTreeMap<u32, NotLent>,
    /// Clients that were late to return one.
    distrusted: [Option<NotLent>; CLIENTS],
    /// Access bits of each grant.
    pub grants: Vec<(u32, u8)>,
    next: u64,
    /// Clients whose state others may have been given: they mustn't reclaim it.
    pub lost: BTreeSet<usize>,
}

impl Open {
    /// What it is for, and what it denies.
    pub fn union(&self) -> (u8, u8) {
        self.shares.iter().fold((0, 0), |all, share| (all.0 | share.0, all.1 | share.1))
    }
}

impl Reference {
    /// After a restart that left `recorded` to reclaim what they had.
    pub fn after(recorded: BTreeSet<Instance>, verifiers: [u8; CLIENTS], next: u64) -> Self {
        Self { grace_ends: LEASE, waiting: recorded, verifiers, next, ..Self::default() }
    }

    /// Who a client is now.
    pub const fn instance(&self, who: usize) -> Instance {
        (who, self.verifiers[who])
    }

    pub const fn verifiers(&self) -> [u8; CLIENTS] {
        self.verifiers
    }

    pub fn now(&self) -> u64 {
        self.now
    }

    /// For names that no run has given before.
    pub fn next(&self) -> u64 {
        self.next
    }

    pub fn advance(&mut self, milliseconds: u64) {
        self.now += milliseconds;
        for who in 0..CLIENTS {
            let busy = self.has_state(who);
            let patience = if busy { LEASE + COURTESY } else { LEASE };
            if self.known[who].alive && self.now > self.known[who].renewed + patience {
                self.end(who);
            }
        }
        self.revoke_overdue();
        self.end_grace();
    }

    pub fn has_state(&self, who: usize) -> bool {
        self.opens.iter().any(|open| open.who == who)
            || self.locks.iter().any(|lock| lock.who == who)
            || self.delegations.iter().any(|given| given.who == who)
    }

    pub fn in_grace(&self) -> bool {
        self.now < self.grace_ends && !self.waiting.is_empty()
    }

    pub fn may_reclaim(&self, who: usize) -> bool {
        !self.known[who].complete && self.in_grace() && self.waiting.contains(&self.instance(who))
    }

    fn end_grace(&mut self) {
        if self.now >= self.grace_ends {
            for late in std::mem::take(&mut self.waiting) {
                if late == self.instance(late.0) {
                    self.lost.insert(late.0);
                }
            }
        }
    }

    /// A client is done for.
    fn end(&mut self, who: usize) {
        self.known[who] = Known::default();
        self.drop_all(who);
        self.waiting.remove(&self.instance(who));
        self.lost.insert(who);
    }

    fn drop_all(&mut self, who: usize) {
        self.opens.retain(|open| open.who != who);
        self.locks.retain(|lock| lock.who != who);
        self.waiters.retain(|waiter| waiter.wanted.open.who != who);
        self.delegations.retain(|given| given.who != who);
        self.revoked[who].clear();
    }

    /// Somebody who may reclaim has come back, or has reclaimed something.
    fn is_at_it(&mut self, who: usize) {
        if self.now < self.grace_ends && self.waiting.contains(&self.instance(who)) {
            self.grace_ends = self.grace_ends.max((self.now + LEASE / 8).min(2 * LEASE));
        }
    }

    /// A new session, of a new instance if there was none or with `reboot`.
    pub fn arrive(&mut self, who: usize, reboot: bool) {
        if reboot {
            if self.known[who].alive {
                self.waiting.remove(&self.instance(who));
            }
            self.verifiers[who] += 1;
            // What it had before is nothing that it misses.
            self.lost.remove(&who);
        }
        if reboot || !self.known[who].alive {
            self.is_at_it(who);
            self.drop_all(who);
            self.known[who] = Known { alive: true, renewed: self.now, complete: false };
        }
        self.renew(who);
    }

    pub fn renew(&mut self, who: usize) {
        self.known[who].renewed = self.now;
    }

    pub fn complete(&mut self, who: usize) -> Result<(), Error> {
        if std::mem::replace(&mut self.known[who].complete, true) {
            return Err(Error::CompleteAlready);
        }
        self.waiting.remove(&self.instance(who));
        // It knows what it has lost.
        self.lost.remove(&who);
        Ok(())
    }

    /// Whether a client may have state now.
    fn check_grace(&mut self, who: usize, reclaim: bool) -> Result<(), Error> {
        self.end_grace();
        let complete = self.known[who].complete;
        match reclaim {
            true if self.may_reclaim(who) => {
                self.is_at_it(who);
                Ok(())
            }
            true => Err(Error::NoGrace),
            false if self.in_grace() || !complete => Err(Error::Grace),
            false => Ok(()),
        }
    }

    /// All of these give way, or none does.
    fn give_way(&mut self, against: &[usize]) -> bool {
        let all = against.iter().all(|who| self.is_expired(*who));
        if all {
            against.iter().for_each(|who| self.end(*who));
        }
        all
    }

    fn is_expired(&self, who: usize) -> bool {
        !self.known[who].alive || self.now > self.known[who].renewed + LEASE
    }

    fn opens_against(&self, file: u32, access: u8, deny: u8) -> Vec<usize> {
        let against = self.opens.iter().filter(|open| {
            let (theirs, denied) = open.union();
            open.file == file && (access & denied != 0 || deny & theirs != 0)
        });
        against.map(|open| open.who).collect()
    }

    pub fn open(
        &mut self,
        who: usize,
        owner: u8,
        file: u32,
        share: (u8, u8),
        reclaim: bool,
    ) -> Result<u64, Error> {
        self.check_grace(who, reclaim)?;
        let conflict = if reclaim { Error::ReclaimConflict } else { Error::ShareDenied };
        let granted = self.grants.iter().any(|(on, access)| *on == file && access & share.1 != 0);
        let against = self.opens_against(file, share.0, share.1);
        if granted || !self.give_way(&against) {
            return Err(conflict);
        }
        self.touch(Some(who), file, Touched::Open(share.0, share.1))?;
        let own =
            self.opens.iter_mut().find(|open| open.who == who && open.owner == owner && open.file == file);
        if let Some(open) = own {
            open.shares.insert(share);
            return Ok(open.nr);
        }
        self.next += 1;
        self.opens.push(Open { nr: self.next, who, owner, file, shares: BTreeSet::from([share]) });
        Ok(self.next)
    }

    pub fn downgrade(&mut self, nr: u64, to: (u8, u8)) -> Result<(), Error> {
        let open = self.opens.iter_mut().find(|open| open.nr == nr).expect("it is there");
        let within = |share: &&(u8, u8)| share.0 & !to.0 == 0 && share.1 & !to.1 == 0;
        let left = Open { shares: open.shares.iter().filter(within).copied().collect(), ..open.clone() };
        if left.union() != to {
            return Err(Error::Inval);
        }
        *open = left;
        Ok(())
    }

    pub fn close(&mut self, nr: u64) {
        self.opens.retain(|open| open.nr != nr);
        self.locks.retain(|lock| lock.open != nr);
        self.waiters.retain(|waiter| waiter.wanted.open.nr != nr);
    }

    /// A READ or WRITE by no open.
    pub fn stateless(&mut self, file: u32, access: u8) -> Result<(), Error> {
        if self.in_grace() {
            return Err(Error::Grace);
        }
        let against = self.opens_against(file, access, 0);
        if !self.give_way(&against) {
            return Err(Error::Locked);
        }
        self.touch(None, file, if access & 2 != 0 { Touched::Write } else { Touched::Read })
    }

    pub fn grant(&mut self, file: u32, access: u8) -> Result<(), Error> {
        if self.in_grace() {
            return Err(Error::Grace);
        }
        let against = self.opens_against(file, access, 0);
        if !self.give_way(&against) {
            return Err(Error::ShareDenied);
        }
        self.touch(None, file, Touched::Open(access, 0))?;
        self.grants.push((file, access));
        Ok(())
    }
}
