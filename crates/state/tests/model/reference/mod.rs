//! A reference model of an NFSv4 server's state, as plain as possible: lists that are searched, locks byte by
//! byte, no limits. Two clients (by number), which renew their lease with every operation.

mod delegations;
mod locks;
mod queue;

use std::collections::{BTreeMap, BTreeSet};

use delegations::NotDelegated;
pub use delegations::{ConflictingAccess, Delegation};
pub use locks::{Lock, LockArgs, LockDenied};
pub use queue::Waiter;
use state::Error;

use crate::common::{COURTESY, DISTRUST, LEASE};

/// Bytes of a file that can be locked.
pub const BYTES: usize = 8;
/// Files.
pub const FILES: usize = 2;
/// Clients.
pub const CLIENTS: usize = 2;

/// A client's number and verifier: a new one after each start.
pub type Instance = (usize, u8);

/// The server's record of a client.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known {
    /// Whether it has a session.
    pub alive: bool,
    renewed: u64,
    /// Whether it has sent RECLAIM_COMPLETE.
    pub complete: bool,
}

/// The opens of one owner of one client on one file.
#[derive(Debug, Clone)]
pub struct Open {
    /// Its number in the model.
    pub nr: u64,
    pub client: usize,
    pub owner: u8,
    pub file: u32,
    /// Access and deny bits of each OPEN.
    shares: BTreeSet<(u8, u8)>,
}

/// The whole state.
#[derive(Debug, Clone, Default)]
pub struct Reference {
    now: u64,
    /// The end of the grace period, and the clients that may still reclaim.
    grace_ends: u64,
    waiting: BTreeSet<Instance>,
    /// Each client's verifier, which changes at its restart.
    verifiers: [u8; CLIENTS],
    pub known: [Known; CLIENTS],
    /// In the order of their creation.
    pub opens: Vec<Open>,
    pub locks: Vec<Lock>,
    /// In the order of their requests.
    pub waiters: Vec<Waiter>,
    /// Owners and files that were notified of their turn since the last check.
    pub notified: Vec<(usize, u8, u32)>,
    pub delegations: Vec<Delegation>,
    /// Revoked delegations and their files, until their clients acknowledge it.
    pub revoked: [Vec<(u64, u32)>; CLIENTS],
    /// Delegations recalled since the last check.
    pub recalled: Vec<u64>,
    /// Files on which delegations have caused conflicts.
    contended: BTreeMap<u32, NotDelegated>,
    /// Clients that returned a delegation late.
    distrusted: [Option<NotDelegated>; CLIENTS],
    /// Access bits of each grant.
    pub grants: Vec<(u32, u8)>,
    next: u64,
    /// Clients whose state may have been given to others: they mustn't reclaim it.
    pub lost: BTreeSet<usize>,
}

impl Open {
    /// The union of its access and deny bits.
    pub fn union(&self) -> (u8, u8) {
        self.shares.iter().fold((0, 0), |all, share| (all.0 | share.0, all.1 | share.1))
    }
}

impl Reference {
    /// After a restart with these clients recorded.
    pub fn after(recorded: BTreeSet<Instance>, verifiers: [u8; CLIENTS], next: u64) -> Self {
        Self { grace_ends: LEASE, waiting: recorded, verifiers, next, ..Self::default() }
    }

    /// A client's present instance.
    pub const fn instance(&self, client: usize) -> Instance {
        (client, self.verifiers[client])
    }

    pub const fn verifiers(&self) -> [u8; CLIENTS] {
        self.verifiers
    }

    pub fn now(&self) -> u64 {
        self.now
    }

    /// A number that hasn't been used in earlier runs either.
    pub fn next(&self) -> u64 {
        self.next
    }

    pub fn advance(&mut self, milliseconds: u64) {
        self.now += milliseconds;
        for client in 0..CLIENTS {
            let busy = self.has_state(client);
            let timeout = if busy { LEASE + COURTESY } else { LEASE };
            if self.known[client].alive && self.now > self.known[client].renewed + timeout {
                self.end(client);
            }
        }
        self.revoke_overdue();
        self.end_grace();
    }

    pub fn has_state(&self, client: usize) -> bool {
        self.opens.iter().any(|open| open.client == client)
            || self.locks.iter().any(|lock| lock.client == client)
            || self.delegations.iter().any(|given| given.client == client)
    }

    pub fn in_grace(&self) -> bool {
        self.now < self.grace_ends && !self.waiting.is_empty()
    }

