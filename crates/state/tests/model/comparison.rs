//! The engine and the reference model side by side: every step is applied to both, and both must return the
//! same.

use std::collections::{BTreeMap, BTreeSet};

use fairness::Peer;
use state::{
    AccessKind, ByteRange, ClientId, ClientRecord, DelegationRequest, Direction, Engine, EngineConfig,
    EngineLimits, Error, LockDenied, LockKind, LockOwner, LockRequest, Locker, OpenRequest,
    PendingDelegation, RecallTimeout, Requester, SequenceResult, SessionId, Share, StateId, Time,
};

use crate::common::{COURTESY, DISTRUST, LEASE, LIMITS, Machine, OTHER, creation, named, request, root};
use crate::model::reference::{
    self, BYTES, CLIENTS, ConflictingAccess, Delegation, Instance, Lock, LockArgs, Open, Reference, Waiter,
};
use crate::model::steps::{Ask, Step};

pub const NAMES: [&str; CLIENTS] = ["one", "two"];

/// A client's view of its state.
#[derive(Debug, Default)]
pub struct Client {
    pub session: Option<(ClientId, SessionId)>,
    /// Requests in this session.
    requests: u32,
    /// The state that it believes to have.
    pub has: (Vec<Open>, Vec<Lock>, Vec<Delegation>),
    /// The state that it had when the server restarted, to be reclaimed; opens have their old numbers.
    had: (Vec<Open>, Vec<Lock>, Vec<Delegation>),
    /// The state among that which conflicts with state given to another client since.
    conflicting: BTreeSet<u64>,
    /// The new numbers of reclaimed opens.
    again: BTreeMap<u64, u64>,
}

impl Client {
    /// Drops everything to be reclaimed.
    fn forget(&mut self) {
        (self.had, self.again, self.conflicting) = Default::default();
    }
}

/// The engine, the reference model, and the mapping between them.
pub struct Comparison {
    pub engine: Machine,
    pub model: Reference,
    boot: u32,
    pub clients: [Client; CLIENTS],
    /// The engine's stateids of the model's states.
    pub ids: BTreeMap<u64, StateId>,
    /// The client records on stable storage.
    pub records: BTreeMap<Vec<u8>, ClientRecord>,
    /// A client has tried to reclaim state that it never had: no client can rely on its reclaims any more.
    false_reclaim: bool,
}

fn engine(boot: u32, records: &BTreeMap<Vec<u8>, ClientRecord>) -> Machine {
    let mut next = 0;
    let random = Box::new(move || {
        next += 1;
        next
    });
    let limits = EngineLimits {
        clients: 8,
        states: 1000,
        delegations: 100,
        client_delegations: 50,
        ranges: 100,
        waiting: 1000,
        ..LIMITS
    };
    let config = EngineConfig { boot, lease: LEASE, courtesy: COURTESY, distrust: DISTRUST, limits };
    Engine::new(config, random, records.values().cloned(), Time(LEASE))
}

/// The record of a client on stable storage.
pub fn record((index, verifier): Instance) -> Vec<u8> {
    state::instance(NAMES[index].as_bytes(), [verifier; 8])
}

/// Another user of a client, without state.
const fn other_user(client: ClientId) -> Requester {
    Requester { client, principal: OTHER }
}

fn range((first, last): (usize, usize)) -> ByteRange {
    ByteRange { first: first as u64, last: last as u64 }
}

impl Comparison {
    pub fn new() -> Self {
        let records = BTreeMap::new();
        let (engine, model) = (engine(1, &records), Reference::default());
        let (clients, ids) = Default::default();
        Self { engine, model, boot: 1, clients, ids, records, false_reclaim: false }
    }

    pub fn now(&self) -> Time {
        Time(self.model.now())
    }

