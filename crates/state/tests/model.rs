//! The engine beside a plain model of it: two clients that open, lock, are lent files, give them back or don't, fall silent, restart and come
//! back, local processes that are given files or want what is lent, and a server that restarts, in random order. Both must answer the same, and remember the same.
//!
//! 128 sequences of up to 120 steps; SAMEHOST_MODEL_CASES runs more.

extern crate samehost_state as state;

mod common;
mod reference;

use std::collections::{BTreeMap, BTreeSet};

use common::{COURTESY, LEASE, Machine, creation, named, request};
use proptest::prelude::*;
use reference::{BYTES, CLIENTS, FILES, Lock, Open, Reference, Touched};
use state::{
    Asker, Channel, ClientId, Config, Denied, Direction, Engine, Error, Limits, LockKind, LockOwner,
    LockRequest, Locker, OpenRequest, Range, Sequenced, SessionId, Share, StateId, Time, Touch,
};

const NAMES: [&str; CLIENTS] = ["one", "two"];

/// One step. Which of several is said by a number that is taken modulo how many there are.
#[derive(Debug, Clone)]
enum Step {
    Wait(u64),
    Renew(usize),
    Open(usize, u8, u32, (u8, u8)),
    Downgrade(usize, (u8, u8)),
    Close(usize),
    Lock(usize, u8, (usize, usize), bool),
    Unlock(usize, (usize, usize)),
    Read(usize),
    Write(usize),
    Stateless(u32, bool),
    Grant(u32, u8),
    Release(usize),
    /// A delegation, for writing too, for who has that open; a local process may come between.
    Delegate(usize, bool, bool),
    Return(usize),
    /// A client says that it knows what was taken away.
    Free(usize),
    /// Somebody changes attributes or names: a client, or none.
    Change(u32, Option<usize>),
    /// A local process opens the file, for writing, too, and waits so long.
    Local(u32, bool, u64),
    Reboot(usize),
    Reclaim(usize),
    Complete(usize),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let who = 0..CLIENTS;
    let file = 0..FILES as u32;
    let share = (1_u8..4, prop_oneof![3 => Just(0_u8), 1 => 1_u8..4]);
    let bytes = (0..BYTES, 0..BYTES).prop_map(|(a, b)| (a.min(b), a.max(b)));
    prop_oneof![
        4 => (1..LEASE / 2).prop_map(Step::Wait),
        1 => (LEASE..COURTESY + 3 * LEASE).prop_map(Step::Wait),
        4 => who.clone().prop_map(Step::Renew),
        10 => (who.clone(), 0_u8..2, file.clone(), share.clone()).prop_map(|(w, o, f, s)| Step::Open(w, o, f, s)),
        3 => (any::<usize>(), share).prop_map(|(n, s)| Step::Downgrade(n, s)),
        4 => any::<usize>().prop_map(Step::Close),
        10 => (any::<usize>(), 0_u8..2, bytes.clone(), any::<bool>()).prop_map(|(n, o, b, w)| Step::Lock(n, o, b, w)),
        4 => (any::<usize>(), bytes).prop_map(|(n, b)| Step::Unlock(n, b)),
        2 => any::<usize>().prop_map(Step::Read),
        2 => any::<usize>().prop_map(Step::Write),
        2 => (file.clone(), any::<bool>()).prop_map(|(f, w)| Step::Stateless(f, w)),
        3 => (file.clone(), 1_u8..4).prop_map(|(f, a)| Step::Grant(f, a)),
        3 => any::<usize>().prop_map(Step::Release),
        10 => (any::<usize>(), any::<bool>(), prop::bool::weighted(0.1)).prop_map(|(n, w, b)| Step::Delegate(n, w, b)),
        3 => any::<usize>().prop_map(Step::Return),
        2 => who.clone().prop_map(Step::Free),
        1 => (file.clone(), proptest::option::of(who.clone())).prop_map(|(f, w)| Step::Change(f, w)),
        1 => (file.clone(), any::<bool>(), 1..2 * LEASE).prop_map(|(f, w, p)| Step::Local(f, w, p)),
        1 => who.clone().prop_map(Step::Reboot),
        6 => who.clone().prop_map(Step::Reclaim),
        3 => who.prop_map(Step::Complete),
        1 => Just(Step::Restart),
    ]
}