    pub fn may_reclaim(&self, client: usize) -> bool {
        !self.known[client].complete && self.in_grace() && self.waiting.contains(&self.instance(client))
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

    /// Removes a client with its state.
    fn end(&mut self, client: usize) {
        self.known[client] = Known::default();
        self.drop_all(client);
        self.waiting.remove(&self.instance(client));
        self.lost.insert(client);
    }

    fn drop_all(&mut self, client: usize) {
        self.opens.retain(|open| open.client != client);
        self.locks.retain(|lock| lock.client != client);
        self.waiters.retain(|waiter| waiter.args.open.client != client);
        self.delegations.retain(|given| given.client != client);
        self.revoked[client].clear();
    }

    /// Reclaim activity, which extends the grace period.
    fn extend_grace(&mut self, client: usize) {
        if self.now < self.grace_ends && self.waiting.contains(&self.instance(client)) {
            self.grace_ends = self.grace_ends.max((self.now + LEASE / 8).min(2 * LEASE));
        }
    }

    /// A new session, of a new instance if there was none or with `reboot`.
    pub fn arrive(&mut self, client: usize, reboot: bool) {
        if reboot {
            self.verifiers[client] += 1;
            // It misses nothing that it had before its restart.
            self.lost.remove(&client);
        }
        if reboot || !self.known[client].alive {
            // Its former instances have nothing to reclaim.
            let instance = self.instance(client);
            self.waiting.retain(|other| other.0 != client || *other == instance);
            self.extend_grace(client);
            self.drop_all(client);
            self.known[client] = Known { alive: true, renewed: self.now, complete: false };
        }
        self.renew(client);
    }

    pub fn renew(&mut self, client: usize) {
        self.known[client].renewed = self.now;
    }

    pub fn complete(&mut self, client: usize) -> Result<(), Error> {
        if std::mem::replace(&mut self.known[client].complete, true) {
            return Err(Error::CompleteAlready);
        }
        self.waiting.remove(&self.instance(client));
        // The client knows what it has lost.
        self.lost.remove(&client);
        Ok(())
    }

    /// Whether a client may get state now.
    fn check_grace(&mut self, client: usize, reclaim: bool) -> Result<(), Error> {
        self.end_grace();
        let complete = self.known[client].complete;
        match reclaim {
            true if self.may_reclaim(client) => {
                self.extend_grace(client);
                Ok(())
            }
            true => Err(Error::NoGrace),
            false if self.in_grace() || !complete => Err(Error::Grace),
            false => Ok(()),
        }
    }

    /// Removes all of these clients if the leases of all have expired.
    fn expire_all(&mut self, against: &[usize]) -> bool {
        let all = against.iter().all(|client| self.is_expired(*client));
        if all {
            against.iter().for_each(|client| self.end(*client));
        }
        all
    }

    fn is_expired(&self, client: usize) -> bool {
        !self.known[client].alive || self.now > self.known[client].renewed + LEASE
    }

    fn opens_against(&self, file: u32, access: u8, deny: u8) -> Vec<usize> {
        let against = self.opens.iter().filter(|open| {
            let (theirs, denied) = open.union();
            open.file == file && (access & denied != 0 || deny & theirs != 0)
        });
        against.map(|open| open.client).collect()
    }

    pub fn open(
        &mut self,
        client: usize,
        owner: u8,
        file: u32,
        share: (u8, u8),
        reclaim: bool,
    ) -> Result<u64, Error> {
        self.check_grace(client, reclaim)?;
        let conflict = if reclaim { Error::ReclaimConflict } else { Error::ShareDenied };
        let granted = self.grants.iter().any(|(on, access)| *on == file && access & share.1 != 0);
        let against = self.opens_against(file, share.0, share.1);
        if granted || !self.expire_all(&against) {
            return Err(conflict);
        }
        self.check_conflicts(Some(client), file, ConflictingAccess::Open(share.0, share.1))?;
        let own = self
            .opens
            .iter_mut()
            .find(|open| open.client == client && open.owner == owner && open.file == file);
        if let Some(open) = own {
            open.shares.insert(share);
            return Ok(open.nr);
        }
        self.next += 1;
        self.opens.push(Open { nr: self.next, client, owner, file, shares: BTreeSet::from([share]) });
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
        self.waiters.retain(|waiter| waiter.args.open.nr != nr);
    }

    /// READ or WRITE with a special stateid.
    pub fn stateless(&mut self, file: u32, access: u8) -> Result<(), Error> {
        if self.in_grace() {
            return Err(Error::Grace);
        }
        let against = self.opens_against(file, access, 0);
        if !self.expire_all(&against) {
            return Err(Error::Locked);
        }
        self.check_conflicts(
            None,
            file,
            if access & 2 != 0 { ConflictingAccess::Write } else { ConflictingAccess::Read },
        )
    }

    pub fn grant(&mut self, file: u32, access: u8) -> Result<(), Error> {
        if self.in_grace() {
            return Err(Error::Grace);
        }
        let against = self.opens_against(file, access, 0);
        if !self.expire_all(&against) {
            return Err(Error::ShareDenied);
        }
        self.check_conflicts(None, file, ConflictingAccess::Open(access, 0))?;
        self.grants.push((file, access));
        Ok(())
    }
}
