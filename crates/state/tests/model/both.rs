//! The engine and the model, side by side: what happens to one happens to the other, and both must answer the
//! same.

use std::collections::{BTreeMap, BTreeSet};

use fairness::Peer;
use state::{
    AccessKind, ByteRange, ClientId, DelegationRequest, Direction, Engine, EngineConfig, EngineLimits, Error,
    LockDenied, LockKind, LockOwner, LockRequest, Locker, OpenRequest, PendingDelegation, RecallTimeout,
    Requester, SequenceResult, SessionId, Share, StateId, Time,
};

use crate::common::{COURTESY, DISTRUST, LEASE, LIMITS, Machine, OTHER, creation, named, request, root};
use crate::model::reference::{
    self, BYTES, CLIENTS, Delegation, Instance, Lock, Open, Reference, Touched, Waiter, Wanted,
};
use crate::model::steps::{Ask, Step};

pub const NAMES: [&str; CLIENTS] = ["one", "two"];

/// What a client knows of itself.
#[derive(Debug, Default)]
pub struct Client {
    pub session: Option<(ClientId, SessionId)>,
    /// Requests by this session.
    requests: u32,
    /// What it has, as far as it knows.
    pub has: (Vec<Open>, Vec<Lock>, Vec<Delegation>),
    /// What it had when the server went, to be reclaimed; opens by what they were called then.
    had: (Vec<Open>, Vec<Lock>, Vec<Delegation>),
    /// What of that another has been given something against.
    spoiled: BTreeSet<u64>,
    /// What has become of the opens.
    again: BTreeMap<u64, u64>,
}

impl Client {
    /// It has nothing to reclaim, or no longer.
    fn forget(&mut self) {
        (self.had, self.again, self.spoiled) = Default::default();
    }
}

/// The engine, the model, and what ties them.
pub struct Both {
    pub engine: Machine,
    pub model: Reference,
    boot: u32,
    pub clients: [Client; CLIENTS],
    /// The engine's names for the model's states.
    pub ids: BTreeMap<u64, StateId>,
    /// Stable storage.
    pub records: BTreeSet<Vec<u8>>,
    /// A client has reclaimed what it never had, or tried to: nobody can rely on getting back what he had.
    lied: bool,
}

fn engine(boot: u32, records: &BTreeSet<Vec<u8>>) -> Machine {
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
    Engine::new(config, random, records.iter().cloned(), Time(LEASE))
}

/// What stands on stable storage for a client.
pub fn record((who, verifier): Instance) -> Vec<u8> {
    state::instance(NAMES[who].as_bytes(), [verifier; 8])
}

/// Another user of a client, who has nothing.
const fn stranger(client: ClientId) -> Requester {
    Requester { client, principal: OTHER }
}

fn range((first, last): (usize, usize)) -> ByteRange {
    ByteRange { first: first as u64, last: last as u64 }
}

impl Both {
    pub fn new() -> Self {
        let records = BTreeSet::new();
        let (engine, model) = (engine(1, &records), Reference::default());
        let (clients, ids) = Default::default();
        Self { engine, model, boot: 1, clients, ids, records, lied: false }
    }

    pub fn now(&self) -> Time {
        Time(self.model.now())
    }

