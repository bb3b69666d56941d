//! The engine: the tables of all state, the bounds, and the clock.
//!
//! Each table keeps invariants of its own behind private fields. The engine composes the tables, and only its
//! methods change more than one of them.

use std::hash::Hash;

use fairness::Peer;

use crate::accounts::Accounts;
use crate::client_table::{ClientRecord, ClientTable};
use crate::cooldown::Cooldowns;
use crate::delegation_table::DelegationTable;
use crate::denied_opens::DeniedOpens;
use crate::effects::Effects;
use crate::expired_ids::ExpiredIds;
use crate::file_table::FileTable;
use crate::lock_queue::LockQueues;
use crate::lock_table::LockTable;
use crate::open_table::OpenTable;
use crate::recovery::Recovery;
use crate::session_table::SessionTable;
use crate::sessions::{ChannelAttrs, MIN_FORE_CHANNEL};

/// Milliseconds on a clock that only goes forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Time(pub u64);

impl Time {
    /// `milliseconds` later.
    #[must_use]
    pub const fn plus(self, milliseconds: u64) -> Self {
        Self(self.0.saturating_add(milliseconds))
    }
}

/// A source of random numbers that can't be guessed: the ids of clients, sessions and states are made of
/// them.
pub type Random = Box<dyn FnMut() -> u64 + Send>;

/// The bounds. Those that aren't one client's or one owner's are shared by peer.
#[derive(Debug, Clone)]
pub struct EngineLimits {
    /// Clients, courtesy clients among them.
    pub clients: usize,
    /// Sessions of a client.
    pub sessions: usize,
    /// States of a client: opens, locks and delegations.
    pub states: usize,
    /// States of all clients, and the ranges of lock owners.
    pub all: usize,
    /// Descriptors that the caller keeps open: one for each file that is open or delegated, one for each lock
    /// owner on a file, and two for each delegation.
    pub descriptors: usize,
    /// Delegations of all clients.
    pub delegations: usize,
    /// Delegations of one client.
    pub client_delegations: usize,
    /// Ranges of one lock owner on one file.
    pub ranges: usize,
    /// Waiters for locks.
    pub waiting: usize,
    /// Bytes of all sessions with full reply caches.
    pub replies: u64,
    /// The largest fore channel of a session.
    pub channel: ChannelAttrs,
}

impl EngineLimits {
    /// A server's bounds (docs/operations.md lists them), but for two that depend on it: it has no
    /// descriptors here, and the smallest channel.
    pub const DEFAULT: Self = Self {
        clients: 16_384,
        sessions: 64,
        states: 262_144,
        all: 1 << 20,
        descriptors: 0,
        delegations: 16_384,
        client_delegations: 4096,
        ranges: 4096,
        waiting: 16_384,
        replies: 1 << 30,
        channel: MIN_FORE_CHANNEL,
    };
}

/// The number of states of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StateCounts {
    /// Opens.
    pub opens: usize,
    /// Lock owners on files.
    pub locks: usize,
    /// Delegations.
    pub delegations: usize,
}

/// The configuration of an engine.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// The number of this run of the server: another in each run.
    pub boot: u32,
    /// The length of a lease in milliseconds.
    pub lease: u64,
    /// How long a courtesy client keeps its state after its lease has expired, in milliseconds.
    pub courtesy: u64,
    /// For how long a file isn't delegated after a delegation of it was revoked, nor any file to the peer
    /// that didn't return it, in milliseconds.
    pub distrust: u64,
    /// The bounds.
    pub limits: EngineLimits,
}

/// All state of all clients. `K` names a file, `L` is what the caller keeps for a lock owner or a delegation.
pub struct Engine<K, L> {
    pub(crate) config: EngineConfig,
    pub(crate) random: Random,
    pub(crate) clients: ClientTable,
    pub(crate) sessions: SessionTable,
    pub(crate) files: FileTable<K>,
    pub(crate) opens: OpenTable<K>,
    pub(crate) locks: LockTable<K, L>,
    pub(crate) delegations: DelegationTable<K, L>,
    pub(crate) lock_queues: LockQueues<K, L>,
    /// OPENs that other clients' opens refused a short time ago.
    pub(crate) denied_opens: DeniedOpens<K>,
    /// Files whose delegations were in the way of other clients.
    pub(crate) contended: Cooldowns<K>,
    /// Peers that were late to return a delegation.
    pub(crate) distrusted: Cooldowns<Peer>,
    /// The last time when no client could be asked to return delegations.
    pub(crate) recall_any_failed: Option<Time>,
    pub(crate) accounts: Accounts,
    pub(crate) recovery: Recovery,
    pub(crate) expired_ids: ExpiredIds,
    /// No client is ended because its lease has expired.
    keeps_expired: bool,
    pub(crate) effects: Effects<K, L>,
}