    /// SEQUENCE, before every operation of a client; the client's id if its session is alive.
    fn sequence(&mut self, index: usize) -> Option<ClientId> {
        let now = self.now();
        let client = &mut self.clients[index];
        let (id, session) = client.session?;
        client.requests += 1;
        let done = self.engine.sequence(now, &request(session, 0, client.requests));
        assert_eq!(done.is_ok(), self.model.known[index].alive, "client {index}: {done:?}");
        match done {
            Ok(SequenceResult::New(ticket)) => {
                assert_eq!(ticket.revoked, !self.model.revoked[index].is_empty());
                assert_eq!(ticket.reclaim_needed, self.model.may_reclaim(index));
                self.engine.finish(&ticket, None);
                self.model.renew(index);
                Some(id)
            }
            Ok(again) => panic!("{again:?}"),
            Err(error) => {
                assert_eq!(error, Error::BadSession);
                (client.session, client.has) = Default::default();
                None
            }
        }
    }

    /// EXCHANGE_ID and CREATE_SESSION, if it has no session or has just restarted.
    pub fn arrive(&mut self, index: usize, reboot: bool) {
        let now = self.now();
        let client = &mut self.clients[index];
        if reboot {
            client.forget();
        } else if client.session.is_some() {
            return;
        }
        let verifier = self.model.verifiers()[index] + u8::from(reboot);
        let exchanged = self.engine.exchange_id(now, &named(NAMES[index], verifier)).expect("there is room");
        let request = creation(exchanged.client, exchanged.sequence);
        let created = self.engine.create_session(now, &request).expect("there is room");
        client.session = Some((exchanged.client, created.session));
        client.requests = 0;
        self.model.arrive(index, reboot);
    }

