//! What an NFSv4 server remembers, as plainly as it can be said: lists that are searched, locks byte by byte, no bounds.
//! Two clients (by number), which renew their lease with whatever they do.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use state::{Error, LockKind, NoDelegation};

use crate::common::{COURTESY, LEASE};

/// Bytes of a file that locks are about.
pub const BYTES: usize = 8;
/// Files.
pub const FILES: usize = 2;
/// Clients.
pub const CLIENTS: usize = 2;

/// What the server knows of a client.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known {
    /// It has a session.
    pub alive: bool,
    renewed: u64,
    /// It has reclaimed everything.
    complete: bool,
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

/// First byte, last byte, how they are locked.
pub type Run = (usize, usize, LockKind);

/// The locks of one owner of one client on one file.
#[derive(Debug, Clone)]
pub struct Lock {
    /// Its name here.
    pub nr: u64,
    pub who: usize,
    pub owner: u8,
    pub file: u32,
    /// The open that it was made by.
    pub open: u64,
    pub bytes: [Option<LockKind>; BYTES],
}

impl Lock {
    /// Runs of bytes that are locked alike: first, last, how.
    fn runs(&self) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for (at, kind) in self.bytes.iter().enumerate() {
            match (runs.last_mut(), kind) {
                (Some(run), Some(kind)) if run.1 + 1 == at && run.2 == *kind => run.1 = at,
                (_, Some(kind)) => runs.push((at, at, *kind)),
                (_, None) => {}
            }
        }
        runs
    }

    /// Those that others may not have if these are.
    fn against(&self, (first, last): (usize, usize), kind: LockKind) -> Vec<Run> {
        let mut runs = self.runs();
        runs.retain(|run| {
            run.0 <= last && first <= run.1 && (run.2 == LockKind::Write || kind == LockKind::Write)
        });
        runs
    }
}

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

/// Everything.
#[derive(Debug, Clone, Default)]
pub struct Reference {
    now: u64,
    /// Until when and for whom others wait after a restart.
    grace_ends: u64,
    waiting: BTreeSet<usize>,
    pub known: [Known; CLIENTS],
    /// In the order in which they were made.
    pub opens: Vec<Open>,
    pub locks: Vec<Lock>,
    pub delegations: Vec<Delegation>,
    /// Delegations that were taken away, and their files, until their clients say that they know.
    pub revoked: [Vec<(u64, u32)>; CLIENTS],
    /// Delegations that were recalled since the last look.
    pub recalled: Vec<u64>,
    /// When a delegation was last in somebody's way; as long as the file is in use.
    contended: BTreeMap<u32, u64>,
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
    pub fn after(recorded: BTreeSet<usize>, next: u64) -> Self {
        Self { grace_ends: LEASE, waiting: recorded, next, ..Self::default() }
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
        let due = |given: &Delegation| given.revoke_at.is_some_and(|at| self.now >= at);
        let overdue: Vec<u64> =
            self.delegations.iter().filter(|given| due(given)).map(|given| given.nr).collect();
        overdue.into_iter().for_each(|nr| self.revoke(nr));
        self.end_grace();
    }

    pub fn has_state(&self, who: usize) -> bool {
        self.opens.iter().any(|open| open.who == who)
            || self.locks.iter().any(|lock| lock.who == who)
            || self.delegations.iter().any(|given| given.who == who)
    }

    /// Nobody remembers anything of a file that isn't in use.
    pub fn prune(&mut self) {
        let Self { opens, locks, delegations, grants, contended, .. } = self;
        contended.retain(|file, _| {
            opens.iter().any(|open| open.file == *file)
                || locks.iter().any(|lock| lock.file == *file)
                || delegations.iter().any(|given| given.file == *file)
                || grants.iter().any(|(on, _)| on == file)
        });
    }

    pub fn in_grace(&self) -> bool {
        self.now < self.grace_ends && !self.waiting.is_empty()
    }

    fn end_grace(&mut self) {
        if self.now >= self.grace_ends {
            let mut late = std::mem::take(&mut self.waiting);
            late.retain(|who| !self.has_state(*who));
            self.lost.append(&mut late);
        }
    }

    /// A client is done for.
    fn end(&mut self, who: usize) {
        self.known[who] = Known::default();
        self.drop_all(who);
        self.waiting.remove(&who);
        self.lost.insert(who);
    }

    fn drop_all(&mut self, who: usize) {
        self.opens.retain(|open| open.who != who);
        self.locks.retain(|lock| lock.who != who);
        self.delegations.retain(|given| given.who != who);
        self.revoked[who].clear();
        self.prune();
    }

    /// Somebody who may reclaim has come back, or has reclaimed something.
    fn is_at_it(&mut self, who: usize) {
        if self.now < self.grace_ends && self.waiting.contains(&who) {
            self.grace_ends = self.grace_ends.max((self.now + LEASE / 8).min(2 * LEASE));
        }
    }

