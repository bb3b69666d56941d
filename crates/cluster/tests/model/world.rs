//! A cluster with its RADOS, its metadata server and its clients, in ticks of one second.
//!
//! The metadata server gives a lock to one session at a time, and drops sessions that it doesn't hear of.
//! Messages take their time, get lost, and take effect after their sender has given them up.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use samehost_cluster::{Carry, Database, Effect, Event, Fate, Member, MemberConfig, Service, Versioned};

use crate::clients::Client;
use crate::mutations::Mutation;
use crate::plan::{FAULTY, Fault, MAX_NODES, Plan};

/// A client's lease.
pub const LEASE: u64 = 20;
/// How long a node vouches for its state.
const VOUCH: u64 = 16;
/// The metadata server drops a session of which it has heard nothing for this long.
const SESSION_TIMEOUT: u64 = 48;
/// A request without an answer has failed after this time.
const REQUEST_TIMEOUT: u64 = 4;
/// The time in which a repaired cluster serves all clients again.
const REPAIR: u64 = 600;
/// Clients of each node.
const CLIENTS: usize = 2;
/// Files that they lock.
pub const FILES: u64 = 3;

/// The rules are violated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation(pub String);

/// Random numbers (SplitMix64).
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    pub const fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// A session with the metadata server. A file's number leads to the client that has locked it.
#[derive(Debug, Default)]
pub struct Session {
    pub is_alive: bool,
    /// Other servers see that it holds locks of clients.
    is_marked: bool,
    /// The server has dropped it by itself.
    pub timed_out: bool,
    heard: u64,
    pub locks: BTreeMap<u64, usize>,
}

/// A node's host. Connections are cut until a tick.
#[derive(Debug)]
pub struct Host {
    name: String,
    pub run: Option<Run>,
    clock: Duration,
    start: Option<u64>,
    pub no_rados: u64,
    pub no_metadata: u64,
    pub no_clients: u64,
    slow: u64,
    /// The host that has its address.
    pub address: usize,
}

/// A run of a node's server.
#[derive(Debug)]
pub struct Run {
    pub number: usize,
    pub member: Member,
    pub session: usize,
    pub is_loud: bool,
    pub accepts: bool,
    pub may_reclaim: BTreeSet<usize>,
    reclaim_until: u64,
    /// The epoch of the records.
    pub records: Option<u64>,
    /// The epoch of the records before.
    before: Option<u64>,
    /// The clients, and when they last renewed their leases.
    pub clients: BTreeMap<usize, u64>,
}

/// Something that is under way.
#[derive(Debug, Clone)]
struct Action {
    since: u64,
    due: u64,
    host: usize,
    run: usize,
    what: What,
}

#[derive(Debug, Clone)]
enum What {
    Effect(Effect),
    /// A write whose sender has given it up.
    Ghost(Effect),
    Answer(Event),
    /// A LOCK.
    Grant {
        client: usize,
        file: u64,
    },
}

/// A cluster.
#[derive(Debug)]
pub struct World {
    pub now: u64,
    epoch: Instant,
    pub random: Random,
    pub mutation: Option<Mutation>,
    lost: u64,
    object: Versioned,
    /// Client records by epoch and node.
    pub records: BTreeMap<(u64, usize), BTreeSet<usize>>,
    pub sessions: Vec<Session>,
    pub hosts: Vec<Host>,
    pub clients: Vec<Client>,
    /// When a client last held a file.
    pub held: BTreeMap<(u64, usize), u64>,
    actions: Vec<Action>,
    runs: usize,
}

/// Runs one history.
pub fn run(plan: &Plan, mutation: Option<Mutation>, epoch: Instant) -> Result<(), Violation> {
    let mut world = World::new(plan, mutation, epoch);
    for _ in 0..FAULTY {
        let now = world.now;
        for (_, fault) in plan.faults.iter().filter(|(at, _)| *at == now) {
            world.suffer(fault);
        }
        world.step()?;
    }
    world.repair();
    for _ in 0..REPAIR {
        if world.is_well() {
            return Ok(());
        }
        world.step()?;
    }
    Err(Violation(format!("no end of the grace period: {:?}", world.object)))
}