    pub fn take(&mut self, step: Step) {
        match step {
            Step::Wait(milliseconds) => {
                self.model.advance(milliseconds);
                self.engine.tick(self.now());
            }
            Step::Renew(index) => drop(self.sequence(index)),
            Step::Reboot(index) => self.arrive(index, true),
            Step::Open(index, owner, file, share) => {
                self.arrive_now_and_then(index);
                let _ = self.open(index, owner, file, share, false);
            }
            Step::Downgrade(which, to) => {
                let Some(open) = pick(&self.model.opens, which) else { return };
                let Some(client) = self.sequence(open.client) else { return };
                let id = StateId { seqid: 0, ..self.ids[&open.nr] };
                let share = Share { access: to.0, deny: to.1 };
                let refused = self.engine.downgrade(&other_user(client), &id, &open.file, share);
                assert_eq!(refused, Err(Error::WrongCred));
                let done = self.engine.downgrade(&root(client), &id, &open.file, share);
                assert_eq!(done.map(drop), self.model.downgrade(open.nr, to));
                self.ids.extend(done.map(|id| (open.nr, id)));
            }
            Step::Close(which) => {
                let Some(open) = pick(&self.model.opens, which) else { return };
                let Some(client) = self.sequence(open.client) else { return };
                let refused = self.engine.close(&other_user(client), &self.ids[&open.nr], &open.file);
                assert_eq!(refused, Err(Error::WrongCred));
                let done = self.engine.close(&root(client), &self.ids[&open.nr], &open.file);
                assert_eq!(done, Ok(()));
                self.model.close(open.nr);
            }
            Step::Lock(which, owner, bytes, write, ask) => {
                let Some(args) = self.args(which, owner, bytes, write) else { return };
                self.lock(&args, false, ask);
            }
            Step::Test(which, owner, bytes, write) => {
                let Some(args) = self.args(which, owner, bytes, write) else { return };
                self.test(&args);
            }
            Step::Unblock(which) => {
                let waits = self.engine.blocked_waiters(usize::MAX);
                let Some(first) = pick(&waits, which) else { return };
                self.engine.unblock(&first);
                let (index, owner) = self.owner(&first.who);
                let outside =
                    |waiter: &&Waiter| waiter.outside && waiter.args.is_own(index, owner, first.key);
                let bytes = (first.range.first as usize, first.range.last as usize);
                let is_it = |args: &&LockArgs| args.bytes == bytes && args.kind == first.kind;
                let mut waiting = self.model.waiters.iter().filter(outside).map(|waiter| &waiter.args);
                let args = waiting.find(is_it).expect("it waits").clone();
                self.model.unblock(&args);
            }
            Step::Unlock(which, bytes) => {
                let Some(lock) = pick(&self.model.locks, which) else { return };
                let Some(client) = self.sequence(lock.client) else { return };
                let id = &self.ids[&lock.nr];
                let refused = self.engine.unlock_begin(&other_user(client), id, &lock.file, range(bytes));
                assert_eq!(refused.map(drop), Err(Error::WrongCred));
                let begun = self
                    .engine
                    .unlock_begin(&root(client), &self.ids[&lock.nr], &lock.file, range(bytes))
                    .expect("it exists");
                let id = self.engine.unlock_done(&begun, range(bytes)).expect("it exists");
                self.model.unlock(lock.nr, bytes.0, bytes.1);
                self.ids.insert(lock.nr, id);
            }
            Step::Read(which) => self.io(which, Direction::Read),
            Step::Write(which) => self.io(which, Direction::Write),
            Step::Stateless(file, write) => {
                let direction = if write { Direction::Write } else { Direction::Read };
                let now = self.now();
                let done = self.engine.check_io(now, None, &StateId::ANONYMOUS, &file, direction);
                assert_eq!(done, self.model.stateless(file, if write { 2 } else { 1 }));
            }
            Step::Grant(file, access) => {
                let done = self.engine.grant(self.now(), &file, access);
                assert_eq!(done, self.model.grant(file, access));
            }
            Step::Release(which) => {
                let Some(granted) = pick(&self.model.grants, which) else { return };
                self.engine.release_grant(&granted.0, granted.1);
                let at = self.model.grants.iter().rposition(|other| *other == granted);
                self.model.grants.remove(at.expect("it is there"));
            }
            Step::Delegate(which, writes, interrupted) => self.delegate(which, writes, interrupted),
            Step::Return(which) => {
                let Some(given) = pick(&self.model.delegations, which) else { return };
                self.remove_delegation(given.client, given.nr, given.file);
            }
            Step::Free(index) => {
                let Some((nr, file)) = self.model.revoked[index].last().copied() else { return };
                self.remove_delegation(index, nr, file);
            }
            Step::Change(file, by) => {
                let client = by.and_then(|index| self.sequence(index));
                let by = by.filter(|_| client.is_some());
                let done = self.engine.check_conflicts(self.now(), client, &file, AccessKind::Change);
                assert_eq!(done, self.model.check_conflicts(by, file, ConflictingAccess::Change));
            }
            Step::Local(file, writes, timeout) => self.local(file, writes, timeout),
            Step::Reclaim(index) => self.reclaim(index),
            Step::FalseReclaim(index, owner, file, share, bytes) => {
                self.false_reclaim = true;
                self.arrive(index, false);
                let Ok(nr) = self.open(index, owner, file, share, true) else { return };
                let open = self.model.opens.iter().find(|open| open.nr == nr).expect("it is there").clone();
                self.lock(&LockArgs { open, owner, bytes, kind: LockKind::Write }, true, Ask::Once);
            }
            Step::Complete(index) => {
                self.arrive(index, false);
                let Some(client) = self.sequence(index) else { return };
                assert_eq!(self.engine.reclaim_complete(&other_user(client)), Err(Error::WrongCred));
                assert_eq!(self.engine.reclaim_complete(&root(client)), self.model.complete(index));
                self.clients[index].forget();
            }
            Step::Restart => self.restart(),
        }
    }

    /// A client without state to reclaim notices the loss of its session with its next operation.
    fn arrive_now_and_then(&mut self, index: usize) {
        if self.clients[index].had.0.is_empty() {
            self.arrive(index, false);
        }
    }

