//! A client's state meets the server's, without a socket: messages are delayed, lost, repeated and
//! reordered, sessions are lost, the server restarts, and leases expire.

extern crate samehost_client_state as client_state;

mod host;
mod server;

use client_state::{ByteRange, LockKind, Share};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use crate::host::Host;
use crate::server::{LEASE, Server};

const FILES: u32 = 2;
const OWNERS: u8 = 2;
const BYTES: u64 = 4;
/// Steps until everything is done, far more than are needed.
const MAX_STEPS: usize = 1000;

#[derive(Debug, Clone)]
enum Event {
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
    Reconnect,
    Abandon(usize),
    DestroySession,
    Restart,
    Wait(u64),
    Rival(u32, Share),
    RivalCloses,
    /// A CB_RECALL arrives.
    Recall(usize),
    /// The client returns all delegations.
    ReturnAll,
    RivalLocks(u32, ByteRange, LockKind),
}

struct World {
    host: Host,
    server: Server,
    /// Applications use delegations. Otherwise they use deny modes.
    has_delegations: bool,
}

impl World {
    fn new(has_delegations: bool) -> Self {
        let mut world = Self { host: Host::new(), server: Server::new(has_delegations), has_delegations };
        world.settle();
        world
    }

    fn take(&mut self, event: &Event) {
        let Self { host, server, .. } = self;
        match *event {
            Event::Open(owner, file, share) => {
                let deny = if self.has_delegations { 0 } else { share.deny };
                host.open(server, owner, file, Share { deny, ..share });
            }
            Event::Close(which) => host.close(which),
            Event::Io(which) => host.io(which),
            Event::Lock(which, range) => host.lock(which, range),
            Event::Unlock(which, range) => host.unlock(which, range),
            Event::Interrupt => host.interrupt(),
            Event::Deliver(which, again) => host.deliver(server, which, again),
            Event::Reply(which) => host.receive(which),
            Event::Settle => self.settle(),
            Event::Reconnect => host.reconnect(server),
            Event::Abandon(which) => host.abandon(which),
            Event::DestroySession => host.destroy_session(server),
            Event::Restart => server.restart(),
            Event::Wait(milliseconds) => server.wait(milliseconds),
            Event::Rival(file, share) => {
                if server.open_by_rival(file, share) {
                    self.check_rival(file, share);
                }
            }
            Event::RivalCloses => server.close_by_rival(),
            Event::Recall(which) => host.recall(server, which),
            Event::ReturnAll => host.return_all(),
            Event::RivalLocks(file, range, kind) => {
                if server.lock_by_rival(file, range, kind) == Some(true) {
                    let mut bytes = range.first..=range.last;
                    assert!(!bytes.any(|byte| host.relies_on_lock(server, file, byte, kind)));
                }
            }
        }
        self.host.run(&mut self.server);
    }

    /// What the rival has opened conflicts with nothing that the host relies on.
    fn check_rival(&self, file: u32, share: Share) {
        for app in self.host.apps.values().filter(|app| *app.open.file() == file) {
            let conflicts = app.share.access & share.deny != 0 || app.share.deny & share.access != 0;
            assert!(!conflicts || !self.host.relies_on(&self.server, app), "{:?} {share:?}", app.open);
        }
    }

    /// Everything arrives. Only reopening and grace periods take time.
    fn settle(&mut self) {
        self.host.renew();
        for step in 0..MAX_STEPS {
            self.host.run(&mut self.server);
            if self.host.is_idle() {
                return;
            }
            self.host.deliver(&mut self.server, step, false);
            self.host.receive(step);
            self.host.recall(&mut self.server, step);
            if step % 50 == 49 {
                self.server.wait(LEASE / 4);
            }
        }
        panic!("the client doesn't come to rest");
    }

    /// The server has the locks that applications have, and no others.
    fn check_locks(&mut self) {
        for file in 0..FILES {
            for (byte, kind) in (0..BYTES).flat_map(|byte| [(byte, LockKind::Read), (byte, LockKind::Write)])
            {
                let range = ByteRange { first: byte, last: byte };
                let could = self.server.lock_by_rival(file, range, kind);
                let relies = self.host.relies_on_lock(&self.server, file, byte, kind);
                assert!(could.is_none_or(|could| could != relies), "{file} {byte} {kind:?} {could:?}");
            }
        }
    }