    /// SEQUENCE, before every operation of a client; the client's id if its session lives.
    fn sequence(&mut self, who: usize) -> Option<ClientId> {
        let now = self.now();
        let client = &mut self.clients[who];
        let (id, session) = client.session?;
        client.requests += 1;
        let done = self.engine.sequence(now, &request(session, 0, client.requests));
        assert_eq!(done.is_ok(), self.model.known[who].alive, "client {who}: {done:?}");
        match done {
            Ok(SequenceResult::New(ticket)) => {
                assert_eq!(ticket.revoked, !self.model.revoked[who].is_empty());
                assert_eq!(ticket.reclaim_needed, self.model.may_reclaim(who));
                self.engine.finish(&ticket, None);
                self.model.renew(who);
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

    /// EXCHANGE_ID and CREATE_SESSION, if it has no session or has just been started.
    pub fn arrive(&mut self, who: usize, reboot: bool) {
        let now = self.now();
        let client = &mut self.clients[who];
        if reboot {
            client.forget();
        } else if client.session.is_some() {
            return;
        }
        let verifier = self.model.verifiers()[who] + u8::from(reboot);
        let exchanged = self.engine.exchange_id(now, &named(NAMES[who], verifier)).expect("there is room");
        let asked = creation(exchanged.client, exchanged.sequence);
        let created = self.engine.create_session(now, &asked).expect("there is room");
        client.session = Some((exchanged.client, created.session));
        client.requests = 0;
        self.model.arrive(who, reboot);
    }

    pub fn take(&mut self, step: Step) {
        match step {
            Step::Wait(milliseconds) => {
                self.model.advance(milliseconds);
                self.engine.tick(self.now());
            }
            Step::Renew(who) => drop(self.sequence(who)),
            Step::Reboot(who) => self.arrive(who, true),
            Step::Open(who, owner, file, share) => {
                self.arrive_now_and_then(who);
                let _ = self.open(who, owner, file, share, false);
            }
            Step::Downgrade(which, to) => {
                let Some(open) = pick(&self.model.opens, which) else { return };
                let Some(client) = self.sequence(open.who) else { return };
                let id = StateId { seqid: 0, ..self.ids[&open.nr] };
                let share = Share { access: to.0, deny: to.1 };
                let refused = self.engine.downgrade(&stranger(client), &id, &open.file, share);
                assert_eq!(refused, Err(Error::WrongCred));
                let done = self.engine.downgrade(&root(client), &id, &open.file, share);
                assert_eq!(done.map(drop), self.model.downgrade(open.nr, to));
                self.ids.extend(done.map(|id| (open.nr, id)));
            }
            Step::Close(which) => {
                let Some(open) = pick(&self.model.opens, which) else { return };
                let Some(client) = self.sequence(open.who) else { return };
                let refused = self.engine.close(&stranger(client), &self.ids[&open.nr], &open.file);
                assert_eq!(refused, Err(Error::WrongCred));
                let done = self.engine.close(&root(client), &self.ids[&open.nr], &open.file);
                assert_eq!(done, Ok(()));
                self.model.close(open.nr);
            }
            Step::Lock(which, owner, bytes, write, ask) => {
                let Some(wanted) = self.wanted(which, owner, bytes, write) else { return };
                self.lock(&wanted, false, ask);
            }
            Step::Test(which, owner, bytes, write) => {
                let Some(wanted) = self.wanted(which, owner, bytes, write) else { return };
                self.test(&wanted);
            }
            Step::LetIn(which) => {
                let waits = self.engine.blocked_waiters(usize::MAX);
                let Some(first) = pick(&waits, which) else { return };
                self.engine.unblock(&first);
                let (who, owner) = self.owner(&first.who);
                let outside =
                    |waiter: &&Waiter| waiter.outside && waiter.wanted.is_own(who, owner, first.key);
                let bytes = (first.range.first as usize, first.range.last as usize);
                let is_it = |wanted: &&Wanted| wanted.bytes == bytes && wanted.kind == first.kind;
                let mut waiting = self.model.waiters.iter().filter(outside).map(|waiter| &waiter.wanted);
                let wanted = waiting.find(is_it).expect("it waits").clone();
                self.model.unblock(&wanted);
            }
            Step::Unlock(which, bytes) => {
                let Some(lock) = pick(&self.model.locks, which) else { return };
                let Some(client) = self.sequence(lock.who) else { return };
                let id = &self.ids[&lock.nr];
                let refused = self.engine.unlock_begin(&stranger(client), id, &lock.file, range(bytes));
                assert_eq!(refused.map(drop), Err(Error::WrongCred));
                let begun = self
                    .engine
                    .unlock_begin(&root(client), &self.ids[&lock.nr], &lock.file, range(bytes))
                    .expect("it lives");
                let id = self.engine.unlock_done(&begun, range(bytes)).expect("it lives");
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
                self.give_back(given.who, given.nr, given.file);
            }
            Step::Free(who) => {
                let Some((nr, file)) = self.model.revoked[who].last().copied() else { return };
                self.give_back(who, nr, file);
            }
            Step::Change(file, by) => {
                let client = by.and_then(|who| self.sequence(who));
                let by = by.filter(|_| client.is_some());
                let done = self.engine.check_conflicts(self.now(), client, &file, AccessKind::Change);
                assert_eq!(done, self.model.touch(by, file, Touched::Change));
            }
            Step::Local(file, writes, patience) => self.local(file, writes, patience),
            Step::Reclaim(who) => self.reclaim(who),
            Step::Lie(who, owner, file, share, bytes) => {
                self.lied = true;
                self.arrive(who, false);
                let Ok(nr) = self.open(who, owner, file, share, true) else { return };
                let open = self.model.opens.iter().find(|open| open.nr == nr).expect("it is there").clone();
                self.lock(&Wanted { open, owner, bytes, kind: LockKind::Write }, true, Ask::Once);
            }
            Step::Complete(who) => {
                self.arrive(who, false);
                let Some(client) = self.sequence(who) else { return };
                assert_eq!(self.engine.reclaim_complete(&stranger(client)), Err(Error::WrongCred));
                assert_eq!(self.engine.reclaim_complete(&root(client)), self.model.complete(who));
                self.clients[who].forget();
            }
            Step::Restart => self.restart(),
        }
    }

    /// A client that has lost its session notices when it next wants something.
    fn arrive_now_and_then(&mut self, who: usize) {
        if self.clients[who].had.0.is_empty() {
            self.arrive(who, false);
        }
    }

    fn open(
        &mut self,
        who: usize,
        owner: u8,
        file: u32,
        share: (u8, u8),
        reclaim: bool,
    ) -> Result<u64, Error> {
        let Some(client) = self.sequence(who) else { return Err(Error::BadSession) };
        let asked = OpenRequest {
            by: &root(client),
            owner: &[owner],
            key: &file,
            share: Share { access: share.0, deny: share.1 },
            reclaim,
            under_delegation: false,
        };
        let done = self.engine.open(self.now(), &asked);
        let said = self.model.open(who, owner, file, share, reclaim);
        assert_eq!(done.map(drop), said.map(drop));
        assert!(
            self.lied || said != Err(Error::ReclaimConflict),
            "nobody has been given what another may reclaim"
        );
        self.ids.extend(said.ok().zip(done.ok()));
        if said.is_ok() {
            let against = |theirs: (u8, u8)| theirs.0 & share.1 != 0 || theirs.1 & share.0 != 0;
            self.spoil(who, |open| open.file == file && against(open.union()), |_| false);
        }
        said
    }

    fn wanted(&self, which: usize, owner: u8, bytes: (usize, usize), write: bool) -> Option<Wanted> {
        let kind = if write { LockKind::Write } else { LockKind::Read };
        Some(Wanted { open: pick(&self.model.opens, which)?, owner, bytes, kind })
    }

    /// Whose lock owner it is, by our names.
    pub fn owner(&self, who: &LockOwner) -> (usize, u8) {
        let is_it = |client: &Client| client.session.is_some_and(|(client, _)| client == who.client);
        (self.clients.iter().position(is_it).expect("it lives"), who.owner[0])
    }

    /// The engine's answer and the model's say that the same is in the way.
    fn same(&self, denied: &LockDenied, (who, owner, (first, last, kind)): reference::LockDenied) {
        assert_eq!(self.owner(&denied.owner), (who, owner));
        assert_eq!((denied.range, denied.kind), (range((first, last)), kind));
    }

    /// LOCK; what it is called.
    fn lock(&mut self, wanted: &Wanted, reclaim: bool, ask: Ask) -> Option<u64> {
        let client = self.sequence(wanted.open.who)?;
        let owner = [wanted.owner];
        let locker = Locker::New { open: self.ids[&wanted.open.nr], owner: &owner };
        let (key, range, kind) = (&wanted.open.file, range(wanted.bytes), wanted.kind);
        let waits = ask != Ask::Once;
        let asked = LockRequest { by: &root(client), key, locker, range, kind, reclaim, waits };
        let stranger = LockRequest { by: &stranger(client), ..asked };
        assert_eq!(self.engine.lock_begin(self.now(), &stranger).map(drop), Err(Error::WrongCred));
        let done = self.engine.lock_begin(self.now(), &asked);
        let said = self.model.may_lock(wanted, reclaim, waits);
        assert!(
            self.lied || said != Err(Error::ReclaimConflict),
            "nobody has been given what another may reclaim"
        );
        match (done, said) {
            (Ok(Ok(begun)), Ok(Ok(()))) if ask == Ask::BlockedWaiter => {
                self.engine.lock_blocked_locally(self.now(), &begun, &asked);
                self.model.enqueue(wanted, true);
            }
            (Ok(Ok(begun)), Ok(Ok(()))) => {
                assert_eq!(begun.write_delegation.is_some(), self.model.writes(wanted.open.who, *key));
                let id = self.engine.lock_done(&begun, range, kind).expect("it lives");
                let nr = self.model.lock(wanted);
                self.ids.insert(nr, id);
                self.spoil(
                    wanted.open.who,
                    |_| false,
                    |lock| lock.file == wanted.open.file && !lock.against(wanted.bytes, kind).is_empty(),
                );
                return Some(nr);
            }
            (Ok(Err(denied)), Ok(Err(said))) => self.same(&denied, said),
            (done, said) => assert_eq!(done.map(|done| done.is_ok()), said.map(|said| said.is_ok())),
        }
        None
    }

    /// LOCKT.
    fn test(&mut self, wanted: &Wanted) {
        let Some(client) = self.sequence(wanted.open.who) else { return };
        let owner = LockOwner { client, owner: vec![wanted.owner] };
        let (file, range) = (wanted.open.file, range(wanted.bytes));
        let tested = self.engine.lock_test(self.now(), &owner, &file, range, wanted.kind);
        match (tested, self.model.test(wanted)) {
            (Ok(Err(denied)), Ok(Some(said))) => self.same(&denied, said),
            (Ok(Ok(tested)), Ok(None)) => {
                assert_eq!(tested.write_delegation.is_some(), self.model.writes(wanted.open.who, file));
            }
            (tested, said) => {
                assert_eq!(tested.map(|tested| tested.is_ok()), said.map(|said| said.is_none()))
            }
        }
    }

    /// Somebody has been given something: what others still believe to have against it they have lost.
    fn spoil(&mut self, by: usize, opens: impl Fn(&Open) -> bool, locks: impl Fn(&Lock) -> bool) {
        let known = self.model.known;
        for (who, client) in self.clients.iter_mut().enumerate().filter(|(who, _)| *who != by) {
            let has = (!known[who].alive).then_some(&client.has);
            for (of, all, _) in [&client.had].into_iter().chain(has) {
                client.spoiled.extend(of.iter().filter(|open| opens(open)).map(|open| open.nr));
                client.spoiled.extend(all.iter().filter(|lock| locks(lock)).map(|lock| lock.nr));
            }
        }
    }

    /// A delegation for who has just opened a file.
    fn delegate(&mut self, which: usize, writes: bool, interrupted: bool) {
        let may = |open: &Open| !self.model.in_grace() && self.model.known[open.who].complete;
        let Some(open) = pick(&self.model.opens, which).filter(may) else { return };
        let Some(client) = self.sequence(open.who) else { return };
        let Some((begun, nr)) = self.delegate_begin(client, open.who, open.file, writes, false) else {
            return;
        };
        if interrupted {
            self.local(open.file, true, LEASE);
            assert_eq!(self.engine.delegate_done(&begun), None);
            // The client has never heard of it.
            self.model.recalled.retain(|recalled| *recalled != nr);
            self.model.give_back(nr);
        } else {
            let id = self.engine.delegate_done(&begun).expect("nobody came between");
            self.ids.insert(nr, id);
        }
    }

    fn delegate_begin(
        &mut self,
        client: ClientId,
        who: usize,
        file: u32,
        writes: bool,
        reclaim: bool,
    ) -> Option<(PendingDelegation<()>, u64)> {
        let may_write = writes || self.model.next().is_multiple_of(2);
        let peer = Peer::Local(who as u32);
        let by = root(client);
        let asked = DelegationRequest { by: &by, peer, key: &file, writes, may_write, reclaim };
        let begun = self.engine.delegate_begin(self.now(), &asked);
        let said = self.model.delegate(who, file, (writes, may_write), reclaim);
        assert_eq!(begun.as_ref().map(drop).map_err(|why| *why), said.map(drop));
        begun.ok().zip(said.ok())
    }

    /// A delegation that a client had, with the file that it has open again; sometimes a local process has it
    /// open by now.
    fn reclaim_delegation(&mut self, who: usize, had: &Delegation) {
        let Some(client) = self.sequence(who).filter(|_| self.model.may_reclaim(who)) else { return };
        let Some((begun, nr)) = self.delegate_begin(client, who, had.file, had.writes, true) else {
            return;
        };
        let id = if nr.is_multiple_of(2) {
            self.engine.delegate_done(&begun)
        } else {
            self.model.recall(nr, self.model.now() + LEASE);
            self.engine.delegate_and_recall(self.now(), &begun)
        };
        self.ids.insert(nr, id.expect("nobody came between"));
    }

    fn give_back(&mut self, who: usize, nr: u64, file: u32) {
        let Some(client) = self.sequence(who) else { return };
        let refused = self.engine.delegreturn(self.now(), &stranger(client), &self.ids[&nr], &file);
        let is_revoked = self.model.revoked[who].iter().any(|(revoked, _)| *revoked == nr);
        // Who says that a delegation has gone gives nothing away.
        assert!(refused == Err(Error::WrongCred) || is_revoked && refused == Ok(()), "{refused:?}");
        assert!(
            is_revoked || self.engine.delegreturn(self.now(), &root(client), &self.ids[&nr], &file) == Ok(())
        );
        if is_revoked {
            self.model.give_back(nr);
        } else {
            self.model.delegreturn(nr);
        }
    }

    /// A local process breaks kernel leases.
    fn local(&mut self, file: u32, writes: bool, patience: u64) {
        let patience = RecallTimeout { writers: patience, readers: patience / 2 };
        self.engine.recall_for_local_open(self.now(), &file, writes, patience);
        let touched = if writes { Touched::Write } else { Touched::Read };
        self.model.clear(None, file, touched, patience);
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
        let open = self.model.opens.iter().find(|other| other.nr == open).expect("its open lives").clone();
        let Some(client) = self.sequence(open.who) else { return };
        let done = self.engine.check_io(self.now(), Some(client), &self.ids[&nr], &open.file, direction);
        let may = direction == Direction::Read || open.union().0 & 2 != 0;
        assert_eq!(done, if may { Ok(()) } else { Err(Error::Openmode) });
    }

    /// The next thing that a client had before the restart.
    fn reclaim(&mut self, who: usize) {
        self.arrive(who, false);
        let client = &mut self.clients[who];
        if let Some(open) = client.had.0.pop() {
            let spoiled = client.spoiled.contains(&open.nr);
            let reclaimed = self.open(who, open.owner, open.file, open.union(), true);
            assert!(
                self.lied || !spoiled || reclaimed.is_err(),
                "another has been given something against {open:?}"
            );
            if let Ok(nr) = reclaimed {
                self.clients[who].again.insert(open.nr, nr);
            }
        } else if let Some(lock) = client.had.1.pop() {
            let open = client.again.get(&lock.open);
            let open = open.and_then(|nr| self.model.opens.iter().find(|open| open.nr == *nr));
            let Some(open) = open.cloned() else { return };
            let spoiled = client.spoiled.contains(&lock.nr);
            for at in 0..BYTES {
                if let Some(kind) = lock.bytes[at] {
                    let wanted = Wanted { open: open.clone(), owner: lock.owner, bytes: (at, at), kind };
                    let reclaimed = self.lock(&wanted, true, Ask::Once);
                    assert!(
                        self.lied || !spoiled || reclaimed.is_none(),
                        "another has been given some of {lock:?}"
                    );
                }
            }
        } else if let Some(given) = client.had.2.pop() {
            self.reclaim_delegation(who, &given);
        }
    }

    fn restart(&mut self) {
        self.boot += 1;
        for client in &mut self.clients {
            client.session = None;
            // What it hasn't reclaimed since the last time, not knowing that there was one, or not yet, it
            // believes to have, too.
            let (opens, locks, lent) = std::mem::take(&mut client.has);
            for lock in &mut client.had.1 {
                lock.open = client.again.get(&lock.open).copied().unwrap_or(lock.open);
            }
            client.had.0.extend(opens);
            client.had.1.extend(locks);
            client.had.2.extend(lent);
            client.again.clear();
        }
        let verifiers = self.model.verifiers();
        let ever = (0..CLIENTS).flat_map(|who| (0..=verifiers[who]).map(move |verifier| (who, verifier)));
        let recorded = ever.filter(|instance| self.records.contains(&record(*instance))).collect();
        self.engine = engine(self.boot, &self.records);
        self.model = Reference::after(recorded, verifiers, self.model.next());
        self.ids.clear();
    }
}

/// One of several, from the newest on.
fn pick<T: Clone>(from: &[T], which: usize) -> Option<T> {
    from.iter().rev().nth(which.checked_rem(from.len())?).cloned()
}
