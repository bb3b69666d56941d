//! The client: the parts of the crate put together as a client uses them, with applications, and a network
//! that delays, loses and repeats messages.
//!
//! `applications` has what those do, `requests` the requests of sessions, and `steps` the steps of the state
//! manager.

mod applications;
mod requests;
mod steps;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use client_state::{Delegations, Locks, OpenRef, Opens, SessionError, Share, SlotTable, StateManager, Step};
use state::{Error, SessionId};

use crate::messages::{Call, Message, Reply};
use crate::mutations::Mutation;
use crate::server::{LEASE, Server};
use requests::{Sent, Task};

/// An application's open file.
pub struct App {
    pub open: OpenRef<u32, u8>,
    pub share: Share,
    /// Its READs, WRITEs and LOCKs that aren't done.
    io: u32,
}

/// A call outside of a session.
struct Asked {
    message: Message,
    reply: Option<Result<Reply, Error>>,
}

pub struct Host {
    start: Instant,
    /// How often the client has restarted.
    restarts: u8,
    pub manager: StateManager,
    pub opens: Opens<u32, u8>,
    /// An open owner is a process, which is a lock owner, too.
    pub locks: Locks<u32, u8>,
    pub delegations: Delegations<u32>,
    is_testing: bool,
    /// A state that was tested is bad.
    has_found: bool,
    /// The client id of the last session.
    client: u64,
    /// The session's number and id, and its slots.
    session: Option<(u64, SessionId, SlotTable)>,
    /// The call of the state manager's step.
    asked: Option<(Step, Asked)>,
    /// The calls at the client's end, in turn. One is on its way.
    farewells: Vec<Call>,
    farewell: Option<Asked>,
    /// The client has ended. The next request makes another session.
    is_ended: bool,
    /// The last losses that opens and locks were reclaimed for.
    losses: (u64, u64),
    /// Tasks with their numbers. One that is sent again after its session was lost at the server has another
    /// number: it may be executed twice.
    queue: Vec<(u64, Task)>,
    sent: Vec<Sent>,
    network: Vec<Message>,
    pub apps: BTreeMap<u64, App>,
    last_number: u64,
    /// The server has lost what the client had.
    pub has_lost_state: bool,
    mutation: Option<Mutation>,
    /// What the mutations need: how often a step's call was repeated, the last sending of a SEQUENCE that has
    /// succeeded, the time when something was sent last, whether one reclaim was skipped, and replies of
    /// sessions that were lost.
    repetitions: u32,
    last_sequence: Option<Instant>,
    last_run: Instant,
    has_skipped: bool,
    late: Vec<Sent>,
}

impl Host {
    pub fn new(mutation: Option<Mutation>) -> Self {
        let start = Instant::now();
        Self {
            start,
            restarts: 0,
            manager: StateManager::new(Duration::from_millis(LEASE)),
            opens: Opens::default(),
            locks: Locks::default(),
            delegations: Delegations::default(),
            is_testing: false,
            has_found: false,
            client: 0,
            session: None,
            asked: None,
            farewells: Vec::new(),
            farewell: None,
            is_ended: false,
            losses: (0, 0),
            queue: Vec::new(),
            sent: Vec::new(),
            network: Vec::new(),
            apps: BTreeMap::new(),
            last_number: 0,
            has_lost_state: false,
            mutation,
            repetitions: 0,
            last_sequence: None,
            last_run: start,
            has_skipped: false,
            late: Vec::new(),
        }
    }

    /// The client restarts, and knows nothing any more. What it has sent is on its way still.
    pub fn restart(&mut self) {
        *self = Self {
            start: self.start,
            restarts: self.restarts + 1,
            network: std::mem::take(&mut self.network),
            last_number: self.last_number,
            ..Self::new(self.mutation)
        };
    }

    pub fn now(&self, server: &Server) -> Instant {
        self.start + Duration::from_millis(server.now.0)
    }

