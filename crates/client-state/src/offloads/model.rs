//! A client's asynchronous copies meet a server's: messages are lost, repeated and reordered, callers stop
//! waiting, and the server restarts.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

const fn id(number: u8) -> StateId {
    StateId { seqid: 1, other: [number; 12] }
}

/// A server whose state ids begin again after a restart. Each copy has a number that no other has.
#[derive(Debug, Default)]
struct CopyingServer {
    last_id: u8,
    last_copy: u32,
    /// By file and id: the copy, and whether it has ended.
    copies: BTreeMap<(u8, u8), (u32, bool)>,
}

/// A caller that waits for a copy.
struct Waiter {
    offload: OffloadRef<u8>,
    copy: u32,
}

#[derive(Debug, Clone)]
enum Event {
    /// The client sends a COPY to this file.
    Send(u8),
    /// A COPY arrives at the server.
    Execute(Index),
    /// The reply arrives, or nobody waits for it any more.
    Reply(Index, bool),
    End(Index),
    /// A callback arrives, and perhaps again later.
    CallBack(Index, bool),
    LoseCallback(Index),
    Wait(u64),
    /// A caller does what is to be done.
    Step(Index),
    Cancel(Index),
    ReplaceSession,
    Restart,
}

fn event() -> impl Strategy<Value = Event> {
    let index = any::<Index>;
    prop_oneof![
        4 => (0..2_u8).prop_map(Event::Send),
        4 => index().prop_map(Event::Execute),
        4 => (index(), prop::bool::weighted(0.9)).prop_map(|(at, is_awaited)| Event::Reply(at, is_awaited)),
        4 => index().prop_map(Event::End),
        4 => (index(), any::<bool>()).prop_map(|(at, again)| Event::CallBack(at, again)),
        1 => index().prop_map(Event::LoseCallback),
        3 => (0..20_000_u64).prop_map(Event::Wait),
        6 => index().prop_map(Event::Step),
        1 => index().prop_map(Event::Cancel),
        1 => Just(Event::ReplaceSession),
        1 => Just(Event::Restart),
    ]
}

/// The client, its callers, the server, and the messages on their way.
struct World {
    offloads: Offloads<u8, u32>,
    server: CopyingServer,
    now: Instant,
    session: u64,
    /// COPYs on their way to the server, with their files.
    requests: Vec<(StartingCopy<u8>, u8)>,
    /// Replies: the COPY, the id, the copy, the session.
    replies: Vec<(StartingCopy<u8>, StateId, u32, u64)>,
    /// CB_OFFLOADs: the file, the id, the copy.
    callbacks: Vec<(u8, u8, u32)>,
    waiters: Vec<Waiter>,
    /// The copies whose ends were learned.
    learned: Vec<u32>,
}

impl World {
    fn new() -> Self {
        let now = Instant::now();
        let mut offloads = Offloads::new(None);
        offloads.recover(1, now);
        Self {
            offloads,
            server: CopyingServer::default(),
            now,
            session: 1,
            requests: Vec::new(),
            replies: Vec::new(),
            callbacks: Vec::new(),
            waiters: Vec::new(),
            learned: Vec::new(),
        }
    }

    /// The server's copy of this name.
    fn key(offload: &OffloadRef<u8>) -> (u8, u8) {
        (*offload.file(), offload.id().other[0])
    }

    fn execute(&mut self, at: usize) {
        let (starting, file) = self.requests.swap_remove(at);
        self.server.last_id += 1;
        self.server.last_copy += 1;
        let (number, copy) = (self.server.last_id, self.server.last_copy);
        self.server.copies.insert((file, number), (copy, false));
        self.replies.push((starting, id(number), copy, self.session));
    }

    fn reply(&mut self, at: usize, is_awaited: bool) {
        let (starting, id, copy, session) = self.replies.swap_remove(at);
        let offload = self.offloads.started(starting, id, session, self.now).expect("ids are used once");
        if is_awaited {
            self.waiters.push(Waiter { offload, copy });
        } else {
            self.finish(&Waiter { offload, copy });
        }
    }

    fn call_back(&mut self, at: usize, again: bool) {
        let (file, number, copy) = if again { self.callbacks[at] } else { self.callbacks.swap_remove(at) };
        match self.offloads.ended(file, id(number), copy) {
            EndAnswer::Taken => drop(self.server.copies.remove(&(file, number))),
            EndAnswer::Unknown => {}
            EndAnswer::Later => self.callbacks.push((file, number, copy)),
        }
    }

    /// A caller stops waiting. What it cancels is its own copy.
    fn finish(&mut self, waiter: &Waiter) {
        if self.offloads.finish(&waiter.offload)
            && let Some((copy, _)) = self.server.copies.remove(&Self::key(&waiter.offload))
        {
            assert_eq!(copy, waiter.copy, "another's copy is cancelled");
        }
    }

