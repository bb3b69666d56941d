//! One server of the cluster, as a deterministic machine.
//!
//! What is to be done next follows from what the database was last seen to contain and from what this run has
//! done so far ([`Member::decide`] and the files beside this one). At most one answer is awaited at a time,
//! besides that of a read.
//!
//! The life of a run:
//!
//! 1. It looks for clients that may reclaim, and whether the filesystem still holds their state.
//! 2. With such clients it begins a grace period or joins one, waits until all nodes enforce, looks again,
//!    and releases the state that the filesystem holds. Then it accepts reclaims until all are done.
//! 3. It enforces until the grace period has ended, and gives state until the next one begins.
//! 4. When it stops, is drained or has lost contact, it falls silent. The filesystem holds its clients' state
//!    until all nodes enforce. Only then does it end.
//!
//! Invariants:
//! - A run gives state only while it is a member, E is clear and no grace period stands, in contents that it
//!   has read or written less than [`MemberConfig::vouch`] ago.
//! - E is written after the last operation that gives state has ended, and after the clients are recorded
//!   for the current epoch. Only a run that has given nothing yet writes it earlier, together with N.

mod contact;
mod ending;
mod former_clients;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::changes::ChangeRefused;
use crate::database::{Database, Flags, Versioned};
use crate::event::{Carry, Effect, Event, RestartReason, Service};
use contact::{Contact, RETRY_FRACTION};
use ending::RunEnd;
use former_clients::FormerClients;

/// A successor waits longer than `vouch` by this fraction of it: clocks run at different speeds.
const DRIFT_FRACTION: u32 = 8;

/// What a node is configured with.
#[derive(Debug, Clone)]
pub struct MemberConfig {
    /// The node's name in the database.
    pub node: String,
    /// This run's session with the filesystem's metadata server: without commas and line breaks.
    pub session: String,
    /// For how long the node gives and confirms state after it has last heard from RADOS, and from the
    /// metadata server. The same on all nodes. With a lease it must be shorter than the time after which the
    /// metadata server drops a session.
    pub vouch: Duration,
}

/// One server of the cluster.
#[derive(Debug)]
pub struct Member {
    config: MemberConfig,
    seen: Option<Versioned>,
    /// Reads of the database. Those count that have shown this node to be a member that isn't drained.
    reads: Contact,
    /// Requests to the metadata server in this run's session.
    probes: Contact,
    /// What was seen is out of date: nothing is decided before a read that is sent from then on.
    outdated: Option<Instant>,
    /// The version of a write of which nothing is known. It can still take effect while that is the version.
    uncertain: Option<u64>,
    task: Option<Task>,
    /// State is being given, or operations that give some are still running.
    gives: bool,
    /// Reclaims are being accepted.
    accepts: bool,
    /// All clients that may reclaim have done so.
    has_reclaimed: bool,
    /// Clients have been told by this run that they have state.
    has_served: bool,
    /// The epoch of this run's records.
    records: Option<u64>,
    /// The clients of this node's former runs and of nodes that it takes over, by node.
    claims: BTreeMap<String, FormerClients>,
    /// Since when all other nodes have been seen to enforce.
    others_enforce: Option<Instant>,
    /// Since when the nodes that are taken over have been seen not to have left the cluster.
    awaited: BTreeMap<String, Instant>,
    ending: Option<RunEnd>,
    /// Clients get no answers any more, and no request is running.
    is_silent: bool,
    /// This run holds no state for its clients any more.
    has_released: bool,
    has_ended: bool,
    effects: Vec<Effect>,
}

/// An effect whose answer is awaited.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Task {
    Write { sent: Instant, new: Database },
    FindRecords { of: String, up_to: u64 },
    RemoveRecords { of: String },
    Examine { of: String, enforced: bool },
    StartEnforcing,
    OpenRecords { epoch: u64 },
    Release,
    ReleaseOwn,
    AcceptReclaims { of: Vec<String> },
    EndReclaims,
    FallSilent,
}