    fn open(
        &mut self,
        index: usize,
        owner: u8,
        file: u32,
        share: (u8, u8),
        reclaim: bool,
    ) -> Result<u64, Error> {
        let Some(client) = self.sequence(index) else { return Err(Error::BadSession) };
        let request = OpenRequest {
            by: &root(client),
            owner: &[owner],
            key: &file,
            share: Share { access: share.0, deny: share.1 },
            reclaim,
            under_delegation: false,
        };
        let done = self.engine.open(self.now(), &request);
        let expected = self.model.open(index, owner, file, share, reclaim);
        assert_eq!(done.map(drop), expected.map(drop));
        assert!(
            self.false_reclaim || expected != Err(Error::ReclaimConflict),
            "no client has been given what another may reclaim"
        );
        self.ids.extend(expected.ok().zip(done.ok()));
        if expected.is_ok() {
            let against = |theirs: (u8, u8)| theirs.0 & share.1 != 0 || theirs.1 & share.0 != 0;
            self.note_conflicts(index, |open| open.file == file && against(open.union()), |_| false);
        }
        expected
    }

    fn args(&self, which: usize, owner: u8, bytes: (usize, usize), write: bool) -> Option<LockArgs> {
        let kind = if write { LockKind::Write } else { LockKind::Read };
        Some(LockArgs { open: pick(&self.model.opens, which)?, owner, bytes, kind })
    }

    /// The client and the number of a lock owner.
    pub fn owner(&self, owner: &LockOwner) -> (usize, u8) {
        let is_it = |client: &Client| client.session.is_some_and(|(client, _)| client == owner.client);
        (self.clients.iter().position(is_it).expect("it exists"), owner.owner[0])
    }

    /// Asserts that both denied a lock because of the same one.
    fn same(&self, denied: &LockDenied, (index, owner, (first, last, kind)): reference::LockDenied) {
        assert_eq!(self.owner(&denied.owner), (index, owner));
        assert_eq!((denied.range, denied.kind), (range((first, last)), kind));
    }

    /// LOCK; the lock's number.
    fn lock(&mut self, args: &LockArgs, reclaim: bool, ask: Ask) -> Option<u64> {
        let client = self.sequence(args.open.client)?;
        let owner = [args.owner];
        let locker = Locker::New { open: self.ids[&args.open.nr], owner: &owner };
        let (key, range, kind) = (&args.open.file, range(args.bytes), args.kind);
        let waits = ask != Ask::Once;
        let request = LockRequest { by: &root(client), key, locker, range, kind, reclaim, waits };
        let other_user = LockRequest { by: &other_user(client), ..request };
        assert_eq!(self.engine.lock_begin(self.now(), &other_user).map(drop), Err(Error::WrongCred));
        let done = self.engine.lock_begin(self.now(), &request);
        let expected = self.model.may_lock(args, reclaim, waits);
        assert!(
            self.false_reclaim || expected != Err(Error::ReclaimConflict),
            "no client has been given what another may reclaim"
        );
        match (done, expected) {
            (Ok(Ok(begun)), Ok(Ok(()))) if ask == Ask::BlockedWaiter => {
                self.engine.lock_blocked_locally(self.now(), &begun, &request);
                self.model.enqueue(args, true);
            }
            (Ok(Ok(begun)), Ok(Ok(()))) => {
                assert_eq!(begun.write_delegation.is_some(), self.model.writes(args.open.client, *key));
                let id = self.engine.lock_done(&begun, range, kind).expect("it exists");
                let nr = self.model.lock(args);
                self.ids.insert(nr, id);
                self.note_conflicts(
                    args.open.client,
                    |_| false,
                    |lock| lock.file == args.open.file && !lock.against(args.bytes, kind).is_empty(),
                );
                return Some(nr);
            }
            (Ok(Err(denied)), Ok(Err(expected))) => self.same(&denied, expected),
            (done, expected) => {
                assert_eq!(done.map(|done| done.is_ok()), expected.map(|expected| expected.is_ok()))
            }
        }
        None
    }

    /// LOCKT.
    fn test(&mut self, args: &LockArgs) {
        let Some(client) = self.sequence(args.open.client) else { return };
        let owner = LockOwner { client, owner: vec![args.owner] };
        let (file, range) = (args.open.file, range(args.bytes));
        let tested = self.engine.lock_test(self.now(), &owner, &file, range, args.kind);
        match (tested, self.model.test(args)) {
            (Ok(Err(denied)), Ok(Some(expected))) => self.same(&denied, expected),
            (Ok(Ok(tested)), Ok(None)) => {
                assert_eq!(tested.write_delegation.is_some(), self.model.writes(args.open.client, file));
            }
            (tested, expected) => {
                assert_eq!(tested.map(|tested| tested.is_ok()), expected.map(|expected| expected.is_none()))
            }
        }
    }