/// After the server was stopped, what would end otherwise lasts this fraction of a lease at least: time for
/// the requests in the sockets' queues.
const RESUME_FRACTION: u64 = 8;

impl<K: Clone + Eq + Hash, L: Default> std::fmt::Debug for Engine<K, L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (clients, sessions, states) = self.counts();
        f.debug_struct("Engine")
            .field("clients", &clients)
            .field("sessions", &sessions)
            .field("files", &self.files.len())
            .field("states", &states)
            .finish_non_exhaustive()
    }
}

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// An engine without clients. The `recovered` clients, which the last run had recorded, may reclaim
    /// until `grace_ends`, and up to a lease longer while they are at it. As long as there are any no client
    /// gets new state.
    #[must_use]
    pub fn new(
        config: EngineConfig,
        random: Random,
        recovered: impl IntoIterator<Item = ClientRecord>,
        grace_ends: Time,
    ) -> Self {
        Self {
            accounts: Accounts::new(&config.limits),
            recovery: Recovery::new(recovered, grace_ends, config.lease),
            lock_queues: LockQueues::new(config.limits.waiting),
            config,
            random,
            clients: ClientTable::default(),
            sessions: SessionTable::default(),
            files: FileTable::default(),
            denied_opens: DeniedOpens::default(),
            opens: OpenTable::default(),
            locks: LockTable::default(),
            delegations: DelegationTable::default(),
            contended: Cooldowns::default(),
            distrusted: Cooldowns::default(),
            recall_any_failed: None,
            expired_ids: ExpiredIds::default(),
            keeps_expired: false,
            effects: Effects::default(),
        }
    }

    /// The effects of what was decided since the last call.
    pub fn take_effects(&mut self, now: Time) -> Effects<K, L> {
        self.begin_turns_on_changed_files(now);
        std::mem::take(&mut self.effects)
    }

    /// To be called every few seconds. Ends the clients whose time is up, revokes the delegations that should
    /// have been returned, and ends the grace period when it is over.
    pub fn tick(&mut self, now: Time) {
        if !self.keeps_expired {
            self.end_idle_clients(now);
            self.end_courtesy_if_short(now);
        }
        self.revoke_overdue(now);
        self.end_grace_if_over(now);
        self.forget_idle_clients(now);
        self.end_overdue_turns(now);
        self.contended.forget(now);
        self.distrusted.forget(now);
    }

    /// While `keeps`, no client is ended because its lease has expired: the server answers no calls, so that
    /// clients can't renew.
    pub const fn keep_expired(&mut self, keeps: bool) {
        self.keeps_expired = keeps;
    }

    /// The server has run until `since` and runs again from `now` on, on a clock that hardly went on between.
    /// A client whose lease hadn't expired has a whole lease again: its renewals may be on their way, or in a
    /// queue behind others' requests. Recalled delegations may be returned, and clients may reclaim, for an
    /// eighth of a lease at least. A lease that had expired before stays so.
    pub fn resumed(&mut self, since: Time, now: Time) {
        let lease = self.config.lease;
        for client in self.clients.iter_mut().filter(|client| !client.is_expired(since, lease)) {
            client.renewed = client.renewed.max(now);
        }
        let until = now.plus(lease / RESUME_FRACTION);
        self.delegations.postpone_revocations(until);
        self.recovery.postpone_end(since, until);
    }

    /// Whether any open denies access to others.
    #[must_use]
    pub const fn denies(&self) -> bool {
        self.opens.has_denials()
    }

    /// Whether local processes may open files without [`Engine::grant`]: not while an open denies access to
    /// others, nor while such an open may be reclaimed, which would exclude nothing.
    #[must_use]
    pub fn permits_uncounted_opens(&mut self, now: Time) -> bool {
        self.end_grace_if_over(now);
        !self.denies() && !self.in_grace(now)
    }

    /// The number of clients, sessions and states.
    #[must_use]
    pub fn counts(&self) -> (usize, usize, usize) {
        let states = self.opens.len() + self.locks.len() + self.delegations.len();
        (self.clients.len(), self.sessions.len(), states)
    }

    /// The number of states of each kind.
    #[must_use]
    pub fn state_counts(&self) -> StateCounts {
        StateCounts { opens: self.opens.len(), locks: self.locks.len(), delegations: self.delegations.len() }
    }

    /// The bounds.
    #[must_use]
    pub const fn limits(&self) -> &EngineLimits {
        &self.config.limits
    }

    /// The length of a lease in milliseconds.
    #[must_use]
    pub const fn lease(&self) -> u64 {
        self.config.lease
    }
}
