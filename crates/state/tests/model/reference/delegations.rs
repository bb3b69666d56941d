//! Delegations, and what is in their way.

use state::NoDelegation;

use super::{Error, LEASE, Reference};

/// A delegation.
#[derive(Debug, Clone)]
pub struct Delegation {
    /// Its name here.
    pub nr: u64,
    pub who: usize,
    pub file: u32,
    pub writes: bool,
    /// When it is taken away, once it is recalled.
    revoke_at: Option<u64>,
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
    /// Whether nobody's delegation but `by`'s own is in the way; those that are are recalled, to be returned by `deadline`.
    pub fn clear(&mut self, by: Option<usize>, file: u32, touched: Touched, deadline: u64) -> bool {
        let against =
            |given: &&Delegation| given.file == file && Some(given.who) != by && touched.breaks(given.writes);
        let against: Vec<u64> = self.delegations.iter().filter(against).map(|given| given.nr).collect();
        let mut clear = true;
        for nr in against {
            let Some(given) = self.delegations.iter().find(|given| given.nr == nr).cloned() else { continue };
            if self.is_expired(given.who) {
                self.end(given.who);
            } else if given.revoke_at.is_some_and(|at| self.now >= at) {
                self.revoke(nr);
            } else {
                clear = false;
                self.recall(nr, deadline);
            }
        }
        clear
    }

    /// Asks for a delegation back, once, by `deadline`.
    pub fn recall(&mut self, nr: u64, deadline: u64) {
        let given = self.delegations.iter_mut().find(|given| given.nr == nr).expect("it is there");
        self.contended.insert(given.file, self.now);
        if given.revoke_at.is_none() {
            self.recalled.push(nr);
        }
        given.revoke_at = Some(given.revoke_at.map_or(deadline, |at| at.min(deadline)));
    }

    /// As [`Reference::clear`], for an operation that has to be tried again then.
    pub fn touch(&mut self, by: Option<usize>, file: u32, touched: Touched) -> Result<(), Error> {
        if self.clear(by, file, touched, self.now + LEASE) { Ok(()) } else { Err(Error::Delay) }
    }

    /// Takes away what should have been returned by now.
    pub fn revoke_overdue(&mut self) {
        let due = |given: &Delegation| given.revoke_at.is_some_and(|at| self.now >= at);
        let overdue: Vec<u64> =
            self.delegations.iter().filter(|given| due(given)).map(|given| given.nr).collect();
        overdue.into_iter().for_each(|nr| self.revoke(nr));
    }

    fn revoke(&mut self, nr: u64) {
        let at = self.delegations.iter().position(|given| given.nr == nr).expect("it is there");
        let given = self.delegations.remove(at);
        self.revoked[given.who].push((nr, given.file));
        self.prune();
    }

    /// A delegation for who has the file open, or, to `reclaim` it, had.
    pub fn delegate(
        &mut self,
        who: usize,
        file: u32,
        writes: bool,
        reclaim: bool,
    ) -> Result<u64, NoDelegation> {
        if !reclaim && self.contended.get(&file).is_some_and(|at| self.now < at + LEASE) {
            return Err(NoDelegation::Contention);
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
        self.delegations.push(Delegation { nr: self.next, who, file, writes, revoke_at: None });
        Ok(self.next)
    }

    /// Whether a client has a delegation for writing a file.
    pub fn writes(&self, who: usize, file: u32) -> bool {
        self.delegations.iter().any(|given| given.who == who && given.file == file && given.writes)
    }

    /// DELEGRETURN, also of one that was taken away.
    pub fn give_back(&mut self, nr: u64) {
        self.delegations.retain(|given| given.nr != nr);
        self.revoked.iter_mut().for_each(|of| of.retain(|(other, _)| *other != nr));
        self.prune();
    }
}
