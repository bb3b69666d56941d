//! Delegations, and what is in their way.

use state::{NoDelegation, RecallTimeout};

use super::{DISTRUST, Error, LEASE, Reference};

/// A delegation.
#[derive(Debug, Clone)]
pub struct Delegation {
    /// Its name here.
    pub nr: u64,
    pub who: usize,
    pub file: u32,
    pub writes: bool,
    /// Whether its user could write to the file.
    may_write: bool,
    /// Since when it is recalled, and when it is taken away.
    recalled: Option<(u64, u64)>,
}

/// Until when something isn't lent, and for how long that was made.
pub type NotLent = (u64, u64);

/// The same after it was to be lent, and that went wrong once more.
fn once_more(before: Option<NotLent>, now: u64, least: u64) -> NotLent {
    let known = before.filter(|(until, span)| now < until + span);
    let span = known.map_or(0, |(until, span)| if now < until { span } else { 2 * span });
    let span = span.max(least).min(DISTRUST);
    (known.map_or(0, |(until, _)| until).max(now + span), span)
}

/// What a delegation may be in the way of.
#[derive(Debug, Clone, Copy)]
pub enum Touched {
    /// An open: its access and deny bits.
    Open(u8, u8),
    Read,
    Write,
    Change,
}

impl Touched {
    /// Whether others' delegations have to go.
    const fn breaks(self, writes: bool) -> bool {
        match self {
            Self::Open(access, deny) => writes || access & 2 != 0 || deny & 1 != 0,
            Self::Read => writes,
            Self::Write | Self::Change => true,
        }
    }
}

impl Reference {
    /// Whether nobody's delegation but `by`'s own is in the way; those that are are recalled, to be returned
    /// in time.
    pub fn clear(&mut self, by: Option<usize>, file: u32, touched: Touched, patience: RecallTimeout) -> bool {
        let against =
            |given: &&Delegation| given.file == file && Some(given.who) != by && touched.breaks(given.writes);
        let against: Vec<u64> = self.delegations.iter().filter(against).map(|given| given.nr).collect();
        let mut clear = true;
        for nr in against {
            let Some(given) = self.delegations.iter().find(|given| given.nr == nr).cloned() else { continue };
            if self.is_expired(given.who) {
                if given.recalled.is_some() {
                    self.is_lost(nr);
                }
                self.end(given.who);
            } else if given.recalled.is_some_and(|(_, revoke_at)| self.now >= revoke_at) {
                self.revoke(nr);
            } else {
                clear = false;
                let patience = if given.may_write { patience.writers } else { patience.readers };
                self.recall(nr, self.now + patience.min(LEASE));
            }
        }
        clear
    }

    /// Asks for a delegation back, once, by `deadline`.
    pub fn recall(&mut self, nr: u64, deadline: u64) {
        let given = self.delegations.iter_mut().find(|given| given.nr == nr).expect("it is there");
        let contended = once_more(self.contended.get(&given.file).copied(), self.now, LEASE);
        self.contended.insert(given.file, contended);
        if given.recalled.is_none() {
            self.recalled.push(nr);
        }
        let (at, revoke_at) = given.recalled.unwrap_or((self.now, deadline));
        given.recalled = Some((at, revoke_at.min(deadline)));
    }

    /// One wasn't returned when it was asked for.
    fn is_lost(&mut self, nr: u64) {
        let given = self.delegations.iter().find(|given| given.nr == nr).expect("it is there").clone();
        let contended = once_more(self.contended.get(&given.file).copied(), self.now, DISTRUST);
        self.contended.insert(given.file, contended);
        self.distrust(given.who, DISTRUST);
    }

    /// A client gets none for a while, and is asked for those that it has.
    fn distrust(&mut self, who: usize, least: u64) {
        let before = self.distrusted[who];
        self.distrusted[who] = Some(once_more(before, self.now, least));
        if before.is_none_or(|(until, _)| self.now >= until) {
            let has: Vec<u64> =
                self.delegations.iter().filter(|given| given.who == who).map(|given| given.nr).collect();
            has.into_iter().for_each(|nr| self.recall(nr, self.now + LEASE));
        }
    }

    /// As [`Reference::clear`], for an operation that has to be tried again then.
    pub fn touch(&mut self, by: Option<usize>, file: u32, touched: Touched) -> Result<(), Error> {
        if self.clear(by, file, touched, RecallTimeout { writers: LEASE, readers: LEASE }) {
            Ok(())
        } else {
            Err(Error::Delay)
        }
    }

    /// Takes away what should have been returned by now.
    pub fn revoke_overdue(&mut self) {
        let due = |given: &Delegation| given.recalled.is_some_and(|(_, revoke_at)| self.now >= revoke_at);
        let overdue: Vec<u64> =
            self.delegations.iter().filter(|given| due(given)).map(|given| given.nr).collect();
        overdue.into_iter().for_each(|nr| self.revoke(nr));
    }

    fn revoke(&mut self, nr: u64) {
        self.is_lost(nr);
        let at = self.delegations.iter().position(|given| given.nr == nr).expect("it is there");
        let given = self.delegations.remove(at);
        self.revoked[given.who].push((nr, given.file));
    }

    /// A delegation for who has the file open, or, to `reclaim` it, had.
    pub fn delegate(
        &mut self,
        who: usize,
        file: u32,
        (writes, may_write): (bool, bool),
        reclaim: bool,
    ) -> Result<u64, NoDelegation> {
        let is_off = |entry: Option<&NotLent>| !reclaim && entry.is_some_and(|(until, _)| self.now < *until);
        if is_off(self.contended.get(&file)) {
            return Err(NoDelegation::Contention);
        }
        if is_off(self.distrusted[who].as_ref()) {
            return Err(NoDelegation::Distrusted);
        }
        let lent = || self.delegations.iter().filter(|given| given.file == file);
        if lent().any(|given| given.who == who) {
            return Err(NoDelegation::Held);
        }
        if lent().any(|given| writes || given.writes) {
            return Err(NoDelegation::Contention);
        }
        let access = |own: bool| {
            let of = self.opens.iter().filter(|open| open.file == file && (open.who == who) == own);
            of.fold(0, |all, open| all | open.union().0)
        };
        let granted =
            self.grants.iter().filter(|(on, _)| *on == file).fold(0, |all, (_, access)| all | access);
        let (own, others) = (access(true), access(false) | granted);
        if others & 2 != 0 || writes && others != 0 || !writes && own & 2 != 0 {
            return Err(NoDelegation::Contention);
        }
        self.next += 1;
        self.delegations.push(Delegation { nr: self.next, who, file, writes, may_write, recalled: None });
        Ok(self.next)
    }

    /// Whether a client has a delegation for writing a file.
    pub fn writes(&self, who: usize, file: u32) -> bool {
        self.delegations.iter().any(|given| given.who == who && given.file == file && given.writes)
    }

    /// DELEGRETURN of one that the client has.
    pub fn delegreturn(&mut self, nr: u64) {
        let given = self.delegations.iter().find(|given| given.nr == nr).cloned();
        self.give_back(nr);
        if let Some(Delegation { who, recalled: Some((at, revoke_at)), .. }) = given
            && self.now - at > revoke_at - self.now
        {
            self.distrust(who, LEASE);
        }
    }

    /// It is gone, also one that was taken away.
    pub fn give_back(&mut self, nr: u64) {
        self.delegations.retain(|given| given.nr != nr);
        self.revoked.iter_mut().for_each(|of| of.retain(|(other, _)| *other != nr));
    }
}