impl Member {
    /// A new run. The first effect is a read.
    #[must_use]
    pub fn new(config: MemberConfig, now: Instant) -> Self {
        let claims = BTreeMap::from([(config.node.clone(), FormerClients::Unknown)]);
        let contact = || Contact::new(config.vouch, now);
        let mut node = Self {
            reads: contact(),
            probes: contact(),
            config,
            seen: None,
            outdated: None,
            uncertain: None,
            task: None,
            gives: false,
            accepts: false,
            has_reclaimed: false,
            has_served: false,
            records: None,
            claims,
            others_enforce: None,
            awaited: BTreeMap::new(),
            ending: None,
            is_silent: false,
            has_released: false,
            has_ended: false,
            effects: Vec::new(),
        };
        node.proceed(now);
        node
    }

    /// The effects since the last call, in order.
    #[must_use]
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// What the server may answer its clients now. It may become less without an event.
    #[must_use]
    pub fn service(&self, now: Instant) -> Service {
        let Some(seen) = &self.seen else { return Service::Grace };
        let is_member = seen.database.flags(&self.config.node).is_some();
        let is_drained = seen.database.is_taken_over(&self.config.node);
        if self.has_ended || self.ending.is_some() || !is_member || is_drained {
            return Service::Silent;
        }
        if self.has_served && !self.is_in_contact(now, self.config.vouch) {
            return Service::Silent;
        }
        if self.gives && !seen.database.in_grace() && self.is_in_contact(now, self.config.vouch / 2) {
            return Service::Normal;
        }
        Service::Grace
    }

    /// Whether RADOS and the metadata server have both answered a request that isn't older than `within`.
    fn is_in_contact(&self, now: Instant, within: Duration) -> bool {
        let heard = [self.reads.since(), self.probes.since()];
        heard.iter().all(|heard| heard.is_some_and(|heard| now < heard + within))
    }

    /// The database as last seen.
    #[must_use]
    pub const fn seen(&self) -> Option<&Versioned> {
        self.seen.as_ref()
    }

    /// The time at which [`Event::Tick`] is due, if no other event is reported before.
    #[must_use]
    pub fn next_tick(&self) -> Option<Instant> {
        let asked = [self.reads.next(), self.probes.next()];
        let heard = [self.reads.since(), self.probes.since()];
        let has_promised = self.has_served && self.ending.is_none();
        let lapse =
            heard.into_iter().flatten().filter(|_| has_promised).map(|heard| heard + self.config.vouch);
        let expelled = self.awaited.values().map(|since| *since + self.silence_of_others());
        let times = asked.into_iter().flatten().chain(lapse).chain(expelled);
        times.min().filter(|_| !self.has_ended)
    }

    /// Reports an event. Afterwards there may be effects.
    pub fn handle(&mut self, now: Instant, event: Event) {
        if self.has_ended {
            return;
        }
        // Before what is heard now can hide that nothing was heard for too long.
        self.lapse(now);
        match event {
            Event::Tick => {}
            Event::Notified => self.reads.ask_at(now),
            Event::Read(found) => self.read(now, found),
            Event::ReadFailed => self.reads.failed(now),
            Event::SessionProbed => {
                if let Some(sent) = self.probes.answered() {
                    self.probes.heard(sent);
                }
            }
            Event::ProbeFailed => self.probes.failed(now),
            Event::SessionLost => self.end(Effect::Restart(RestartReason::LostSession)),
            Event::Stop { has_clients } => {
                self.ending.get_or_insert(RunEnd::Stop { has_clients });
            }
            Event::Reclaimed => self.has_reclaimed |= self.accepts,
            answer => self.answered(now, answer),
        }
        self.proceed(now);
    }

