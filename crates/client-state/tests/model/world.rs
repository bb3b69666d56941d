//! The client, the server, and the rules.

use client_state::{ByteRange, DelegationKind, LockKind, Share, Tested};

use crate::events::Event;
use crate::host::Host;
use crate::mutations::Mutation;
use crate::server::{LEASE, Server};

pub const FILES: u32 = 2;
pub const OWNERS: u8 = 2;
pub const BYTES: u64 = 4;
/// Steps until everything is done, far more than are needed.
const MAX_STEPS: usize = 1000;

pub struct World {
    host: Host,
    server: Server,
    /// Applications use delegations. Otherwise they use deny modes.
    has_delegations: bool,
}

impl World {
    pub fn new(has_delegations: bool, mutation: Option<Mutation>) -> Self {
        Self { host: Host::new(mutation), server: Server::new(has_delegations), has_delegations }
    }

    pub const fn has_lost_state(&self) -> bool {
        self.host.has_lost_state
    }

    pub fn take(&mut self, event: &Event) {
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
            Event::Settle => self.settle_and_check(),
            Event::Reconnect(loses_requests) => host.reconnect(server, loses_requests),
            Event::Abandon(which) => host.abandon(which),
            Event::GiveUp => host.give_up(),
            Event::LoseSession => host.lose_session(server),
            Event::BreakSession => host.break_session(server),
            Event::End => {
                self.drain();
                self.host.end();
            }
            Event::Restart => server.restart(),
            Event::RestartClient => host.restart(),
            Event::RestartRival => server.restart_rival(),
            Event::Wait(milliseconds) => server.wait(milliseconds),
            Event::Pause(milliseconds) => {
                server.wait(milliseconds);
                self.drain();
            }
            Event::LoseRecalls => server.lose_recalls(),
            Event::Rival(file, share) => {
                if server.open_by_rival(file, share) {
                    self.check_rival(file, share);
                }
            }
            Event::RivalCloses => server.close_by_rival(),
            Event::Recall(which) => host.recall(server, which),
            Event::RecallAny(kinds) => host.recall_any(kinds),
            Event::RivalLocks(file, range, kind) => {
                if server.lock_by_rival(file, range, kind) == Some(true) {
                    let mut bytes = range.first..=range.last;
                    assert!(!bytes.any(|byte| host.relies_on_lock(server, file, byte, kind)));
                }
            }
        }
        self.host.run(&self.server);
        self.check_lease();
    }

    /// What the client relies on is the server's.
    fn check_lease(&self) {
        if self.host.is_lease_valid(&self.server) {
            assert!(self.server.has_lease());
            self.host.held_locks().for_each(|id| assert!(self.server.has_state(id), "{id:?}"));
        }
    }

    /// The client, which has heard from the server, believes in no state that the server doesn't have. What
    /// was given or revoked during a test is found by the next.
    fn settle_and_check(&mut self) {
        let before = self.server.now;
        (0..3).for_each(|_| self.settle());
        if self.server.now == before {
            self.host.state_ids().into_iter().for_each(|id| assert!(self.server.has_state(id), "{id:?}"));
        }
    }

    /// What the rival has opened conflicts with nothing that the host relies on.
    fn check_rival(&self, file: u32, share: Share) {
        for app in self.host.apps.values().filter(|app| *app.open.file() == file) {
            let conflicts = app.share.access & share.deny != 0 || app.share.deny & share.access != 0;
            assert!(!conflicts || !self.host.relies_on(&self.server, app), "{:?} {share:?}", app.open);
        }
    }

    /// The client has a session, and everything arrives.
    fn settle(&mut self) {
        self.host.renew();
        self.drain();
    }

    /// Everything arrives. Only reopening and grace periods take time.
    fn drain(&mut self) {
        for step in 0..MAX_STEPS {
            self.host.run(&self.server);
            self.check_lease();
            if self.host.is_idle() && self.server.recalls.is_empty() {
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

    /// A client whose messages arrive has a valid lease, and no delegation that was recalled.
    pub fn check_punctuality(&self) {
        assert!(self.host.is_lease_valid(&self.server));
        (0..FILES).for_each(|file| assert!(!self.host.is_recalled(&self.server, file), "{file}"));
    }

    /// A client that comes back in time has everything back.
    pub fn check_reclaims(&mut self) {
        assert_eq!(self.host.opens.take_lost(), []);
        assert_eq!(self.host.locks.take_lost(), []);
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
                // An owner that has no locks tests the range.
                let tested = self.host.locks.test(&file, &OWNERS, range, kind);
                assert_eq!(matches!(tested, Tested::Conflict(..)), relies, "{file} {byte} {kind:?}");
            }
        }
    }

    /// After all the server has what the applications have open, and no more.
    pub fn check(&mut self) {
        self.server.close_by_rival();
        (0..8).for_each(|which| self.host.io(which));
        self.settle_and_check();
        self.host.recall_any(&[DelegationKind::Read, DelegationKind::Write]);
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
        assert_eq!((self.server.sessions(), self.server.faulty_sessions()), (1, 0));
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
        self.host.end();
        self.drain();
        assert_eq!(self.server.sessions(), 0);
    }
}
