//! Delegations, and their conflicts with other accesses.

use state::{NoDelegation, RecallTimeout};

use super::{DISTRUST, Error, LEASE, Reference};

/// A delegation.
#[derive(Debug, Clone)]
pub struct Delegation {
    /// Its number in the model.
    pub nr: u64,
    pub client: usize,
    pub file: u32,
    pub writes: bool,
    /// Whether its user could write to the file.
    may_write: bool,
    /// The time of its recall, and of its revocation.
    recalled: Option<(u64, u64)>,
}

/// Until when no delegation is granted, and the length of that period.
pub type NotDelegated = (u64, u64);

/// The next period after another failure, twice as long as the previous one.
fn next_period(before: Option<NotDelegated>, now: u64, min: u64) -> NotDelegated {
    let known = before.filter(|(until, span)| now < until + span);
    let span = known.map_or(0, |(until, span)| if now < until { span } else { 2 * span });
    let span = span.max(min).min(DISTRUST);
    (known.map_or(0, |(until, _)| until).max(now + span), span)
}

/// An access that may conflict with a delegation.
#[derive(Debug, Clone, Copy)]
pub enum ConflictingAccess {
    /// An open: its access and deny bits.
    Open(u8, u8),
    Read,
    Write,
    Change,
}

impl ConflictingAccess {
    /// Whether it conflicts with another client's delegation.
    const fn breaks(self, writes: bool) -> bool {
        match self {
            Self::Open(access, deny) => writes || access & 2 != 0 || deny & 1 != 0,
            Self::Read => writes,
            Self::Write | Self::Change => true,
        }
    }
}

impl Reference {
    /// Recalls delegations that conflict, except those of `by` itself; whether there were none. They are to
    /// be returned within the timeout.
    pub fn clear(
        &mut self,
        by: Option<usize>,
        file: u32,
        access: ConflictingAccess,
        timeout: RecallTimeout,
    ) -> bool {
        let against = |given: &&Delegation| {
            given.file == file && Some(given.client) != by && access.breaks(given.writes)
        };
        let against: Vec<u64> = self.delegations.iter().filter(against).map(|given| given.nr).collect();
        let mut clear = true;
        for nr in against {
            let Some(given) = self.delegations.iter().find(|given| given.nr == nr).cloned() else { continue };
            if self.is_expired(given.client) {
                if given.recalled.is_some() {
                    self.note_late_return(nr);
                }
                self.end(given.client);
            } else if given.recalled.is_some_and(|(_, revoke_at)| self.now >= revoke_at) {
                self.revoke(nr);
            } else {
                clear = false;
                let timeout = if given.may_write { timeout.writers } else { timeout.readers };
                self.recall(nr, self.now + timeout.min(LEASE));
            }
        }
        clear
    }

    /// Recalls a delegation, once, to be returned by `deadline`.
    pub fn recall(&mut self, nr: u64, deadline: u64) {
        let given = self.delegations.iter_mut().find(|given| given.nr == nr).expect("it is there");
        let contended = next_period(self.contended.get(&given.file).copied(), self.now, LEASE);
        self.contended.insert(given.file, contended);
        if given.recalled.is_none() {
            self.recalled.push(nr);
        }
        let (at, revoke_at) = given.recalled.unwrap_or((self.now, deadline));
        given.recalled = Some((at, revoke_at.min(deadline)));
    }

    /// A delegation wasn't returned in time.
    fn note_late_return(&mut self, nr: u64) {
        let given = self.delegations.iter().find(|given| given.nr == nr).expect("it is there").clone();
        let contended = next_period(self.contended.get(&given.file).copied(), self.now, DISTRUST);
        self.contended.insert(given.file, contended);
        self.distrust(given.client, DISTRUST);
    }

