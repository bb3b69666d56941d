//! Locks, byte by byte.

use std::cmp::Reverse;

use state::LockKind;

use super::{BYTES, Error, Open, Reference, Touched};

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
    pub fn against(&self, (first, last): (usize, usize), kind: LockKind) -> Vec<Run> {
        let mut runs = self.runs();
        runs.retain(|run| {
            run.0 <= last && first <= run.1 && (run.2 == LockKind::Write || kind == LockKind::Write)
        });
        runs
    }
}

/// Whose lock is in the way, or whose turn it is, and which bytes.
pub type LockDenied = (usize, u8, Run);

/// What an owner wants, by one of its opens.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub open: Open,
    pub owner: u8,
    pub bytes: (usize, usize),
    pub kind: LockKind,
}

impl Wanted {
    /// Whether these are the same owner's.
    pub fn is_own(&self, who: usize, owner: u8, file: u32) -> bool {
        (self.open.who, self.owner, self.open.file) == (who, owner, file)
    }
}

impl Reference {
    /// What is in the way of a lock. One after the other those go who are out of their lease: of writers, and
    /// else of readers, who reaches farthest; of those the oldest.
    fn locked_against(&mut self, wanted: &Wanted) -> Option<LockDenied> {
        let in_the_way = |lock: &&Lock| {
            let runs = lock.against(wanted.bytes, wanted.kind);
            let farthest = runs.into_iter().map(|run| (run.2, run.1)).max();
            farthest.map(|farthest| (farthest, Reverse(lock.nr)))
        };
        loop {
            let is_others = |lock: &&Lock| {
                lock.file == wanted.open.file && !wanted.is_own(lock.who, lock.owner, lock.file)
            };
            let others = self.locks.iter().filter(is_others);
            let lock = others.max_by_key(in_the_way).filter(|lock| in_the_way(lock).is_some())?;
            let denied = (lock.who, lock.owner, lock.against(wanted.bytes, wanted.kind)[0]);
            if !self.give_way(&[denied.0]) {
                return Some(denied);
            }
        }
    }

    /// LOCK, as far as it depends on clients only; the inner error: what is in the way.
    pub fn may_lock(
        &mut self,
        wanted: &Wanted,
        reclaim: bool,
        waits: bool,
    ) -> Result<Result<(), LockDenied>, Error> {
        if wanted.open.union().0 & if wanted.kind == LockKind::Write { 2 } else { 1 } == 0 {
            return Err(Error::Openmode);
        }
        self.check_grace(wanted.open.who, reclaim)?;
        let denied = match self.locked_against(wanted) {
            Some(_) if reclaim => return Err(Error::ReclaimConflict),
            None if !reclaim => self.whose_turn(wanted),
            other => other,
        };
        if denied.is_some() && waits {
            self.enqueue(wanted, false);
        }
        Ok(denied.map_or(Ok(()), Err))
    }

    /// It is locked.
    pub fn lock(&mut self, wanted: &Wanted) -> u64 {
        let Wanted { open, owner, bytes: (first, last), kind } = wanted;
        self.leave(open.who, *owner, open.file, (*first, *last));
        let own = self.locks.iter_mut().find(|lock| wanted.is_own(lock.who, lock.owner, lock.file));
        if let Some(lock) = own {
            lock.bytes[*first..=*last].fill(Some(*kind));
            return lock.nr;
        }
        self.next += 1;
        let mut bytes = [None; BYTES];
        bytes[*first..=*last].fill(Some(*kind));
        let Open { nr, who, file, .. } = *open;
        self.locks.push(Lock { nr: self.next, who, owner: *owner, file, open: nr, bytes });
        self.next
    }

    /// LOCKT.
    pub fn test(&mut self, wanted: &Wanted) -> Result<Option<LockDenied>, Error> {
        self.check_grace(wanted.open.who, false)?;
        let denied = self.locked_against(wanted);
        if denied.is_none() {
            let touched = if wanted.kind == LockKind::Write { Touched::Write } else { Touched::Read };
            self.touch(Some(wanted.open.who), wanted.open.file, touched)?;
        }
        Ok(denied)
    }

    pub fn unlock(&mut self, nr: u64, first: usize, last: usize) {
        let lock = self.locks.iter_mut().find(|lock| lock.nr == nr).expect("it is there");
        lock.bytes[first..=last].fill(None);
        let (who, owner, file) = (lock.who, lock.owner, lock.file);
        self.leave(who, owner, file, (first, last));
    }
}