    /// A client has been given state: what others still believe to have against it, they have lost.
    fn note_conflicts(&mut self, by: usize, opens: impl Fn(&Open) -> bool, locks: impl Fn(&Lock) -> bool) {
        let known = self.model.known;
        for (index, client) in self.clients.iter_mut().enumerate().filter(|(index, _)| *index != by) {
            let has = (!known[index].alive).then_some(&client.has);
            for (of, all, _) in [&client.had].into_iter().chain(has) {
                client.conflicting.extend(of.iter().filter(|open| opens(open)).map(|open| open.nr));
                client.conflicting.extend(all.iter().filter(|lock| locks(lock)).map(|lock| lock.nr));
            }
        }
    }

    /// A delegation for the client of an open.
    fn delegate(&mut self, which: usize, writes: bool, interrupted: bool) {
        let may = |open: &Open| !self.model.in_grace() && self.model.known[open.client].complete;
        let Some(open) = pick(&self.model.opens, which).filter(may) else { return };
        let Some(client) = self.sequence(open.client) else { return };
        let Some((begun, nr)) = self.delegate_begin(client, open.client, open.file, writes, false) else {
            return;
        };
        if interrupted {
            self.local(open.file, true, LEASE);
            assert_eq!(self.engine.delegate_done(&begun), None);
            // The client has never received it.
            self.model.recalled.retain(|recalled| *recalled != nr);
            self.model.remove_delegation(nr);
        } else {
            let id = self.engine.delegate_done(&begun).expect("there was no conflict in between");
            self.ids.insert(nr, id);
        }
    }

    fn delegate_begin(
        &mut self,
        client: ClientId,
        index: usize,
        file: u32,
        writes: bool,
        reclaim: bool,
    ) -> Option<(PendingDelegation<()>, u64)> {
        let may_write = writes || self.model.next().is_multiple_of(2);
        let peer = Peer::Local(index as u32);
        let by = root(client);
        let request = DelegationRequest { by: &by, peer, key: &file, writes, may_write, reclaim };
        let begun = self.engine.delegate_begin(self.now(), &request);
        let expected = self.model.delegate(index, file, (writes, may_write), reclaim);
        assert_eq!(begun.as_ref().map(drop).map_err(|why| *why), expected.map(drop));
        begun.ok().zip(expected.ok())
    }

    /// Reclaims a delegation of a file that the client has open again; sometimes a local process has it open
    /// by now.
    fn reclaim_delegation(&mut self, index: usize, had: &Delegation) {
        let Some(client) = self.sequence(index).filter(|_| self.model.may_reclaim(index)) else { return };
        let Some((begun, nr)) = self.delegate_begin(client, index, had.file, had.writes, true) else {
            return;
        };
        let id = if nr.is_multiple_of(2) {
            self.engine.delegate_done(&begun)
        } else {
            self.model.recall(nr, self.model.now() + LEASE);
            self.engine.delegate_and_recall(self.now(), &begun)
        };
        self.ids.insert(nr, id.expect("there was no conflict in between"));
    }

    fn remove_delegation(&mut self, index: usize, nr: u64, file: u32) {
        let Some(client) = self.sequence(index) else { return };
        let refused = self.engine.delegreturn(self.now(), &other_user(client), &self.ids[&nr], &file);
        let is_revoked = self.model.revoked[index].iter().any(|(revoked, _)| *revoked == nr);
        // Acknowledging a revocation affects no other user.
        assert!(refused == Err(Error::WrongCred) || is_revoked && refused == Ok(()), "{refused:?}");
        assert!(
            is_revoked || self.engine.delegreturn(self.now(), &root(client), &self.ids[&nr], &file) == Ok(())
        );
        if is_revoked {
            self.model.remove_delegation(nr);
        } else {
            self.model.delegreturn(nr);
        }
    }