    /// The client gets no delegations for a while, and those that it has are recalled.
    fn distrust(&mut self, client: usize, min: u64) {
        let before = self.distrusted[client];
        self.distrusted[client] = Some(next_period(before, self.now, min));
        if before.is_none_or(|(until, _)| self.now >= until) {
            let has: Vec<u64> = self
                .delegations
                .iter()
                .filter(|given| given.client == client)
                .map(|given| given.nr)
                .collect();
            has.into_iter().for_each(|nr| self.recall(nr, self.now + LEASE));
        }
    }

    /// As [`Reference::clear`], for an operation that is to be retried after the return.
    pub fn check_conflicts(
        &mut self,
        by: Option<usize>,
        file: u32,
        access: ConflictingAccess,
    ) -> Result<(), Error> {
        if self.clear(by, file, access, RecallTimeout { writers: LEASE, readers: LEASE }) {
            Ok(())
        } else {
            Err(Error::Delay)
        }
    }

    /// Revokes delegations that should have been returned by now.
    pub fn revoke_overdue(&mut self) {
        let due = |given: &Delegation| given.recalled.is_some_and(|(_, revoke_at)| self.now >= revoke_at);
        let overdue: Vec<u64> =
            self.delegations.iter().filter(|given| due(given)).map(|given| given.nr).collect();
        overdue.into_iter().for_each(|nr| self.revoke(nr));
    }

    fn revoke(&mut self, nr: u64) {
        self.note_late_return(nr);
        let at = self.delegations.iter().position(|given| given.nr == nr).expect("it is there");
        let given = self.delegations.remove(at);
        self.revoked[given.client].push((nr, given.file));
    }

    /// A delegation for a client that has the file open, or had it, to `reclaim` it.
    pub fn delegate(
        &mut self,
        client: usize,
        file: u32,
        (writes, may_write): (bool, bool),
        reclaim: bool,
    ) -> Result<u64, NoDelegation> {
        let is_off =
            |entry: Option<&NotDelegated>| !reclaim && entry.is_some_and(|(until, _)| self.now < *until);
        if is_off(self.contended.get(&file)) {
            return Err(NoDelegation::Contention);
        }
        if is_off(self.distrusted[client].as_ref()) {
            return Err(NoDelegation::Distrusted);
        }
        let delegated = || self.delegations.iter().filter(|given| given.file == file);
        if delegated().any(|given| given.client == client) {
            return Err(NoDelegation::Held);
        }
        if delegated().any(|given| writes || given.writes) {
            return Err(NoDelegation::Contention);
        }
        let access = |own: bool| {
            let of = self.opens.iter().filter(|open| open.file == file && (open.client == client) == own);
            of.fold(0, |all, open| all | open.union().0)
        };
        let granted =
            self.grants.iter().filter(|(on, _)| *on == file).fold(0, |all, (_, access)| all | access);
        let (own, others) = (access(true), access(false) | granted);
        if others & 2 != 0 || writes && others != 0 || !writes && own & 2 != 0 {
            return Err(NoDelegation::Contention);
        }
        self.next += 1;
        self.delegations.push(Delegation { nr: self.next, client, file, writes, may_write, recalled: None });
        Ok(self.next)
    }

    /// Whether a client has a write delegation of a file.
    pub fn writes(&self, client: usize, file: u32) -> bool {
        self.delegations.iter().any(|given| given.client == client && given.file == file && given.writes)
    }

    /// DELEGRETURN of a delegation that isn't revoked.
    pub fn delegreturn(&mut self, nr: u64) {
        let given = self.delegations.iter().find(|given| given.nr == nr).cloned();
        self.remove_delegation(nr);
        if let Some(Delegation { client, recalled: Some((at, revoke_at)), .. }) = given
            && self.now - at > revoke_at - self.now
        {
            self.distrust(client, LEASE);
        }
    }

    /// Removes a delegation, or a revoked one.
    pub fn remove_delegation(&mut self, nr: u64) {
        self.delegations.retain(|given| given.nr != nr);
        self.revoked.iter_mut().for_each(|of| of.retain(|(other, _)| *other != nr));
    }
}
