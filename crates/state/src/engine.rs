//! The engine: all tables, and what they are bounded by.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::Hash;

use fairness::Peer;

use crate::accounts::Accounts;
use crate::by_owner::ByOwner;
use crate::client::Client;
use crate::contention::NotLent;
use crate::effects::Effects;
use crate::ended::Ended;
use crate::files::{File, State};
use crate::grace::Grace;
use crate::ids::{ClientId, SessionId};
use crate::names::{Name, Named};
use crate::owners::StateOwner;
use crate::session::{ChannelAttrs, Session};
use crate::waiting::Waiting;

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

/// A source of random numbers, which nobody else can guess: clients, sessions and states are named by them.
pub type Random = Box<dyn FnMut() -> u64 + Send>;

/// How much of everything. What isn't one client's or one owner's is shared by peer.
#[derive(Debug, Clone)]
pub struct EngineLimits {
    /// Clients, courtesy clients among them.
    pub clients: usize,
    /// A client's sessions.
    pub sessions: usize,
    /// A client's opens, locks and delegations (state ids) together.
    pub states: usize,
    /// Those of all clients, and the ranges that lock owners hold.
    pub all: usize,
    /// Files that the caller keeps open: one for each file that clients have open or delegated, one for each
    /// lock owner on a file, and two for each delegation.
    pub descriptors: usize,
    /// Delegations of all clients.
    pub delegations: usize,
    /// Delegations of one client.
    pub client_delegations: usize,
    /// Ranges that one lock owner holds on one file.
    pub ranges: usize,
    /// Owners that wait for locks.
    pub waiting: usize,
    /// Bytes that all sessions may come to if their clients fill their reply caches.
    pub replies: u64,
    /// The most that a session gets.
    pub channel: ChannelAttrs,
}

/// What an engine is told at the beginning.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// The number of this run of the server: another in each run.
    pub boot: u32,
    /// How long a client may be silent, in milliseconds.
    pub lease: u64,
    /// How long after its lease a client keeps its state if nobody wants it, in milliseconds.
    pub courtesy: u64,
    /// For how long a file isn't lent after a delegation of it was taken away, nor anything to a peer that
    /// let it be, in milliseconds.
    pub distrust: u64,
    /// Bounds.
    pub limits: EngineLimits,
}

/// All state of all clients.
pub struct Engine<K, L> {
    pub(crate) config: EngineConfig,
    pub(crate) random: Random,
    pub(crate) clients: HashMap<ClientId, Client>,
    /// Clients by what they call themselves, and from where.
    pub(crate) named: HashMap<Name, Named>,
    /// Confirmed clients by their [`crate::instance`].
    pub(crate) instances: HashMap<Vec<u8>, ClientId>,
    pub(crate) sessions: HashMap<SessionId, Session>,
    /// What each peer holds.
    pub(crate) accounts: Accounts,
    /// Files with state.
    pub(crate) files: HashMap<K, File>,
    pub(crate) states: HashMap<u64, State<K, L>>,
    pub(crate) by_owner: ByOwner,
    /// Opens that deny something to others.
    pub(crate) denials: usize,
    /// How many states are delegations for reading, and for writing.
    pub(crate) delegated: [usize; 2],
    /// When there was last nobody who could be asked to give delegations back.
    pub(crate) nobody_to_ask: Option<Time>,
    /// Those that were recalled, by when they are taken away.
    pub(crate) recalled: BTreeSet<(Time, u64)>,
    /// All of them, by whom they were given to.
    pub(crate) lent_to: BTreeSet<(Peer, u64)>,
    /// Files that delegations were in somebody's way of.
    pub(crate) contended: NotLent<K>,
    /// Peers that were late to return one.
    pub(crate) distrusted: NotLent<Peer>,
    /// Who waits for locks.
    pub(crate) waiting: Waiting<K, L>,
    /// The opens that 4.0's owners closed with their last requests: a retry of the CLOSE names them.
    pub(crate) closed: HashMap<u64, (ClientId, StateOwner)>,
    /// What NFSv4.0's clients had when they ended.
    pub(crate) ended: Ended,
    pub(crate) grace: Grace,
    /// The clients on stable storage, by their [`crate::instance`].
    pub(crate) recorded: HashSet<Vec<u8>>,
    pub(crate) effects: Effects<K, L>,
}

impl<K, L> std::fmt::Debug for Engine<K, L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("clients", &self.clients.len())
            .field("sessions", &self.sessions.len())
            .field("files", &self.files.len())
            .field("states", &self.states.len())
            .finish_non_exhaustive()
    }
}

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// Without clients. `recovered` are the instances that the last run remembered: while any of them may
    /// still reclaim, until `grace_ends` nobody gets new state, and while they are at it for another lease at
    /// most.
    #[must_use]
    pub fn new(
        config: EngineConfig,
        random: Random,
        recovered: impl IntoIterator<Item = Vec<u8>>,
        grace_ends: Time,
    ) -> Self {
        let recorded: HashSet<Vec<u8>> = recovered.into_iter().collect();
        let (lease, accounts) = (config.lease, Accounts::new(&config.limits));
        let waiting = Waiting::new(config.limits.waiting);
        Self {
            config,
            accounts,
            random,
            clients: HashMap::new(),
            named: HashMap::new(),
            instances: HashMap::new(),
            sessions: HashMap::new(),
            files: HashMap::new(),
            states: HashMap::new(),
            by_owner: ByOwner::default(),
            denials: 0,
            delegated: [0; 2],
            nobody_to_ask: None,
            recalled: BTreeSet::new(),
            lent_to: BTreeSet::new(),
            contended: NotLent::default(),
            distrusted: NotLent::default(),
            waiting,
            closed: HashMap::new(),
            ended: Ended::default(),
            grace: Grace::new(recorded.clone(), grace_ends, lease),
            recorded,
            effects: Effects::default(),
        }
    }

    /// What has to be done because of what was decided since the last time.
    pub fn take_effects(&mut self, now: Time) -> Effects<K, L> {
        self.begin_all_turns(now);
        std::mem::take(&mut self.effects)
    }

    /// Whether any open denies something to others.
    #[must_use]
    pub const fn denies(&self) -> bool {
        self.denials > 0
    }

    /// How many clients, sessions and state ids there are.
    #[must_use]
    pub fn counts(&self) -> (usize, usize, usize) {
        (self.clients.len(), self.sessions.len(), self.states.len())
    }

    /// The length of a lease in milliseconds.
    #[must_use]
    pub const fn lease(&self) -> u64 {
        self.config.lease
    }
}
