//! Locks, byte by byte.

use std::cmp::Reverse;

use state::LockKind;

use super::{BYTES, ConflictingAccess, Error, Open, Reference};

/// First byte, last byte, type.
pub type Run = (usize, usize, LockKind);

/// The locks of one owner of one client on one file.
#[derive(Debug, Clone)]
pub struct Lock {
    /// Its number in the model.
    pub nr: u64,
    pub client: usize,
    pub owner: u8,
    pub file: u32,
    /// The open under which it was acquired.
    pub open: u64,
    pub bytes: [Option<LockKind>; BYTES],
}

impl Lock {
    /// The ranges of bytes with the same type.
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

    /// The ranges that conflict with a lock of these bytes.
    pub fn against(&self, (first, last): (usize, usize), kind: LockKind) -> Vec<Run> {
        let mut runs = self.runs();
        runs.retain(|run| {
            run.0 <= last && first <= run.1 && (run.2 == LockKind::Write || kind == LockKind::Write)
        });
        runs
    }
}

/// The client, owner and range of the conflicting lock, or of the waiter whose turn it is.
pub type LockDenied = (usize, u8, Run);

/// The arguments of a lock request, under one of the owner's opens.
#[derive(Debug, Clone)]
pub struct LockArgs {
    pub open: Open,
    pub owner: u8,
    pub bytes: (usize, usize),
    pub kind: LockKind,
}

impl LockArgs {
    /// Whether it is a request of this owner on this file.
    pub fn is_own(&self, client: usize, owner: u8, file: u32) -> bool {
        (self.open.client, self.owner, self.open.file) == (client, owner, file)
    }
}

impl Reference {
    /// The conflicting lock. Conflicting clients whose lease has expired lose their state, one after the
    /// other: first writers, then readers, of these the lock that reaches farthest, then the oldest.
    fn locked_against(&mut self, args: &LockArgs) -> Option<LockDenied> {
        let in_the_way = |lock: &&Lock| {
            let runs = lock.against(args.bytes, args.kind);
            let farthest = runs.into_iter().map(|run| (run.2, run.1)).max();
            farthest.map(|farthest| (farthest, Reverse(lock.nr)))
        };
        loop {
            let is_others = |lock: &&Lock| {
                lock.file == args.open.file && !args.is_own(lock.client, lock.owner, lock.file)
            };
            let others = self.locks.iter().filter(is_others);
            let lock = others.max_by_key(in_the_way).filter(|lock| in_the_way(lock).is_some())?;
            let denied = (lock.client, lock.owner, lock.against(args.bytes, args.kind)[0]);
            if !self.expire_all(&[denied.0]) {
                return Some(denied);
            }
        }
    }

    /// LOCK, as far as it depends on clients only; the inner error is the conflict.
    pub fn may_lock(
        &mut self,
        args: &LockArgs,
        reclaim: bool,
        waits: bool,
    ) -> Result<Result<(), LockDenied>, Error> {
        if args.open.union().0 & if args.kind == LockKind::Write { 2 } else { 1 } == 0 {
            return Err(Error::Openmode);
        }
        self.check_grace(args.open.client, reclaim)?;
        let denied = match self.locked_against(args) {
            Some(_) if reclaim => return Err(Error::ReclaimConflict),
            None if !reclaim => self.waiter_before(args),
            other => other,
        };
        if denied.is_some() && waits {
            self.enqueue(args, false);
        }
        Ok(denied.map_or(Ok(()), Err))
    }

    /// Locks the bytes.
    pub fn lock(&mut self, args: &LockArgs) -> u64 {
        let LockArgs { open, owner, bytes: (first, last), kind } = args;
        self.leave(open.client, *owner, open.file, (*first, *last));
        let own = self.locks.iter_mut().find(|lock| args.is_own(lock.client, lock.owner, lock.file));
        if let Some(lock) = own {
            lock.bytes[*first..=*last].fill(Some(*kind));
            return lock.nr;
        }
        self.next += 1;
        let mut bytes = [None; BYTES];
        bytes[*first..=*last].fill(Some(*kind));
        let Open { nr, client, file, .. } = *open;
        self.locks.push(Lock { nr: self.next, client, owner: *owner, file, open: nr, bytes });
        self.next
    }

    /// LOCKT.
    pub fn test(&mut self, args: &LockArgs) -> Result<Option<LockDenied>, Error> {
        self.check_grace(args.open.client, false)?;
        let denied = self.locked_against(args);
        if denied.is_none() {
            let access =
                if args.kind == LockKind::Write { ConflictingAccess::Write } else { ConflictingAccess::Read };
            self.check_conflicts(Some(args.open.client), args.open.file, access)?;
        }
        Ok(denied)
    }

    pub fn unlock(&mut self, nr: u64, first: usize, last: usize) {
        let lock = self.locks.iter_mut().find(|lock| lock.nr == nr).expect("it is there");
        lock.bytes[first..=last].fill(None);
        let (client, owner, file) = (lock.client, lock.owner, lock.file);
        self.leave(client, owner, file, (first, last));
    }
}