    /// A caller does what is to be done about its copy.
    fn step(&mut self, at: usize) {
        let waiter = &self.waiters[at];
        match self.offloads.step(&waiter.offload, self.now) {
            OffloadStep::Wait(until) => {
                assert!(until > self.now && until <= self.now + MAX_PAUSE);
                return;
            }
            OffloadStep::Ask => {
                let answer = match self.server.copies.get(&Self::key(&waiter.offload)) {
                    Some((copy, true)) => OffloadAnswer::Ended(*copy),
                    Some((copy, false)) => OffloadAnswer::Running((*copy).into()),
                    None => OffloadAnswer::Unknown,
                };
                self.offloads.asked(&waiter.offload, self.now, answer);
                return;
            }
            OffloadStep::Ended(copy) => {
                assert_eq!(copy, waiter.copy, "another copy's end");
                self.learned.push(copy);
            }
            OffloadStep::Lost { copied } => assert!(copied == 0 || copied == u64::from(waiter.copy)),
            OffloadStep::Inconclusive { .. } | OffloadStep::Stalled => panic!("the server answers"),
        }
        let waiter = self.waiters.swap_remove(at);
        self.finish(&waiter);
    }

    fn take(&mut self, event: Event) {
        let some = |at: Index, len: usize| (len > 0).then(|| at.index(len));
        match event {
            Event::Send(file) => self.requests.push((self.offloads.starting(file), file)),
            Event::Execute(at) => {
                if let Some(at) = some(at, self.requests.len()) {
                    self.execute(at);
                }
            }
            Event::Reply(at, is_awaited) => {
                if let Some(at) = some(at, self.replies.len()) {
                    self.reply(at, is_awaited);
                }
            }
            Event::End(at) => {
                let copies: Vec<_> = self.server.copies.keys().copied().collect();
                if let Some(at) = some(at, copies.len()) {
                    self.end(copies[at]);
                }
            }
            Event::CallBack(at, again) => {
                if let Some(at) = some(at, self.callbacks.len()) {
                    self.call_back(at, again);
                }
            }
            Event::LoseCallback(at) => {
                if let Some(at) = some(at, self.callbacks.len()) {
                    self.callbacks.swap_remove(at);
                }
            }
            Event::Wait(millis) => self.now += Duration::from_millis(millis),
            Event::Step(at) => {
                if let Some(at) = some(at, self.waiters.len()) {
                    self.step(at);
                }
            }
            Event::Cancel(at) => {
                if let Some(at) = some(at, self.waiters.len()) {
                    let waiter = self.waiters.swap_remove(at);
                    self.finish(&waiter);
                }
            }
            Event::ReplaceSession => {
                self.session += 1;
                // The back channel refuses what is of another session.
                self.callbacks.clear();
                self.offloads.doubt(self.now);
            }
            Event::Restart => {
                self.session += 1;
                self.callbacks.clear();
                (self.server.copies, self.server.last_id) = (BTreeMap::new(), 0);
                self.offloads.recover(self.session, self.now);
            }
        }
        assert!(self.offloads.early.len() <= MAX_EARLY_ENDS);
    }

    fn end(&mut self, (file, number): (u8, u8)) {
        if let Some((copy, has_ended @ false)) = self.server.copies.get_mut(&(file, number)) {
            *has_ended = true;
            self.callbacks.push((file, number, *copy));
        }
    }

    /// All that is on its way arrives, except for callbacks: every caller learns how its copy has ended, or
    /// that it is lost.
    fn settle(&mut self) {
        while !self.requests.is_empty() {
            self.execute(0);
        }
        while !self.replies.is_empty() {
            self.reply(0, true);
        }
        let copies: Vec<_> = self.server.copies.keys().copied().collect();
        copies.into_iter().for_each(|copy| self.end(copy));
        for _ in 0..3 {
            for at in (0..self.waiters.len()).rev() {
                self.step(at);
            }
            self.now += MAX_PAUSE;
        }
        assert_eq!(self.waiters.len(), 0, "they still wait");
        assert_eq!((self.offloads.copies.len(), self.offloads.early.len()), (0, 0));
        let learned = self.learned.len();
        self.learned.sort_unstable();
        self.learned.dedup();
        assert_eq!(self.learned.len(), learned, "two callers have the same copy");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    /// Callbacks come before and after the reply, never, and repeatedly; callers stop waiting, the server
    /// restarts and uses its ids again. Every caller learns the end of its own copy, or that it is lost.
    #[test]
    fn every_caller_learns_what_became_of_its_copy(events in prop::collection::vec(event(), 1..120)) {
        let mut world = World::new();
        events.into_iter().for_each(|event| world.take(event));
        world.settle();
    }
}