    fn read(&mut self, now: Instant, found: Versioned) {
        let Some(sent) = self.reads.answered() else { return };
        if self.outdated.is_some_and(|since| sent >= since) {
            self.outdated = None;
        }
        self.see(now, sent, found);
    }

    /// Takes note of contents that the object had at `sent` or later.
    fn see(&mut self, now: Instant, sent: Instant, found: Versioned) {
        if self.seen.as_ref().is_some_and(|seen| seen.version > found.version) {
            return;
        }
        let node = &self.config.node;
        if found.database.flags(node).is_some() && !found.database.is_taken_over(node) {
            self.reads.heard(sent);
        }
        let enforces = |(of, flags): (&String, &Flags)| of == node || flags.enforces();
        let others_enforce = found.database.in_grace() && found.database.nodes.iter().all(enforces);
        self.others_enforce = others_enforce.then(|| self.others_enforce.unwrap_or(now));
        let awaited = found.database.predecessors(node).filter(|of| found.database.nodes.contains_key(*of));
        let since = |of: &str| self.awaited.get(of).copied().unwrap_or(now);
        self.awaited = awaited.map(|of| (of.to_owned(), since(of))).collect();
        self.seen = Some(found);
    }

    /// The answer to the task.
    fn answered(&mut self, now: Instant, answer: Event) {
        match (self.task.take(), answer) {
            (Some(Task::Write { sent, new }), Event::Written { version }) => {
                self.see(now, sent, Versioned { version, database: new });
            }
            (Some(Task::Write { .. }), Event::WriteRefused) => self.must_read(now, now),
            (Some(Task::Write { .. }), Event::WriteFailed) => {
                self.uncertain = self.seen.as_ref().map(|seen| seen.version);
                self.must_read(now, now + self.config.vouch / RETRY_FRACTION);
            }
            (Some(Task::FindRecords { of, up_to }), Event::RecordsFound(found)) => {
                if found {
                    self.claims.insert(of, FormerClients::Found { up_to });
                } else {
                    self.nothing_left(of, up_to);
                }
            }
            (Some(Task::RemoveRecords { of }), Event::RecordsRemoved) => self.nothing_left(of, u64::MAX),
            (Some(Task::Examine { of, enforced }), Event::Examined(fate)) => {
                self.claims.insert(of, FormerClients::examined(fate, enforced));
            }
            (Some(Task::StartEnforcing), Event::Enforcing) => self.gives = false,
            (Some(Task::OpenRecords { epoch }), Event::RecordsOpened) => self.records = Some(epoch),
            (Some(Task::Release), Event::Released) => self.released(),
            (Some(Task::ReleaseOwn), Event::OwnReleased) => self.has_released = true,
            (Some(Task::AcceptReclaims { of }), Event::ReclaimsAccepted) => self.accepted(of),
            (Some(Task::EndReclaims), Event::ReclaimsEnded) => self.reclaims_ended(),
            (Some(Task::FallSilent), Event::Silent) => {
                (self.gives, self.accepts, self.is_silent) = (false, false, true);
            }
            // Not the answer to this task.
            (task, _) => self.task = task,
        }
    }

    /// Nothing is decided before the database has been read again, at `at`.
    fn must_read(&mut self, now: Instant, at: Instant) {
        self.outdated = Some(now);
        self.reads.ask_at(at);
    }

    /// A run that has heard nothing for too long has fallen silent, and stays so.
    fn lapse(&mut self, now: Instant) {
        if self.has_served && !self.is_in_contact(now, self.config.vouch) {
            self.ending.get_or_insert(RunEnd::Restart(RestartReason::LostContact));
        }
    }

    /// Sends the requests that are due, and decides until an answer is awaited.
    fn proceed(&mut self, now: Instant) {
        if self.reads.must_ask(now) {
            self.effects.push(Effect::Read);
        }
        if self.probes.must_ask(now) {
            self.effects.push(Effect::ProbeSession);
        }
        while self.task.is_none() && self.outdated.is_none() && !self.has_ended {
            let Some(seen) = self.seen.take() else { break };
            let decided = self.decide(now, &seen);
            self.seen = Some(seen);
            if !decided {
                break;
            }
        }
    }