    /// Whether the client makes this mistake.
    fn mistakes(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// A new task.
    fn push(&mut self, task: Task) {
        let number = self.number();
        self.queue.push((number, task));
    }

    /// A message arrives, and perhaps again later.
    pub fn deliver(&mut self, server: &mut Server, which: usize, again: bool) {
        if self.network.is_empty() {
            return;
        }
        let at = which % self.network.len();
        let message = if again { self.network[at] } else { self.network.swap_remove(at) };
        let reply = server.receive(&message);
        let sent = self.sent.iter_mut().map(|sent| (sent.message.number, &mut sent.reply));
        let asked = self.asked.iter_mut().map(|(_, asked)| asked).chain(&mut self.farewell);
        let mut waiting = sent.chain(asked.map(|asked| (asked.message.number, &mut asked.reply)));
        if let Some((_, waits)) = waiting.find(|(number, _)| *number == message.number) {
            // The first reply to arrive.
            waits.get_or_insert(reply);
        }
    }

    /// A reply arrives.
    pub fn receive(&mut self, which: usize) {
        let sent: Vec<_> = (0..self.sent.len()).filter(|at| self.sent[*at].reply.is_some()).collect();
        let has_asked = self.asked.as_ref().is_some_and(|(_, asked)| asked.reply.is_some());
        let has_farewell = self.farewell.as_ref().is_some_and(|asked| asked.reply.is_some());
        let replied = sent.len() + usize::from(has_asked) + usize::from(has_farewell);
        match which.checked_rem(replied) {
            None => {}
            Some(which) if which < sent.len() => self.request_answered(sent[which]),
            Some(which) if which == sent.len() && has_asked => self.step_answered(),
            Some(_) => self.farewell_answered(),
        }
    }

    /// The connections are lost, and with them replies, and requests or not: everything is sent again.
    pub fn reconnect(&mut self, server: &Server, loses_requests: bool) {
        if loses_requests {
            self.network.clear();
        }
        if self.mistakes(Mutation::RepeatInAnotherSlot) {
            self.move_requests();
        }
        let asked = self.asked.iter_mut().map(|(_, asked)| asked).chain(&mut self.farewell);
        let asked = asked.map(|asked| (asked.message, &mut asked.reply));
        for (message, reply) in asked.chain(self.sent.iter_mut().map(|sent| (sent.message, &mut sent.reply)))
        {
            *reply = None;
            self.network.push(message);
        }
        self.manager.disconnected(self.now(server));
    }

    /// The call of a step isn't waited for any longer, but made again.
    pub fn give_up(&mut self) {
        if self.asked.take().is_some() {
            self.repetitions += 1;
        }
    }

    /// A request that finds out whether the server still has the session.
    pub fn renew(&mut self) {
        self.push(Task::Renew);
    }

    /// The session ends at the server. Not while an OPEN is on its way: if the server had executed it, and
    /// then refused its repetition, no request could close what it has opened.
    pub fn lose_session(&mut self, server: &mut Server) {
        if let Some((_, session, _)) = self.session.as_ref().filter(|_| !self.is_opening()) {
            server.lose_session(*session);
        }
    }

    /// The session gets a fault.
    pub fn break_session(&mut self, server: &mut Server) {
        if let Some((_, session, _)) = &self.session {
            server.break_session(*session);
        }
    }

    /// The client ends: its session and its client id are destroyed, unless an OPEN is on its way. The next
    /// request makes others.
    pub fn end(&mut self) {
        if !self.manager.is_ready() || self.is_opening() {
            return;
        }
        let Some((number, session, _)) = self.session.take() else { return };
        self.manager.failed(number, SessionError::StaleClientId);
        self.requeue_sent(true);
        self.is_ended = true;
        self.farewells = vec![Call::DestroyClientid(self.client), Call::DestroySession(session)];
        if self.mistakes(Mutation::KeepSessionAtEnd) {
            self.farewells.pop();
        }
        self.farewell = None;
        self.say_farewell();
    }

    /// Whether everything is done: nothing waits, and the server has had a request lately.
    pub fn is_idle(&self) -> bool {
        let is_established = self.asked.is_none() && (self.manager.is_ready() || self.is_ended);
        let is_done = self.queue.is_empty() && self.sent.is_empty() && self.farewell.is_none();
        is_established && is_done && self.network.is_empty()
    }

    /// Takes the steps of the state manager that can be taken, and sends what can be sent.
    pub fn run(&mut self, server: &Server) {
        let now = self.now(server);
        self.last_run = now;
        if self.manager.is_ready() {
            self.believe_late_replies();
        }
        self.take_changes();
        self.is_ended &= self.queue.is_empty();
        while !self.is_ended && self.take_step(now) {
            self.take_changes();
        }
        self.send(now);
        // An application's close doesn't need to be sent, and leads to a CLOSE.
        self.take_changes();
        self.send(now);
    }
}
