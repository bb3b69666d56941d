//! What applications do with files, and what they rely on.

use std::collections::BTreeMap;
use std::time::Duration;

use client_state::{ByteRange, DelegationKind, LockAnswer, LockKind, Share, StateId};

use super::requests::Task;
use super::{App, Host};
use crate::mutations::Mutation;
use crate::server::{LEASE, Server};
use crate::world::{BYTES, OWNERS};

impl Host {
    /// Whether what the client has is the server's for certain.
    pub fn is_lease_valid(&self, server: &Server) -> bool {
        match self.mutation {
            Some(Mutation::BelieveExpired) => {
                self.last_sequence.is_some_and(|at| self.manager.is_lease_valid(at))
            }
            Some(Mutation::BelieveUnclaimed) => {
                let lease = Duration::from_millis(LEASE);
                self.last_sequence.is_some_and(|at| self.now(server) < at + lease)
            }
            _ => self.manager.is_lease_valid(self.now(server)),
        }
    }

    /// Whether a process has a lock of a byte that conflicts with another's, and may rely on that.
    pub fn relies_on_lock(&self, server: &Server, file: u32, byte: u64, kind: LockKind) -> bool {
        let conflicting = if kind == LockKind::Write { LockKind::Read } else { LockKind::Write };
        let byte = ByteRange { first: byte, last: byte };
        let holds = |owner| self.locks.holds(&file, &owner, byte, conflicting);
        !self.is_recalled(server, file) && self.is_lease_valid(server) && (0..OWNERS).any(holds)
    }

    /// The file is open and the client may rely on that.
    pub fn relies_on(&self, server: &Server, app: &App) -> bool {
        !self.is_recalled(server, *app.open.file())
            && self.is_lease_valid(server)
            && self.opens.io_id(&app.open).is_ok()
    }

    /// The ids of the locks that applications have at the server. Those in delegated files are the client's.
    pub fn held_locks(&self) -> impl Iterator<Item = StateId> {
        let holds = move |file: &u32, owner: &u8| {
            let mut bytes = (0..BYTES).map(|byte| ByteRange { first: byte, last: byte });
            bytes.any(|byte| self.locks.holds(file, owner, byte, LockKind::Read))
        };
        let is_held = move |file: &u32, owner: &u8| !self.delegations.contains(file) && holds(file, owner);
        let locks = self.locks.state_ids().filter(move |(file, owner, _)| is_held(file, owner));
        locks.map(|(_, _, id)| id)
    }

    /// The ids of everything that the client believes to have.
    pub fn state_ids(&self) -> Vec<StateId> {
        let opens = self.opens.state_ids().map(|(_, _, id)| id);
        let locks = self.locks.state_ids().map(|(_, _, id)| id);
        opens.chain(locks).chain(self.delegations.state_ids().map(|(_, id)| id)).collect()
    }

    /// The client has a delegation that was recalled, which may take too long: it is revoked then.
    pub fn is_recalled(&self, server: &Server, file: u32) -> bool {
        server.recalled.contains(&file) && self.delegations.state_ids().any(|(on, _)| *on == file)
    }

    pub fn open(&mut self, server: &Server, owner: u8, file: u32, share: Share) {
        if self.is_lease_valid(server)
            && let Some(open) = self.delegations.open(&mut self.opens, &file, owner, share)
        {
            let number = self.number();
            self.apps.insert(number, App { open, share, io: 0 });
            return;
        }
        let opening = self.opens.opening(owner);
        self.push(Task::Open(opening, file, share));
    }

    /// A CB_RECALL arrives. If its delegation isn't known yet it comes again.
    pub fn recall(&mut self, server: &mut Server, which: usize) {
        if let Some(at) = which.checked_rem(server.recalls.len()) {
            let (file, id) = server.recalls[at];
            if self.mistakes(Mutation::IgnoreRecall) {
                server.recalls.swap_remove(at);
                return;
            }
            let is_opening = self.has(|task| matches!(task, Task::Open(..)));
            if self.delegations.recall(&mut self.opens, &file, id) || !is_opening {
                server.recalls.swap_remove(at);
            }
        }
    }

    /// A CB_RECALL_ANY of these kinds arrives.
    pub fn recall_any(&mut self, kinds: &[DelegationKind]) {
        self.delegations.recall_any(&mut self.opens, 0, kinds);
    }

    /// An application closes a file, if none of its I/O is outstanding. That ends its process' locks.
    pub fn close(&mut self, which: usize) {
        let Some((number, app)) = pick(&self.apps, which).filter(|(_, app)| app.io == 0) else { return };
        let _ = app;
        let app = self.apps.remove(&number).expect("it was picked");
        self.locks.release(app.open.file(), app.open.owner());
        self.push(Task::Close(app.open));
    }

    pub fn io(&mut self, which: usize) {
        let Some((number, _)) = pick(&self.apps, which) else { return };
        self.apps.get_mut(&number).expect("it was picked").io += 1;
        let none = StateId { seqid: 0, other: [0; 12] };
        self.push(Task::Io(number, none));
    }

    pub fn lock(&mut self, which: usize, range: ByteRange) {
        let Some((number, app)) = pick(&self.apps, which) else { return };
        let kind = if app.share.access & 2 != 0 { LockKind::Write } else { LockKind::Read };
        if let LockAnswer::Ask(change) = self.locks.lock(*app.open.file(), *app.open.owner(), range, kind) {
            self.push(Task::Lock(change, Some(number), false));
            self.apps.get_mut(&number).expect("it was picked").io += 1;
        }
    }

    pub fn unlock(&mut self, which: usize, range: ByteRange) {
        let Some((_, app)) = pick(&self.apps, which) else { return };
        self.locks.unlock(app.open.file(), app.open.owner(), range);
    }

    /// Signals interrupt all applications that wait for locks.
    pub fn interrupt(&mut self) {
        let queue = self.queue.iter_mut().map(|(_, task)| task);
        for task in queue.chain(self.sent.iter_mut().map(|sent| &mut sent.task)) {
            if let Task::Lock(_, Some(_), is_given_up) = task {
                *is_given_up = true;
            }
        }
    }

    /// Nothing waits for the reply of an I/O request any more.
    pub fn abandon(&mut self, which: usize) {
        let io: Vec<_> =
            (0..self.sent.len()).filter(|at| matches!(self.sent[*at].task, Task::Io(..))).collect();
        let is_reused = self.mistakes(Mutation::ReuseAbandonedSlot);
        let Some((_, _, slots)) = self.session.as_mut().filter(|_| !io.is_empty()) else { return };
        let sent = self.sent.swap_remove(io[which % io.len()]);
        if is_reused {
            slots.not_executed(sent.taken)
        } else {
            slots.abandon(sent.taken)
        }
        let Task::Io(number, _) = sent.task else { return };
        self.end_io(Some(number));
    }

    /// A request of an application is done.
    pub(super) fn end_io(&mut self, number: Option<u64>) {
        if let Some(number) = number {
            self.apps.get_mut(&number).expect("it waits").io -= 1;
        }
    }
}

fn pick(apps: &BTreeMap<u64, App>, which: usize) -> Option<(u64, &App)> {
    let (number, app) = apps.iter().nth(which.checked_rem(apps.len())?)?;
    Some((*number, app))
}