    /// A local process breaks kernel leases.
    fn local(&mut self, file: u32, writes: bool, timeout: u64) {
        let timeout = RecallTimeout { writers: timeout, readers: timeout / 2 };
        self.engine.recall_for_local_open(self.now(), &file, writes, timeout);
        let access = if writes { ConflictingAccess::Write } else { ConflictingAccess::Read };
        self.model.clear(None, file, access, timeout);
    }

    /// READ or WRITE by an open or by a lock.
    fn io(&mut self, which: usize, direction: Direction) {
        let by_lock = pick(&self.model.locks, which / 2).filter(|_| which.is_multiple_of(2));
        let (nr, open) = match by_lock {
            Some(lock) => (lock.nr, lock.open),
            None => match pick(&self.model.opens, which) {
                Some(open) => (open.nr, open.nr),
                None => return,
            },
        };
        let open = self.model.opens.iter().find(|other| other.nr == open).expect("its open exists").clone();
        let Some(client) = self.sequence(open.client) else { return };
        let done = self.engine.check_io(self.now(), Some(client), &self.ids[&nr], &open.file, direction);
        let may = direction == Direction::Read || open.union().0 & 2 != 0;
        assert_eq!(done, if may { Ok(()) } else { Err(Error::Openmode) });
    }

    /// Reclaims the client's next state from before the restart.
    fn reclaim(&mut self, index: usize) {
        self.arrive(index, false);
        let client = &mut self.clients[index];
        if let Some(open) = client.had.0.pop() {
            let conflicting = client.conflicting.contains(&open.nr);
            let reclaimed = self.open(index, open.owner, open.file, open.union(), true);
            assert!(
                self.false_reclaim || !conflicting || reclaimed.is_err(),
                "another client has been given a conflicting share to {open:?}"
            );
            if let Ok(nr) = reclaimed {
                self.clients[index].again.insert(open.nr, nr);
            }
        } else if let Some(lock) = client.had.1.pop() {
            let open = client.again.get(&lock.open);
            let open = open.and_then(|nr| self.model.opens.iter().find(|open| open.nr == *nr));
            let Some(open) = open.cloned() else { return };
            let conflicting = client.conflicting.contains(&lock.nr);
            for at in 0..BYTES {
                if let Some(kind) = lock.bytes[at] {
                    let args = LockArgs { open: open.clone(), owner: lock.owner, bytes: (at, at), kind };
                    let reclaimed = self.lock(&args, true, Ask::Once);
                    assert!(
                        self.false_reclaim || !conflicting || reclaimed.is_none(),
                        "another client has been given some of {lock:?}"
                    );
                }
            }
        } else if let Some(given) = client.had.2.pop() {
            self.reclaim_delegation(index, &given);
        }
    }

    fn restart(&mut self) {
        self.boot += 1;
        for client in &mut self.clients {
            client.session = None;
            // It still believes to have what it hasn't reclaimed since the last restart, because it didn't
            // notice that restart, or hasn't got to it yet.
            let (opens, locks, delegated) = std::mem::take(&mut client.has);
            for lock in &mut client.had.1 {
                lock.open = client.again.get(&lock.open).copied().unwrap_or(lock.open);
            }
            client.had.0.extend(opens);
            client.had.1.extend(locks);
            client.had.2.extend(delegated);
            client.again.clear();
        }
        let verifiers = self.model.verifiers();
        let ever =
            (0..CLIENTS).flat_map(|index| (0..=verifiers[index]).map(move |verifier| (index, verifier)));
        let recorded = ever.filter(|instance| self.records.contains_key(&record(*instance))).collect();
        self.engine = engine(self.boot, &self.records);
        self.model = Reference::after(recorded, verifiers, self.model.next());
        self.ids.clear();
    }
}

/// The element with this number, counted from the newest.
fn pick<T: Clone>(from: &[T], which: usize) -> Option<T> {
    from.iter().rev().nth(which.checked_rem(from.len())?).cloned()
}