    /// A new session, of a new instance if there was none or with `reboot`.
    pub fn arrive(&mut self, who: usize, reboot: bool) {
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
        self.waiting.remove(&who);
        // It knows what it has lost.
        self.lost.remove(&who);
        Ok(())
    }

    /// Whether a client may have state now.
    fn check_grace(&mut self, who: usize, reclaim: bool) -> Result<(), Error> {
        self.end_grace();
        let complete = self.known[who].complete;
        match reclaim {
            true if !complete && self.in_grace() && self.waiting.contains(&who) => {
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
                self.contended.insert(file, self.now);
                if given.revoke_at.is_none() {
                    self.recalled.push(nr);
                }
                let given = self.delegations.iter_mut().find(|given| given.nr == nr).expect("it is there");
                given.revoke_at = Some(given.revoke_at.map_or(deadline, |at| at.min(deadline)));
            }
        }
        clear
    }

    /// As [`Reference::clear`], for an operation that has to be tried again then.
    pub fn touch(&mut self, by: Option<usize>, file: u32, touched: Touched) -> Result<(), Error> {
        if self.clear(by, file, touched, self.now + LEASE) { Ok(()) } else { Err(Error::Delay) }
    }

    fn revoke(&mut self, nr: u64) {
        let at = self.delegations.iter().position(|given| given.nr == nr).expect("it is there");
        let given = self.delegations.remove(at);
        self.revoked[given.who].push((nr, given.file));
        self.prune();
    }

    /// A delegation for who has the file open.
    pub fn delegate(&mut self, who: usize, file: u32, writes: bool) -> Result<u64, NoDelegation> {
        if self.contended.get(&file).is_some_and(|at| self.now < at + LEASE) {
            return Err(NoDelegation::Contention);
        }
        for given in self.delegations.iter().filter(|given| given.file == file) {
            if given.who == who {
                return Err(NoDelegation::Held);
            }
            if writes || given.writes {
                return Err(NoDelegation::Contention);
            }
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

    /// DELEGRETURN, also of one that was taken away.
    pub fn give_back(&mut self, nr: u64) {
        self.delegations.retain(|given| given.nr != nr);
        self.revoked.iter_mut().for_each(|of| of.retain(|(other, _)| *other != nr));
        self.prune();
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
        self.prune();
    }

    /// A lock of bytes; the inner error: who has some of them, and which.
    pub fn lock(
        &mut self,
        open: u64,
        owner: u8,
        bytes: (usize, usize),
        kind: LockKind,
        reclaim: bool,
    ) -> Result<Result<u64, (usize, u8, Run)>, Error> {
        let open = self.opens.iter().find(|other| other.nr == open).expect("it is there").clone();
        if open.union().0 & if kind == LockKind::Write { 2 } else { 1 } == 0 {
            return Err(Error::Openmode);
        }
        self.check_grace(open.who, reclaim)?;
        let own = |lock: &Lock| lock.who == open.who && lock.owner == owner && lock.file == open.file;
        // One after the other: of writers, and else of readers, who reaches farthest; of those the oldest.
        let in_the_way = |lock: &&Lock| {
            let farthest = lock.against(bytes, kind).into_iter().map(|run| (run.2, run.1)).max();
            farthest.map(|farthest| (farthest, Reverse(lock.nr)))
        };
        loop {
            let others = self.locks.iter().filter(|lock| lock.file == open.file && !own(lock));
            let denying = others.max_by_key(in_the_way).filter(|lock| in_the_way(lock).is_some());
            let Some((denying, denied)) =
                denying.map(|lock| (lock.who, (lock.who, lock.owner, lock.against(bytes, kind)[0])))
            else {
                break;
            };
            if !self.give_way(&[denying]) {
                return if reclaim { Err(Error::ReclaimConflict) } else { Ok(Err(denied)) };
            }
        }
        let (first, last) = bytes;
        if let Some(lock) = self.locks.iter_mut().find(|lock| own(lock)) {
            lock.bytes[first..=last].fill(Some(kind));
            return Ok(Ok(lock.nr));
        }
        self.next += 1;
        let mut locked = [None; BYTES];
        locked[first..=last].fill(Some(kind));
        let (nr, who, file, open) = (self.next, open.who, open.file, open.nr);
        self.locks.push(Lock { nr, who, owner, file, open, bytes: locked });
        Ok(Ok(self.next))
    }

    pub fn unlock(&mut self, nr: u64, first: usize, last: usize) {
        let lock = self.locks.iter_mut().find(|lock| lock.nr == nr).expect("it is there");
        lock.bytes[first..=last].fill(None);
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