    /// After all the server has what the applications have open, and no more.
    fn check(&mut self) {
        self.server.close_by_rival();
        (0..8).for_each(|which| self.host.io(which));
        self.settle();
        self.host.return_all();
        self.settle();
        assert_eq!(self.host.delegations.state_ids().count(), 0);
        let has_lost = !self.host.opens.take_lost().is_empty();
        assert!(self.host.has_lost_state || self.host.locks.take_lost().is_empty());
        let live = |host: &Host| -> Vec<(u32, u8, Share)> {
            let live = host.apps.values().filter(|app| host.opens.io_id(&app.open).is_ok());
            live.map(|app| (*app.open.file(), *app.open.owner(), app.share)).collect()
        };
        let live = live(&self.host);
        assert!(has_lost || live.len() == self.host.apps.len());
        assert!(!has_lost || self.host.has_lost_state);
        let mut states: Vec<_> = live.iter().map(|(file, owner, _)| (file, owner)).collect();
        states.sort_unstable();
        states.dedup();
        assert_eq!(self.server.states(), states.len() + self.host.locks.state_ids().count());
        self.check_locks();
        for file in 0..FILES {
            for (access, deny) in [(1, 0), (2, 0), (1, 1), (1, 2)] {
                let on = || live.iter().filter(|(on, ..)| *on == file).map(|(_, _, share)| share);
                let denied = on().any(|share| share.access & deny != 0 || share.deny & access != 0);
                assert_eq!(
                    self.server.open_by_rival(file, Share { access, deny }),
                    !denied,
                    "{file}: {live:?}"
                );
                self.server.close_by_rival();
            }
        }
        while !self.host.apps.is_empty() {
            self.host.close(0);
        }
        self.settle();
        assert_eq!(self.server.states(), 0);
    }
}

fn share() -> impl Strategy<Value = Share> {
    (1_u8..4, prop_oneof![4 => Just(0_u8), 1 => 1_u8..4]).prop_map(|(access, deny)| Share { access, deny })
}

fn bytes() -> impl Strategy<Value = ByteRange> {
    (0..BYTES, 0..BYTES).prop_map(|(one, two)| ByteRange { first: one.min(two), last: one.max(two) })
}

/// What applications and the network do.
fn ordinary() -> BoxedStrategy<Event> {
    prop_oneof![
        6 => (0..OWNERS, 0..FILES, share()).prop_map(|(owner, file, share)| Event::Open(owner, file, share)),
        5 => any::<usize>().prop_map(Event::Close),
        3 => any::<usize>().prop_map(Event::Io),
        5 => (any::<usize>(), bytes()).prop_map(|(which, range)| Event::Lock(which, range)),
        2 => (any::<usize>(), bytes()).prop_map(|(which, range)| Event::Unlock(which, range)),
        1 => Just(Event::Interrupt),
        1 => Just(Event::ReturnAll),
        10 => (any::<usize>(), prop::bool::weighted(0.1))
            .prop_map(|(which, again)| Event::Deliver(which, again)),
        8 => any::<usize>().prop_map(Event::Reply),
        1 => Just(Event::Settle),
        1 => Just(Event::Reconnect),
        1 => any::<usize>().prop_map(Event::Abandon),
    ]
    .boxed()
}

/// The same, with everything that can go wrong.
fn eventful() -> BoxedStrategy<Event> {
    prop_oneof![
        20 => ordinary(),
        1 => Just(Event::DestroySession),
        1 => Just(Event::Restart),
        1 => (1..LEASE / 4).prop_map(Event::Wait),
        1 => (LEASE / 2..4 * LEASE).prop_map(Event::Wait),
        2 => (0..FILES, share()).prop_map(|(file, share)| Event::Rival(file, share)),
        1 => Just(Event::RivalCloses),
        2 => any::<usize>().prop_map(Event::Recall),
        2 => (0..FILES, bytes(), prop_oneof![Just(LockKind::Read), Just(LockKind::Write)])
            .prop_map(|(file, range, kind)| Event::RivalLocks(file, range, kind)),
    ]
    .boxed()
}

/// The same cases in every run, unless the environment says how many others.
fn config() -> ProptestConfig {
    let cases = std::env::var("SAMEHOST_MODEL_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig {
        cases: cases.unwrap_or(256),
        rng_seed: if cases.is_some() { RngSeed::Random } else { RngSeed::Fixed(1) },
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]
    #[test]
    fn the_server_has_what_applications_have(
        has_delegations in any::<bool>(),
        events in prop::collection::vec(ordinary(), 1..80),
    ) {
        let mut world = World::new(has_delegations);
        events.iter().for_each(|event| world.take(event));
        world.check();
        prop_assert!(!world.host.has_lost_state);
    }

    #[test]
    fn nothing_is_lost_without_being_reported(
        has_delegations in any::<bool>(),
        events in prop::collection::vec(eventful(), 1..120),
    ) {
        let mut world = World::new(has_delegations);
        events.iter().for_each(|event| world.take(event));
        world.check();
    }

    /// A client that comes back in time has everything back, however often the server restarts.
    #[test]
    fn no_reclaim_is_lost(
        has_delegations in any::<bool>(),
        rounds in prop::collection::vec((prop::collection::vec(ordinary(), 1..30), any::<bool>()), 1..5),
    ) {
        let mut world = World::new(has_delegations);
        for (events, destroys) in rounds {
            events.iter().for_each(|event| world.take(event));
            world.take(if destroys { &Event::DestroySession } else { &Event::Restart });
            let before = world.host.apps.len();
            world.settle();
            prop_assert!(world.host.apps.len() >= before);
            prop_assert_eq!(world.host.opens.take_lost(), []);
            prop_assert_eq!(world.host.locks.take_lost(), []);
        }
        world.check();
    }
}