impl World {
    fn new(plan: &Plan, mutation: Option<Mutation>, epoch: Instant) -> Self {
        let mut random = Random(plan.seed);
        let mut database = Database::default();
        let mut host = |number: usize| Host {
            name: char::from(b'a' + number as u8).to_string(),
            run: None,
            clock: Duration::from_secs(random.below(1 << 20)),
            start: (number < plan.nodes).then(|| random.below(4)),
            no_rados: 0,
            no_metadata: 0,
            no_clients: 0,
            slow: 0,
            address: number,
        };
        let hosts: Vec<_> = (0..MAX_NODES).map(&mut host).collect();
        for host in &hosts[..plan.nodes] {
            database = database.add(&host.name).expect("a new node");
        }
        Self {
            now: 0,
            epoch,
            random,
            mutation,
            lost: plan.lost,
            object: Versioned { version: 1, database },
            records: BTreeMap::new(),
            sessions: Vec::new(),
            hosts,
            clients: (0..plan.nodes * CLIENTS).map(|client| Client::new(client / CLIENTS)).collect(),
            held: BTreeMap::new(),
            actions: Vec::new(),
            runs: 0,
        }
    }

    pub fn is(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    fn step(&mut self) -> Result<(), Violation> {
        self.now += 1;
        for host in 0..self.hosts.len() {
            if self.hosts[host].run.is_none() && self.hosts[host].start.is_some_and(|at| at <= self.now) {
                self.start(host);
            }
        }
        self.keep_sessions();
        self.act();
        for host in 0..self.hosts.len() {
            self.tick(host);
        }
        let first = self.random.below(self.clients.len() as u64) as usize;
        for client in 0..self.clients.len() {
            self.client_step((first + client) % self.clients.len())?;
        }
        self.check()
    }

    /// No two clients may believe that they hold the same lock.
    fn check(&mut self) -> Result<(), Violation> {
        for file in 0..FILES {
            let believes =
                |client: &Client| client.holds.contains(&file) && self.now < client.renewed + LEASE;
            let holders = self.clients.iter().enumerate().filter(|(_, client)| believes(client));
            let holders: Vec<_> = holders.map(|(id, _)| id).collect();
            if holders.len() > 1 {
                return Err(Violation(format!("tick {}: {holders:?} hold {file}", self.now)));
            }
            self.held.extend(holders.into_iter().map(|id| ((file, id), self.now)));
        }
        Ok(())
    }

    fn start(&mut self, host: usize) {
        let session = self.sessions.len();
        self.sessions.push(Session {
            is_alive: true,
            is_marked: true,
            heard: self.now,
            ..Session::default()
        });
        self.runs += 1;
        let config = MemberConfig {
            node: self.hosts[host].name.clone(),
            session: session.to_string(),
            vouch: Duration::from_secs(VOUCH),
        };
        self.hosts[host].start = None;
        self.hosts[host].run = Some(Run {
            number: self.runs,
            member: Member::new(config, self.clock(host)),
            session,
            is_loud: true,
            accepts: false,
            may_reclaim: BTreeSet::new(),
            reclaim_until: 0,
            records: None,
            before: None,
            clients: BTreeMap::new(),
        });
        self.begin_effects(host);
    }

    /// The time on a host's own clock.
    pub fn clock(&self, host: usize) -> Instant {
        self.epoch + self.hosts[host].clock + Duration::from_secs(self.now)
    }

    /// What the server on a host may answer.
    pub fn service(&self, host: usize) -> Option<Service> {
        let run = self.hosts[host].run.as_ref()?;
        if run.is_loud { Some(run.member.service(self.clock(host))) } else { Some(Service::Silent) }
    }

    fn keep_sessions(&mut self) {
        for host in &self.hosts {
            if let Some(run) = host.run.as_ref().filter(|_| host.no_metadata <= self.now) {
                self.sessions[run.session].heard = self.now;
            }
        }
        for session in self.sessions.iter_mut().filter(|session| session.is_alive) {
            if self.now - session.heard >= SESSION_TIMEOUT {
                session.timed_out = true;
                session.end();
            }
        }
    }

    fn tick(&mut self, host: usize) {
        let now = self.clock(host);
        let Some(run) = &mut self.hosts[host].run else { return };
        if run.accepts && (run.may_reclaim.is_empty() || self.now >= run.reclaim_until) {
            run.reclaim_until = u64::MAX;
            self.tell(host, Event::Reclaimed);
        }
        let Some(run) = &self.hosts[host].run else { return };
        if run.member.next_tick().is_some_and(|at| at <= now) {
            self.tell(host, Event::Tick);
        }
        self.expire(host);
    }

    /// Ends the clients that haven't renewed their leases.
    fn expire(&mut self, host: usize) {
        let keeps_record = self.is(Mutation::RememberForever);
        if self.service(host).is_none_or(|service| service == Service::Silent) {
            return;
        }
        let Host { run: Some(run), no_rados, no_metadata, .. } = &mut self.hosts[host] else { return };
        let Some(epoch) = run.records.filter(|_| *no_rados.max(no_metadata) <= self.now) else { return };
        let is_late = |(_, renewed): &(&usize, &u64)| self.now > **renewed + LEASE;
        let late: Vec<_> = run.clients.iter().filter(is_late).map(|(client, _)| *client).collect();
        for client in late {
            run.clients.remove(&client);
            self.actions
                .retain(|action| !matches!(action.what, What::Grant { client: of, .. } if of == client));
            // Also from the records of the epoch before: not all nodes may enforce yet.
            let own = |(of, node): (u64, usize)| node == host && (of == epoch || Some(of) == run.before);
            let records = self.records.iter_mut().filter(|(key, _)| own(**key) && !keeps_record);
            records.for_each(|(_, clients)| {
                clients.remove(&client);
            });
            self.sessions[run.session].locks.retain(|_, holder| *holder != client);
        }
    }

    /// Reports an event to the node on a host, and begins its effects.
    fn tell(&mut self, host: usize, event: Event) {
        let now = self.clock(host);
        if let Some(run) = &mut self.hosts[host].run {
            run.member.handle(now, event);
            self.begin_effects(host);
        }
    }

    fn begin_effects(&mut self, host: usize) {
        let Some(run) = &mut self.hosts[host].run else { return };
        for effect in run.member.take_effects() {
            match effect {
                Effect::Restart(_) => {
                    self.end(host);
                    self.hosts[host].start = Some(self.now + 1 + self.random.below(3));
                    return;
                }
                Effect::Leave => return self.leave(host),
                // Later effects wait for it.
                Effect::TakeAddress { .. } => {
                    self.perform(host, &effect);
                }
                effect => self.begin(host, What::Effect(effect)),
            }
        }
    }

    /// The server process ends. The mount of a drained one stays, with what it still holds.
    fn leave(&mut self, host: usize) {
        let Some(run) = &self.hosts[host].run else { return };
        let session = &mut self.sessions[run.session];
        if session.is_marked {
            return self.end(host);
        }
        session.heard = self.now;
        self.hosts[host].run = None;
    }

    /// The server process ends, and with it its session.
    fn end(&mut self, host: usize) {
        if let Some(run) = self.hosts[host].run.take() {
            self.sessions[run.session].end();
        }
    }

    fn begin(&mut self, host: usize, what: What) {
        let Some(run) = &self.hosts[host].run else { return };
        let is_grant = matches!(what, What::Grant { .. });
        let latency = match is_grant && self.random.below(8) == 0 {
            true => 40,
            false if self.hosts[host].slow > self.now => 9,
            false => 3,
        };
        let (run, due) = (run.number, self.now + self.random.below(latency));
        self.actions.push(Action { since: self.now, due, host, run, what });
    }

    /// The requests of a client that has ended get nothing.
    pub fn end_grants(&mut self, id: usize) {
        self.actions.retain(|action| !matches!(action.what, What::Grant { client, .. } if client == id));
    }

    /// Begins a LOCK.
    pub fn begin_grant(&mut self, host: usize, client: usize, file: u64) {
        self.begin(host, What::Grant { client, file });
    }

    /// Does everything that is due, in any order.
    fn act(&mut self) {
        loop {
            let due = self.actions.iter().enumerate().filter(|(_, action)| action.due <= self.now);
            let due: Vec<_> = due.map(|(index, _)| index).collect();
            if due.is_empty() {
                return;
            }
            let action = self.actions.swap_remove(due[self.random.below(due.len() as u64) as usize]);
            let is_running = self.hosts[action.host].run.as_ref().is_some_and(|run| run.number == action.run);
            match &action.what {
                // It may be on its way when its sender dies.
                What::Effect(write @ Effect::Write { .. }) | What::Ghost(write) if !is_running => {
                    if self.random.below(2) == 0 {
                        self.write(action.host, write);
                    }
                }
                _ if !is_running => {}
                What::Answer(event) => self.tell(action.host, event.clone()),
                _ => {
                    if !self.execute(&action) {
                        self.actions.push(Action { due: self.now + 1, ..action });
                    }
                }
            }
        }
    }

    /// Does something for a running server. Returns whether it is done.
    fn execute(&mut self, action: &Action) -> bool {
        let (host, is_late) = (action.host, self.now >= action.since + REQUEST_TIMEOUT);
        let has_rados = self.hosts[host].no_rados <= self.now;
        let has_metadata = self.hosts[host].no_metadata <= self.now;
        match &action.what {
            What::Ghost(write) => {
                if has_rados {
                    self.write(host, write);
                }
                has_rados
            }
            What::Grant { client, file } => {
                if !has_metadata {
                    return is_late;
                }
                self.grant(host, *client, *file);
                true
            }
            What::Answer(_) => true,
            What::Effect(effect) => match effect {
                Effect::Read | Effect::Write { .. } if !has_rados => {
                    if is_late && *effect == Effect::Read {
                        self.tell(host, Event::ReadFailed);
                    } else if is_late {
                        self.tell(host, Event::WriteFailed);
                        self.begin(host, What::Ghost(effect.clone()));
                    }
                    is_late
                }
                Effect::ProbeSession if !has_metadata => {
                    if is_late {
                        self.tell(host, Event::ProbeFailed);
                    }
                    is_late
                }
                Effect::Examine { .. } | Effect::Release { .. } | Effect::ReleaseOwn if !has_metadata => {
                    false
                }
                Effect::FindRecords { .. }
                | Effect::RemoveRecords { .. }
                | Effect::OpenRecords { .. }
                | Effect::AcceptReclaims { .. }
                    if !has_rados =>
                {
                    false
                }
                Effect::StartEnforcing | Effect::FallSilent | Effect::EndReclaims => self.stop(host, effect),
                effect => {
                    if let Some(answer) = self.perform(host, effect) {
                        self.begin(host, What::Answer(answer));
                    }
                    true
                }
            },
        }
    }

    /// Does what needs no more waiting, and returns the answer.
    fn perform(&mut self, host: usize, effect: &Effect) -> Option<Event> {
        let name = self.hosts[host].name.clone();
        let number = |name: &str| usize::from(name.as_bytes()[0] - b'a');
        let run = self.hosts[host].run.as_mut()?;
        Some(match effect {
            Effect::Read => {
                let mut found = self.object.clone();
                if let Some(mutation) = self.mutation {
                    found.database = mutation.view(&name, &found.database);
                }
                Event::Read(found)
            }
            Effect::Write { .. } => {
                let event = self.write(host, effect);
                if self.random.below(12) == 0 { Event::WriteFailed } else { event }
            }
            Effect::ProbeSession if self.sessions[run.session].is_alive => Event::SessionProbed,
            Effect::ProbeSession => Event::SessionLost,
            Effect::FindRecords { of, up_to } => {
                let found = !find(&self.records, number(of), *up_to).is_empty();
                if found && self.mutation == Some(Mutation::RecoverWithoutGrace) && *of == name {
                    // It evicts its former session and accepts reclaims at once.
                    let clients = find(&self.records, number(of), *up_to);
                    let notes = &self.object.database.notes[of];
                    notes.sessions.iter().for_each(|session| {
                        self.sessions[session.parse::<usize>().expect("a number")].end();
                    });
                    run.may_reclaim.extend(clients);
                    (run.accepts, run.reclaim_until) = (true, self.now + LEASE + 2);
                    return Some(Event::RecordsFound(false));
                }
                Event::RecordsFound(found)
            }
            Effect::RemoveRecords { of } => {
                if self.mutation != Some(Mutation::KeepLostRecords) {
                    self.records.retain(|(_, node), _| *node != number(of));
                }
                Event::RecordsRemoved
            }
            Effect::Examine { sessions } => {
                let is_marked =
                    |name: &String| self.sessions[name.parse::<usize>().expect("a number")].is_marked;
                let held = sessions.iter().all(is_marked) || self.mutation == Some(Mutation::BelieveHeld);
                Event::Examined(if held { Fate::Held } else { Fate::Lost })
            }
            Effect::Release { sessions } => {
                // The mount of a drained server that has released everything is left alone.
                for session in sessions {
                    let session = &mut self.sessions[session.parse::<usize>().expect("a number")];
                    if session.is_marked {
                        session.end();
                    }
                }
                Event::Released
            }
            Effect::ReleaseOwn => {
                let session = &mut self.sessions[run.session];
                session.is_marked = false;
                if self.mutation != Some(Mutation::UnmarkHeld) {
                    session.locks.clear();
                }
                Event::OwnReleased
            }
            Effect::OpenRecords { epoch, carry } => {
                if self.mutation == Some(Mutation::ForgetRecords) && *carry == Carry::Recorded {
                    run.records = Some(*epoch);
                    self.records.insert((*epoch, host), BTreeSet::new());
                    return Some(Event::RecordsOpened);
                }
                if self.mutation == Some(Mutation::KeepLostRecords) && *carry == Carry::Nothing {
                    let clients = find(&self.records, host, u64::MAX);
                    run.records = Some(*epoch);
                    self.records.insert((*epoch, host), clients);
                    return Some(Event::RecordsOpened);
                }
                let last = run.records.filter(|_| *carry == Carry::Recorded);
                let last = last.and_then(|last| self.records.get(&(last, host)));
                let clients = last.cloned().unwrap_or_default();
                run.before = run.records.filter(|_| *carry == Carry::Recorded);
                run.records = Some(*epoch);
                self.records.insert((*epoch, host), clients);
                Event::RecordsOpened
            }
            Effect::AcceptReclaims { of, up_to } => {
                let newest = self.mutation == Some(Mutation::ReclaimFromNewest);
                let up_to = if newest { u64::MAX } else { *up_to };
                let period = if self.mutation == Some(Mutation::ReclaimLate) { 0 } else { LEASE + 2 };
                (run.accepts, run.reclaim_until) = (true, self.now + period);
                for of in of {
                    run.may_reclaim.extend(find(&self.records, number(of), up_to));
                }
                Event::ReclaimsAccepted
            }
            Effect::TakeAddress { of } => {
                let moves = |other: &&mut Host| number(of) == other.address;
                self.hosts.iter_mut().filter(moves).for_each(|other| other.address = host);
                return None;
            }
            Effect::Resume { epoch } => {
                self.records.retain(|(of, node), _| *node != host || of >= epoch);
                return None;
            }
            _ => return None,
        })
    }

    /// Stops something, when what is running of it has ended.
    fn stop(&mut self, host: usize, effect: &Effect) -> bool {
        let number = self.hosts[host].run.as_ref().map(|run| run.number);
        let is_grant =
            |action: &Action| Some(action.run) == number && matches!(action.what, What::Grant { .. });
        let is_busy = self.actions.iter().any(is_grant) && !self.is(Mutation::EnforceEarly);
        let is_late = self.is(Mutation::ReclaimLate);
        let Some(run) = &mut self.hosts[host].run else { return true };
        let answer = match effect {
            Effect::StartEnforcing => Event::Enforcing,
            Effect::EndReclaims => {
                run.accepts = is_late;
                Event::ReclaimsEnded
            }
            _ => {
                run.is_loud = false;
                Event::Silent
            }
        };
        if !is_busy {
            self.begin(host, What::Answer(answer));
        }
        !is_busy
    }

    /// Compare-and-set of the object.
    fn write(&mut self, host: usize, effect: &Effect) -> Event {
        let Effect::Write { version, old, new } = effect else { return Event::WriteRefused };
        if *version != self.object.version && !self.is(Mutation::WriteBlindly) {
            return Event::WriteRefused;
        }
        let mut new = new.clone();
        if let Some(mutation) = self.mutation {
            mutation.written(&self.hosts[host].name, old, &mut new);
        }
        apply(&mut self.object.database, old, &new);
        self.changed();
        Event::Written { version: self.object.version }
    }

    /// The object has changed: notifies its watchers.
    fn changed(&mut self) {
        self.object.version += 1;
        for host in 0..self.hosts.len() {
            if self.random.below(10) >= self.lost && self.hosts[host].no_rados <= self.now {
                self.begin(host, What::Answer(Event::Notified));
            }
        }
    }

    fn suffer(&mut self, fault: &Fault) {
        let until = |ticks: &u64| self.now + ticks;
        match fault {
            Fault::Crash { node, down } => {
                if let Some(run) = self.hosts[*node].run.take() {
                    self.hosts[*node].start = Some(self.now + down);
                    self.sessions[run.session].heard = self.now;
                }
            }
            Fault::Stop { node, down } => {
                if let Some(run) = &self.hosts[*node].run {
                    let has_clients = !run.clients.is_empty() || !run.may_reclaim.is_empty();
                    self.hosts[*node].start = Some(self.now + down);
                    self.tell(*node, Event::Stop { has_clients });
                }
            }
            Fault::Cut { node, rados, metadata, clients, ticks } => {
                let (until, host) = (until(ticks), &mut self.hosts[*node]);
                for (cut, end) in [
                    (rados, &mut host.no_rados),
                    (metadata, &mut host.no_metadata),
                    (clients, &mut host.no_clients),
                ] {
                    if *cut {
                        *end = until.max(*end);
                    }
                }
            }
            Fault::Outage { ticks } => {
                let until = until(ticks);
                self.hosts.iter_mut().for_each(|host| host.no_rados = until.max(host.no_rados));
            }
            Fault::Slow { node, ticks } => self.hosts[*node].slow = until(ticks),
            Fault::Pause { client, ticks } => {
                let client = client % self.clients.len();
                self.clients[client].paused = until(ticks);
            }
            Fault::Drain { from, to } => {
                let (from, to) = (self.hosts[*from].name.clone(), self.hosts[*to].name.clone());
                if let Ok(new) = self.object.database.drain(&from, &to) {
                    self.object.database = new;
                    self.changed();
                }
            }
            Fault::Add => {
                let is_new = |host: &&mut Host| !self.object.database.nodes.contains_key(&host.name);
                let new = self.hosts.iter_mut().filter(|host| host.run.is_none()).find(is_new);
                if let Some(host) = new
                    && let Ok(database) = self.object.database.add(&host.name)
                {
                    host.start = Some(self.now + 1);
                    self.object.database = database;
                    self.changed();
                }
            }
        }
    }

    /// Ends all faults.
    fn repair(&mut self) {
        self.lost = 0;
        for host in &mut self.hosts {
            (host.no_rados, host.no_metadata, host.no_clients, host.slow) = (0, 0, 0, 0);
            if host.run.is_none() && self.object.database.nodes.contains_key(&host.name) {
                host.start.get_or_insert(self.now + 1);
            }
        }
        self.clients.iter_mut().for_each(|client| client.paused = 0);
    }

    /// Whether no grace period stands, all members give state, and all clients have theirs.
    fn is_well(&self) -> bool {
        let database = &self.object.database;
        let is_member = |host: usize| database.nodes.contains_key(&self.hosts[host].name);
        let serves = |host: usize| self.service(host) == Some(Service::Normal);
        let has_state = |client: &Client| {
            let run = self.hosts[self.hosts[client.home].address].run.as_ref();
            run.is_some_and(|run| client.run == Some(run.number))
        };
        !database.in_grace()
            && database.nodes.values().all(|flags| flags.0 == 0)
            && (0..self.hosts.len()).all(|host| !is_member(host) || serves(host))
            && self.clients.iter().all(has_state)
    }

    /// Whether a session gets the lock.
    pub fn try_lock(&mut self, session: usize, client: usize, file: u64) -> bool {
        let is_free = !self.sessions.iter().any(|session| session.locks.contains_key(&file));
        let session = &mut self.sessions[session];
        if is_free && session.is_alive {
            session.locks.insert(file, client);
        }
        is_free && session.is_alive
    }
}

impl Session {
    /// Its locks are free.
    fn end(&mut self) {
        (self.is_alive, self.is_marked) = (false, false);
        self.locks.clear();
    }
}

/// The clients in the newest records of a node.
fn find(records: &BTreeMap<(u64, usize), BTreeSet<usize>>, node: usize, up_to: u64) -> BTreeSet<usize> {
    let newest = records.keys().filter(|(epoch, of)| *of == node && *epoch <= up_to).max();
    newest.and_then(|newest| records.get(newest)).cloned().unwrap_or_default()
}

/// Applies to an object what differs between two contents.
fn apply(object: &mut Database, old: &Database, new: &Database) {
    if (old.current, old.recovery) != (new.current, new.recovery) {
        (object.current, object.recovery) = (new.current, new.recovery);
    }
    replace(&mut object.nodes, &old.nodes, &new.nodes);
    replace(&mut object.notes, &old.notes, &new.notes);
}

fn replace<V: Clone + PartialEq>(
    object: &mut BTreeMap<String, V>,
    old: &BTreeMap<String, V>,
    new: &BTreeMap<String, V>,
) {
    object.retain(|key, _| new.contains_key(key) || !old.contains_key(key));
    for (key, value) in new.iter().filter(|(key, value)| old.get(*key) != Some(value)) {
        object.insert(key.clone(), value.clone());
    }
}