    /// Decides what to do next, from what was seen. Returns whether there is more to decide.
    fn decide(&mut self, now: Instant, seen: &Versioned) -> bool {
        let database = &seen.database;
        let node = self.config.node.clone();
        if self.uncertain.is_some_and(|version| seen.version <= version) {
            // Once the version has changed, what was seen isn't changed by an earlier write.
            return self.write(now, seen, Ok(database.clone()));
        }
        if self.ending.is_some() || database.is_taken_over(&node) {
            return self.decide_ending(now, seen);
        }
        let Some(flags) = database.flags(&node) else {
            self.end(Effect::Leave);
            return false;
        };
        if !self.is_in_contact(now, self.config.vouch) {
            return false;
        }
        if self.contradicts(database) {
            self.ending = Some(RunEnd::Restart(RestartReason::Contradiction));
            return true;
        }
        if database.in_grace() && self.gives {
            return self.begin(Task::StartEnforcing, Effect::StartEnforcing);
        }
        if self.decide_claims(now, seen) {
            return true;
        }
        if self.is_looking() {
            return false;
        }
        let is_recorded = self.records == Some(database.current);
        if database.in_grace() {
            if !flags.enforces() || (self.records.is_some() && !is_recorded) {
                return match is_recorded {
                    false => self.open_records(database.current),
                    true => self.write(now, seen, Database::enforce(database, &node)),
                };
            }
            return flags.needs_grace() && database.all_enforce() && self.decide_recovery(now, seen);
        }
        if self.gives {
            return false;
        }
        if !is_recorded {
            return self.open_records(database.current);
        }
        let session = &self.config.session;
        let sessions = database.notes.get(&node).map(|notes| notes.sessions.as_slice());
        if flags.enforces() || sessions != Some(std::slice::from_ref(session)) {
            return self.write(now, seen, database.resume(&node, session));
        }
        (self.gives, self.has_served) = (true, true);
        self.effects.push(Effect::Resume { epoch: database.current });
        true
    }

    /// Whether the database has changed in a way that no node changes it.
    fn contradicts(&self, database: &Database) -> bool {
        let flags = database.flags(&self.config.node).unwrap_or_default();
        let epoch = self.records.filter(|_| self.gives);
        let next = u64::from(database.in_grace());
        flags.enforces() && self.gives
            || epoch.is_some_and(|epoch| database.current != epoch + next)
            || self.accepts && !(database.in_grace() && flags.needs_grace())
    }

    /// How long a node that was not heard of is waited for until it has fallen silent.
    fn silence_of_others(&self) -> Duration {
        self.config.vouch + self.config.vouch / DRIFT_FRACTION
    }

    /// Ends this run with its last effect.
    fn end(&mut self, effect: Effect) {
        self.has_ended = true;
        self.effects.push(effect);
    }

    fn open_records(&mut self, epoch: u64) -> bool {
        let carry = if self.records.is_some() { Carry::Recorded } else { Carry::Nothing };
        self.begin(Task::OpenRecords { epoch }, Effect::OpenRecords { epoch, carry })
    }

    /// Writes a change that follows from what was seen. One that isn't permitted is decided again when the
    /// contents change.
    fn write(&mut self, now: Instant, seen: &Versioned, change: Result<Database, ChangeRefused>) -> bool {
        let Ok(new) = change else { return false };
        let (version, old) = (seen.version, seen.database.clone());
        self.begin(Task::Write { sent: now, new: new.clone() }, Effect::Write { version, old, new })
    }

    fn begin(&mut self, task: Task, effect: Effect) -> bool {
        self.task = Some(task);
        self.effects.push(effect);
        true
    }
}