/// What a client knows of itself.
#[derive(Debug, Default)]
struct Client {
    session: Option<(ClientId, SessionId)>,
    /// Requests by this session.
    requests: u32,
    verifier: u8,
    /// What it has, as far as it knows.
    has: (Vec<Open>, Vec<Lock>),
    /// What it had when the server went, to be reclaimed; opens by what they were called then.
    had: (Vec<Open>, Vec<Lock>),
    /// What has become of the opens.
    again: BTreeMap<u64, u64>,
}

/// The engine, the model, and what ties them.
struct Both {
    engine: Machine,
    model: Reference,
    boot: u32,
    clients: [Client; CLIENTS],
    /// The engine's names for the model's states.
    ids: BTreeMap<u64, StateId>,
    /// Stable storage.
    records: BTreeSet<Vec<u8>>,
}

fn engine(boot: u32, records: &BTreeSet<Vec<u8>>) -> Machine {
    let mut next = 0;
    let random = Box::new(move || {
        next += 1;
        next
    });
    let channel = Channel { request: 4096, response: 4096, cached: 1024, operations: 8, slots: 4 };
    let limits = Limits {
        clients: 8,
        sessions: 4,
        states: 1000,
        delegations: 100,
        client_delegations: 50,
        ranges: 100,
        waiting: 10,
        replies: 1 << 30,
        channel,
    };
    let config = Config { boot, lease: LEASE, courtesy: COURTESY, limits };
    Engine::new(config, random, records.iter().cloned(), Time(LEASE))
}

fn range((first, last): (usize, usize)) -> Range {
    Range { first: first as u64, last: last as u64 }
}

impl Both {
    fn new() -> Self {
        let records = BTreeSet::new();
        let (engine, model) = (engine(1, &records), Reference::default());
        let (clients, ids) = Default::default();
        Self { engine, model, boot: 1, clients, ids, records }
    }

