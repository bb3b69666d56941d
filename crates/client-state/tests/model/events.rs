//! What happens: to applications, to the network, to the server, to other clients.

use client_state::{ByteRange, DelegationKind, LockKind, Share};
use proptest::prelude::*;

use crate::mutations::Mutation;
use crate::server::LEASE;
use crate::world::{BYTES, FILES, OWNERS, World};

/// What a CB_RECALL_ANY is about.
pub const KINDS: [&[DelegationKind]; 3] =
    [&[DelegationKind::Read], &[DelegationKind::Write], &[DelegationKind::Read, DelegationKind::Write]];

#[derive(Debug, Clone)]
pub enum Event {
    Open(u8, u32, Share),
    Close(usize),
    Io(usize),
    Lock(usize, ByteRange),
    Unlock(usize, ByteRange),
    /// Applications don't wait for locks any more.
    Interrupt,
    /// A message arrives, and perhaps again later.
    Deliver(usize, bool),
    Reply(usize),
    /// Messages and replies arrive until nothing is on its way.
    Settle,
    /// Whether requests on their way are lost.
    Reconnect(bool),
    Abandon(usize),
    /// The call of a step of the state manager is made again, as another one.
    GiveUp,
    /// The session ends at the server.
    LoseSession,
    /// The session is of no use any more.
    BreakSession,
    /// The client ends after everything has arrived. The next request makes another session.
    End,
    Restart,
    RestartClient,
    RestartRival,
    /// Time passes, and nothing arrives.
    Wait(u64),
    /// Time passes, and then everything arrives.
    Pause(u64),
    Rival(u32, Share),
    RivalCloses,
    /// A CB_RECALL arrives.
    Recall(usize),
    /// CB_RECALLs don't arrive any more.
    LoseRecalls,
    /// The client returns all delegations of these kinds.
    RecallAny(&'static [DelegationKind]),
    RivalLocks(u32, ByteRange, LockKind),
}

/// What holds during a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// The client loses nothing.
    Nothing,
    /// Nothing is lost that can be reclaimed.
    Reclaimed,
    /// What is lost is reported.
    Reported,
}

/// A history.
#[derive(Debug, Clone)]
pub struct History {
    pub expected: Expected,
    pub has_delegations: bool,
    pub events: Vec<Event>,
}

impl History {
    /// Runs it. Panics if it violates a rule.
    pub fn run(&self, mutation: Option<Mutation>) {
        let mut world = World::new(self.has_delegations, mutation);
        for event in &self.events {
            world.take(event);
            match (self.expected, event) {
                (Expected::Nothing, Event::Pause(_)) => world.check_punctuality(),
                (Expected::Reclaimed, Event::Settle) => world.check_reclaims(),
                _ => {}
            }
        }
        world.check();
        assert!(self.expected != Expected::Nothing || !world.has_lost_state());
    }
}

/// Histories of these events.
fn histories(expected: Expected, event: BoxedStrategy<Event>, most: usize) -> impl Strategy<Value = History> {
    (any::<bool>(), prop::collection::vec(event, 1..most))
        .prop_map(move |(has_delegations, events)| History { expected, has_delegations, events })
}

fn share() -> impl Strategy<Value = Share> {
    (1_u8..4, prop_oneof![4 => Just(0_u8), 1 => 1_u8..4]).prop_map(|(access, deny)| Share { access, deny })
}

fn bytes() -> impl Strategy<Value = ByteRange> {
    (0..BYTES, 0..BYTES).prop_map(|(one, two)| ByteRange { first: one.min(two), last: one.max(two) })
}

/// What applications and the network do.
fn daily() -> BoxedStrategy<Event> {
    prop_oneof![
        6 => (0..OWNERS, 0..FILES, share()).prop_map(|(owner, file, share)| Event::Open(owner, file, share)),
        5 => any::<usize>().prop_map(Event::Close),
        3 => any::<usize>().prop_map(Event::Io),
        5 => (any::<usize>(), bytes()).prop_map(|(which, range)| Event::Lock(which, range)),
        2 => (any::<usize>(), bytes()).prop_map(|(which, range)| Event::Unlock(which, range)),
        1 => Just(Event::Interrupt),
        1 => prop::sample::select(KINDS.to_vec()).prop_map(Event::RecallAny),
        10 => (any::<usize>(), prop::bool::weighted(0.1))
            .prop_map(|(which, again)| Event::Deliver(which, again)),
        8 => any::<usize>().prop_map(Event::Reply),
        1 => Just(Event::Settle),
        1 => any::<bool>().prop_map(Event::Reconnect),
        1 => any::<usize>().prop_map(Event::Abandon),
    ]
    .boxed()
}

/// The end of sessions, and what is done about that.
fn ends() -> BoxedStrategy<Event> {
    prop_oneof![
        Just(Event::LoseSession),
        Just(Event::BreakSession),
        Just(Event::Restart),
        Just(Event::End),
        Just(Event::GiveUp),
    ]
    .boxed()
}

/// What the rival does, and what the server does because of that.
fn rival() -> BoxedStrategy<Event> {
    prop_oneof![
        2 => (0..FILES, share()).prop_map(|(file, share)| Event::Rival(file, share)),
        1 => Just(Event::RivalCloses),
        2 => any::<usize>().prop_map(Event::Recall),
        2 => (0..FILES, bytes(), prop_oneof![Just(LockKind::Read), Just(LockKind::Write)])
            .prop_map(|(file, range, kind)| Event::RivalLocks(file, range, kind)),
        1 => Just(Event::RestartRival),
    ]
    .boxed()
}

/// Nothing goes wrong but on the network.
pub fn ordinary() -> impl Strategy<Value = History> {
    histories(Expected::Nothing, daily(), 80)
}

/// Sessions end, and the server restarts, but no time passes.
pub fn recovering() -> impl Strategy<Value = History> {
    histories(Expected::Reclaimed, prop_oneof![12 => daily(), 1 => ends()].boxed(), 120)
}

/// Time passes.
pub fn punctual() -> impl Strategy<Value = History> {
    let event = prop_oneof![8 => daily(), 1 => rival(), 2 => (1..LEASE / 4).prop_map(Event::Pause)];
    histories(Expected::Nothing, event.boxed(), 80)
}

/// The client isn't told of recalls, and delegations are revoked.
pub fn unreachable() -> impl Strategy<Value = History> {
    let event = prop_oneof![
        12 => daily(),
        5 => rival(),
        1 => Just(Event::Settle),
        2 => (LEASE / 8..LEASE / 2).prop_map(Event::Wait),
        4 => (LEASE / 8..LEASE / 2).prop_map(Event::Pause),
    ];
    histories(Expected::Reported, event.boxed(), 120).prop_map(|history| {
        let first = [Event::Settle, Event::LoseRecalls];
        let events = first.into_iter().chain(history.events).collect();
        History { has_delegations: true, events, ..history }
    })
}

/// Everything goes wrong.
pub fn eventful() -> impl Strategy<Value = History> {
    let event = prop_oneof![
        20 => daily(),
        4 => ends(),
        1 => Just(Event::RestartClient),
        1 => Just(Event::LoseRecalls),
        1 => (1..LEASE / 4).prop_map(Event::Wait),
        1 => (LEASE / 2..4 * LEASE).prop_map(Event::Wait),
        1 => (1..LEASE / 4).prop_map(Event::Pause),
        8 => rival(),
    ];
    histories(Expected::Reported, event.boxed(), 120)
}