    fn now(&self) -> Time {
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
            Ok(Sequenced::New(ticket)) => {
                assert_eq!(ticket.revoked, !self.model.revoked[who].is_empty());
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
    fn arrive(&mut self, who: usize, reboot: bool) {
        let now = self.now();
        let client = &mut self.clients[who];
        if reboot {
            client.verifier += 1;
            (client.had, client.again) = Default::default();
        } else if client.session.is_some() {
            return;
        }
        let exchanged =
            self.engine.exchange_id(now, &named(NAMES[who], client.verifier)).expect("there is room");
        let asked = creation(exchanged.client, exchanged.sequence);
        let created = self.engine.create_session(now, &asked).expect("there is room");
        client.session = Some((exchanged.client, created.session));
        client.requests = 0;
        self.model.arrive(who, reboot);
    }

    fn take(&mut self, step: Step) {
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
                let done = self.engine.downgrade(client, &id, &open.file, share);
                assert_eq!(done.map(drop), self.model.downgrade(open.nr, to));
                self.ids.extend(done.map(|id| (open.nr, id)));
            }
            Step::Close(which) => {
                let Some(open) = pick(&self.model.opens, which) else { return };
                let Some(client) = self.sequence(open.who) else { return };
                let done = self.engine.close(client, &self.ids[&open.nr], &open.file);
                assert_eq!(done, Ok(()));
                self.model.close(open.nr);
            }
            Step::Lock(which, owner, bytes, write) => {
                let Some(open) = pick(&self.model.opens, which) else { return };
                let kind = if write { LockKind::Write } else { LockKind::Read };
                self.lock(&open, owner, bytes, kind, false);
            }
            Step::Unlock(which, bytes) => {
                let Some(lock) = pick(&self.model.locks, which) else { return };
                let Some(client) = self.sequence(lock.who) else { return };
                let begun = self
                    .engine
                    .unlock_begin(client, &self.ids[&lock.nr], &lock.file, range(bytes))
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
                let done = self.engine.check_io(now, Asker::Stateless, &StateId::ANONYMOUS, &file, direction);
                assert_eq!(done, self.model.stateless(file, if write { 2 } else { 1 }));
            }
            Step::Grant(file, access) => {
                let done = self.engine.grant(self.now(), &file, access);
                assert_eq!(done, self.model.grant(file, access));
            }
            Step::Release(which) => {
                let Some(granted) = pick(&self.model.grants, which) else { return };
                self.engine.release_grant(&granted.0, granted.1);
                let at = which % self.model.grants.len();
                self.model.grants.remove(at);
                self.model.prune();
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
                let done = self.engine.may_begin(self.now(), client, &file, Touch::Change);
                assert_eq!(done, self.model.touch(by, file, Touched::Change));
            }
            Step::Local(file, writes, patience) => self.local(file, writes, patience),
            Step::Reclaim(who) => self.reclaim(who),
            Step::Complete(who) => {
                self.arrive(who, false);
                let Some(client) = self.sequence(who) else { return };
                assert_eq!(self.engine.reclaim_complete(client), self.model.complete(who));
                (self.clients[who].had, self.clients[who].again) = Default::default();
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
            client,
            owner: &[owner],
            key: &file,
            share: Share { access: share.0, deny: share.1 },
            reclaim,
        };
        let done = self.engine.open(self.now(), &asked);
        let said = self.model.open(who, owner, file, share, reclaim);
        assert_eq!(done.map(drop), said.map(drop));
        assert_ne!(said, Err(Error::ReclaimConflict), "nobody has been given what another may reclaim");
        self.ids.extend(said.ok().zip(done.ok()));
        said
    }

    fn lock(&mut self, open: &Open, owner: u8, bytes: (usize, usize), kind: LockKind, reclaim: bool) {
        let Some(client) = self.sequence(open.who) else { return };
        let locker = Locker::New { open: self.ids[&open.nr], owner: &[owner] };
        let asked =
            LockRequest { client, key: &open.file, locker, range: range(bytes), kind, reclaim, waits: false };
        let done = self.engine.lock_begin(self.now(), &asked);
        let said = self.model.lock(open.nr, owner, bytes, kind, reclaim);
        assert_ne!(said, Err(Error::ReclaimConflict), "nobody has been given what another may reclaim");
        match (done, said) {
            (Ok(Ok(begun)), Ok(Ok(nr))) => {
                let id = self.engine.lock_done(&begun, range(bytes), kind).expect("it lives");
                self.ids.insert(nr, id);
            }
            (Ok(Err(denied)), Ok(Err((who, owner, (first, last, kind))))) => {
                let client = self.clients[who].session.expect("it has locks").0;
                let owner = LockOwner { client, owner: vec![owner] };
                assert_eq!(denied, Denied { range: range((first, last)), kind, owner });
            }
            (done, said) => assert_eq!(done.map(drop), said.map(drop)),
        }
    }

    /// A delegation for who has just opened a file.
    fn delegate(&mut self, which: usize, writes: bool, interrupted: bool) {
        let Some(open) = pick(&self.model.opens, which).filter(|_| !self.model.in_grace()) else { return };
        let Some(client) = self.sequence(open.who) else { return };
        let begun = self.engine.delegate_begin(self.now(), client, &open.file, writes, false);
        let said = self.model.delegate(open.who, open.file, writes);
        assert_eq!(begun.as_ref().map(drop).map_err(|why| *why), said.map(drop));
        let (Ok(begun), Ok(nr)) = (begun, said) else { return };
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

    fn give_back(&mut self, who: usize, nr: u64, file: u32) {
        let Some(client) = self.sequence(who) else { return };
        assert_eq!(self.engine.delegreturn(client, &self.ids[&nr], &file), Ok(()));
        self.model.give_back(nr);
    }

    /// A local process breaks kernel leases.
    fn local(&mut self, file: u32, writes: bool, patience: u64) {
        self.engine.broken_by_local(self.now(), &file, writes, patience);
        let deadline = self.model.now() + patience.min(LEASE);
        let touched = if writes { Touched::Write } else { Touched::Read };
        self.model.clear(None, file, touched, deadline);
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
        let done =
            self.engine.check_io(self.now(), Asker::Client(client), &self.ids[&nr], &open.file, direction);
        let may = direction == Direction::Read || open.union().0 & 2 != 0;
        assert_eq!(done, if may { Ok(()) } else { Err(Error::Openmode) });
    }

    /// The next thing that a client had before the restart.
    fn reclaim(&mut self, who: usize) {
        self.arrive(who, false);
        let client = &mut self.clients[who];
        if let Some(open) = client.had.0.pop() {
            let reclaimed = self.open(who, open.owner, open.file, open.union(), true);
            if let Ok(nr) = reclaimed {
                self.clients[who].again.insert(open.nr, nr);
            }
        } else if let Some(lock) = client.had.1.pop()
            && let Some(open) = client.again.get(&lock.open)
            && let Some(open) = self.model.opens.iter().find(|other| other.nr == *open).cloned()
        {
            for at in 0..BYTES {
                if let Some(kind) = lock.bytes[at] {
                    self.lock(&open, lock.owner, (at, at), kind, true);
                }
            }
        }
    }

    fn restart(&mut self) {
        self.boot += 1;
        for client in &mut self.clients {
            client.session = None;
            // What it hadn't reclaimed yet of an earlier run's is lost. It will ask for what it has lost without knowing.
            client.had = std::mem::take(&mut client.has);
            client.again.clear();
        }
        let recorded = (0..CLIENTS).filter(|who| self.records.contains(NAMES[*who].as_bytes())).collect();
        self.engine = engine(self.boot, &self.records);
        self.model = Reference::after(recorded, self.model.next());
        self.ids.clear();
    }

    /// What must be so after every step.
    fn check(&mut self) {
        let effects = self.engine.take_effects(self.now());
        let recalled: Vec<StateId> = effects.recalls.iter().map(|recall| recall.id).collect();
        let expected = std::mem::take(&mut self.model.recalled);
        assert_eq!(recalled, expected.iter().map(|nr| self.ids[nr]).collect::<Vec<_>>());
        self.records.retain(|owner| !effects.forget.contains(owner));
        self.records.extend(effects.remember.iter().cloned());
        let model = &mut self.model;
        for (who, name) in NAMES.iter().enumerate() {
            let recorded = self.records.contains(name.as_bytes());
            if model.has_state(who) {
                assert!(recorded, "client {who} couldn't reclaim what it has");
                model.lost.remove(&who);
            }
            assert!(!(recorded && model.lost.contains(&who)), "client {who} could reclaim what it has lost");
        }
        for (who, client) in self.clients.iter_mut().enumerate().filter(|(who, _)| model.known[*who].alive) {
            client.has.0 = model.opens.iter().filter(|open| open.who == who).cloned().collect();
            client.has.1 = model.locks.iter().filter(|lock| lock.who == who).cloned().collect();
        }
        let alive = model.known.iter().filter(|known| known.alive).count();
        assert_eq!(
            self.engine.counts(),
            (alive, alive, model.opens.len() + model.locks.len() + model.delegations.len())
        );
        let delegated = |writes| model.delegations.iter().filter(|given| given.writes == writes).count();
        assert_eq!(self.engine.delegated(), [false, true].map(delegated));
        let denied = model.opens.iter().any(|open| open.union().1 != 0);
        assert_eq!(self.engine.denies(), denied);
        let live = model.opens.iter().map(|open| (open.nr, open.who));
        let live: BTreeMap<u64, usize> = live
            .chain(model.locks.iter().map(|lock| (lock.nr, lock.who)))
            .chain(model.delegations.iter().map(|given| (given.nr, given.who)))
            .collect();
        let revoked: BTreeSet<u64> = model.revoked.iter().flatten().map(|(nr, _)| *nr).collect();
        let clients = &self.clients;
        self.ids.retain(|nr, id| {
            let owner = live.get(nr).and_then(|who| clients[*who].session);
            for (client, _) in clients.iter().filter_map(|client| client.session) {
                let tested = self.engine.test_stateid(client, id);
                let expected = owner.is_some_and(|(owner, _)| owner == client);
                assert_eq!(tested.is_ok(), expected, "state {nr}: {tested:?}");
            }
            live.contains_key(nr) || revoked.contains(nr)
        });
    }
}

fn pick<T: Clone>(from: &[T], which: usize) -> Option<T> {
    from.get(which.checked_rem(from.len())?).cloned()
}

fn cases() -> u32 {
    std::env::var("SAMEHOST_MODEL_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(128)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn the_engine_answers_as_the_model(steps in proptest::collection::vec(step(), 1..120)) {
        let mut both = Both::new();
        for who in 0..CLIENTS {
            both.arrive(who, false);
            both.take(Step::Complete(who));
        }
        both.check();
        for step in steps {
            both.take(step);
            both.check();
        }
    }
}
