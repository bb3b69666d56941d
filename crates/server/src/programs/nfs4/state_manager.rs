//! The one engine of a server, behind its lock; what it wants done is done when the lock is dropped.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fairness::LogLimit;
use parking_lot::Mutex;
use state::{
    AccessKind, BlockedWaiter, ChannelAttrs, ClientId, Effects, Engine, EngineConfig, EngineLimits, Error,
    OpenRequest, PendingLock, RecallTimeout, StateId, Time,
};
use store::{FileHandle, Held, Lease, Leases, OwnChange};

use super::callbacks::{self, CallbackState, Callbacks, MAX_DELEGATIONS};
use super::clock::{Clock, Look};
use super::copies::Copies;
use super::granted_attributes::GrantedAttributes;
use super::inherited::{self, KeptLocks};
use super::limits::{MAX_CACHED_REPLY, MAX_OPERATIONS, MAX_REPLY, MAX_REQUEST};
use super::lock_file::{LockFile, OwnerLocks, file_lock};
use super::records::{Records, Recovered};
use crate::lifecycle::lock_store::LockStore;

/// What is kept open for a state on a file, and goes with it.
#[derive(Debug, Default)]
pub(crate) struct StateResources {
    /// A lock owner's locks in the kernel, from the first on.
    pub locks: Mutex<Option<OwnerLocks>>,
    /// What keeps local processes out for a delegation.
    pub lease: OnceLock<Lease>,
    /// For a delegation for writing, what its holder's locks are made on.
    leased: OnceLock<Arc<LockFile>>,
    /// The file's attributes when a write delegation was granted.
    pub granted: OnceLock<GrantedAttributes>,
}

impl StateResources {
    /// What the holder of a delegation for writing makes its locks on, while that keeps local processes out.
    pub(super) fn leased(&self, kept: Option<&KeptLocks>) -> Option<&Arc<LockFile>> {
        let file = self.lease.get()?.only_file()?;
        Some(self.leased.get_or_init(|| {
            let stored = kept.and_then(|kept| kept.keep(inherited::SHARED, &file));
            LockFile::new(file, true, stored)
        }))
    }
}

/// All state of NFSv4's clients.
pub(crate) type StateEngine = Engine<FileHandle, StateResources>;

/// How long after its lease a client keeps its state if nobody wants it.
const COURTESY: Duration = Duration::from_secs(24 * 3600);
/// How often the engine is told the time at least, as long as there are calls.
const TICK: u64 = 1000;
/// How long a client has to return what a local process waits for. The kernel lets that one in after 45 s
/// (the default of `/proc/sys/fs/lease-break-time`). Whose user could write to the file could do worse to it
/// than hold it up; whose user may only read it has nothing to send before it returns the delegation.
const LOCAL_RECALL_TIMEOUT: RecallTimeout = RecallTimeout { writers: 40_000, readers: 10_000 };
/// How long a file isn't lent after a delegation of it was taken away, nor anything to a peer that let it be,
/// in milliseconds.
const DISTRUST: u64 = 3_600_000;
/// How many of those who wait for locks are looked at in one second, whether a local process has what they
/// wait for.
const MOST_LOOKED_AT: usize = 1024;

/// Bounds (docs/operations.md has them).
const LIMITS: EngineLimits = EngineLimits {
    clients: 16_384,
    sessions: 64,
    states: 262_144,
    all: 1 << 20,
    // The server is told how many it has.
    descriptors: 0,
    delegations: MAX_DELEGATIONS,
    client_delegations: MAX_DELEGATIONS / 4,
    ranges: 4096,
    waiting: 16_384,
    replies: 1 << 30,
    channel: ChannelAttrs {
        request: MAX_REQUEST,
        response: MAX_REPLY,
        cached: MAX_CACHED_REPLY,
        operations: MAX_OPERATIONS,
        slots: 64,
    },
};

/// Behind the lock.
struct LockedEngine {
    engine: StateEngine,
    clock: Clock,
    /// When the engine was told the time last.
    ticked: Time,
    /// The files that are open, so that they stay when their names go; as long as the engine knows of them.
    held: HashMap<FileHandle, Held>,
}

/// The engine, its clock and who the server says it is.
pub(crate) struct StateManager {
    engine: Mutex<LockedEngine>,
    /// Whether any open denies something to others: asked without the lock.
    denies: AtomicBool,
    /// Clients that may reclaim after a restart. Locked before the engine is let go of: entries are made and
    /// taken out in the order in which it was decided.
    records: Mutex<Option<Box<dyn Records>>>,
    /// On stable storage stands a longer lease than clients get now; until those of the last run are back or
    /// given up.
    promised_more: AtomicBool,
    start: Instant,
    /// How many delegations there are for reading, and for writing: asked by everybody, so without the lock.
    /// Whoever is too early to see a delegation meets its kernel lease.
    delegated: [AtomicUsize; 2],
    /// What keeps local processes out of delegated files; none where there is no thread for it.
    pub leases: OnceLock<Leases>,
    /// Who keeps locks when this process is gone, if anybody does.
    pub kept_locks: OnceLock<KeptLocks>,
    /// Calls to the clients.
    pub callbacks: Callbacks,
    /// Copies under way.
    pub copies: Copies,
    /// `so_major_id` and `eir_server_scope`.
    pub identity: [u8; 16],
    /// The length of a lease.
    pub lease: Duration,
    /// When it began, in nanoseconds since 1970: the pseudo directories' change attribute.
    pub since: u64,
}

impl StateManager {
    /// Without clients. What they have open, locked and delegated may cost so many `descriptors`. `identity`
    /// must be the same after a restart, and `records` too: who is `recovered` from them may reclaim for a
    /// lease's time.
    ///
    /// # Errors
    /// When there are no threads to be had for callbacks and leases.
    pub(crate) fn new(
        identity: [u8; 16],
        lease: Duration,
        descriptors: usize,
        records: Option<Box<dyn Records>>,
        recovered: Recovered,
    ) -> std::io::Result<Arc<Self>> {
        let millis = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
        let config = EngineConfig {
            boot: random() as u32,
            lease: millis,
            courtesy: COURTESY.as_millis() as u64,
            distrust: DISTRUST,
            limits: EngineLimits { descriptors, ..LIMITS },
        };
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let since = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        // Clients hear of the restart when they next renew the lease that they were promised (RFC 8881
        // section 8.4.2.1).
        let grace = recovered.lease.map_or(lease, |promised| promised.max(lease));
        let grace_ends = Time(u64::try_from(grace.as_millis()).unwrap_or(u64::MAX));
        let mut engine = Engine::new(config, Box::new(random), recovered.owners, grace_ends);
        if !recovered.damaged.is_empty() {
            engine.recovered_incompletely();
        }
        if recovered.lease.is_none_or(|promised| promised < lease) {
            promise(&records, lease);
        }
        let (callbacks, queue) = Callbacks::new(lease);
        let states = Arc::new(Self {
            engine: Mutex::new(LockedEngine {
                engine,
                clock: Clock::default(),
                ticked: Time::default(),
                held: HashMap::new(),
            }),
            denies: AtomicBool::new(false),
            start: Instant::now(),
            delegated: Default::default(),
            leases: OnceLock::new(),
            kept_locks: OnceLock::new(),
            callbacks,
            copies: Copies::default(),
            identity,
            lease,
            since,
            promised_more: AtomicBool::new(grace > lease),
            records: Mutex::new(records),
        });
        let weak = Arc::downgrade(&states);
        callbacks::start(weak, queue)?;
        let told = Arc::downgrade(&states);
        let leases = Leases::start(move |file, writes| {
            if let Some(states) = told.upgrade() {
                states
                    .run(|engine, now| engine.recall_for_local_open(now, file, writes, LOCAL_RECALL_TIMEOUT));
            }
        })?;
        let _ = states.leases.set(leases);
        Ok(states)
    }

    /// Has locks kept for the time when this process is gone, and takes over those of the last one.
    pub(crate) fn keep_locks(&self, store: Arc<LockStore>) {
        let _ = self.kept_locks.set(KeptLocks::new(store));
    }

    /// The owner of a lock, by a name that it has after a restart, too.
    pub(super) fn name_of(&self, begun: &PendingLock<StateResources>) -> u64 {
        self.run(|engine, _| {
            engine
                .lock_owner(begun)
                .map_or(inherited::SHARED, |(client, owner)| inherited::owner(client, owner))
        })
    }

    /// This process ends, and leaves its locks to the next one.
    pub(crate) fn leave_locks(&self) {
        if let Some(kept) = self.kept_locks.get() {
            kept.leave();
        }
    }

    /// Asks or tells the engine something.
    pub(crate) fn run<T>(&self, with: impl FnOnce(&mut StateEngine, Time) -> T) -> T {
        self.run_holding(|engine, _, now| with(engine, now))
    }

    /// OPEN: the file stays as long as it is open, held by `hold` if it isn't yet.
    pub(super) fn open(
        &self,
        request: &OpenRequest<'_, FileHandle>,
        hold: impl FnOnce() -> Option<Held>,
    ) -> std::result::Result<StateId, state::Error> {
        self.run_holding(|engine, held, now| {
            let id = engine.open(now, request)?;
            if !held.contains_key(request.key)
                && let Some(hold) = hold()
            {
                held.insert(*request.key, hold);
            }
            Ok(id)
        })
    }

    /// Ends what clients have of the files of these exports, and lets go of the files: nothing of theirs
    /// stays open.
    pub(crate) fn withdraw(&self, exports: &[u32]) {
        let is_gone = |file: &FileHandle| {
            FileHandle::export_of(file.as_bytes()).is_some_and(|export| exports.contains(&export))
        };
        self.copies.withdraw(is_gone);
        self.close(is_gone);
    }

    /// Ends all that clients have, when the server has stopped: they may reclaim it from the next one.
    pub(crate) fn close_all(&self) {
        self.close(|_| true);
    }

    fn close(&self, is_gone: impl Fn(&FileHandle) -> bool + Copy) {
        let (mut kept, held) = self.run_holding(|engine, held, _| {
            let kept = engine.withdraw(is_gone);
            // Those that are granted, too: what a local process has open the kernel holds for it.
            (kept, held.extract_if(|file, _| is_gone(file)).collect::<Vec<_>>())
        });
        // The kernel keeps a file's locks in a list, in the order in which their owners came. Given back one
        // by one, thousands of them take seconds; closed together, oldest first, each is found at once.
        kept.sort_by_cached_key(|kept| kept.locks.lock().as_ref().map(OwnerLocks::descriptor));
        for locks in kept.iter().filter_map(|kept| kept.locks.lock().take()) {
            locks.leave_to_close();
        }
        drop((kept, held));
    }

    fn run_holding<T>(
        &self,
        with: impl FnOnce(&mut StateEngine, &mut HashMap<FileHandle, Held>, Time) -> T,
    ) -> T {
        let elapsed = self.start.elapsed();
        let mut locked = self.engine.lock();
        let LockedEngine { engine, clock, ticked, held } = &mut *locked;
        let Look { now, away_since } = clock.look(elapsed);
        if let Some(since) = away_since {
            tracing::warn!(
                "the server didn't run for a while: NFSv4 clients have another lease to renew theirs"
            );
            engine.resumed(since, now);
        }
        if now >= ticked.plus(TICK) {
            *ticked = now;
            engine.tick(now);
        }
        let result = with(engine, held, now);
        self.denies.store(engine.denies(), Ordering::Release);
        let mut effects = engine.take_effects(now);
        for (shown, count) in self.delegated.iter().zip(engine.delegated()) {
            shown.store(count, Ordering::Release);
        }
        // One that was closed may have been opened again.
        let closed = effects.closed.iter().filter(|key| !engine.is_open(key));
        let let_go: Vec<_> = closed.filter_map(|key| held.remove(key)).collect();
        let kept = (!effects.remember.is_empty() || !effects.forget.is_empty()).then(|| self.records.lock());
        drop(locked);
        if let Some(kept) = kept {
            // This thread may act as some client's user, to whom the state directory is closed.
            let recorded = store::as_process_user(|| {
                record(&kept, &effects);
                Ok(())
            });
            if let Err(error) = recorded {
                tracing::error!(%error, "NFSv4 clients can't be recorded or struck off");
            }
        }
        for client in std::mem::take(&mut effects.ended) {
            self.callbacks.paths.with(|paths| paths.remove_client(client));
        }
        for recall in std::mem::take(&mut effects.recalls) {
            self.callbacks.recall(recall);
        }
        for (client, keep) in std::mem::take(&mut effects.recall_any) {
            self.callbacks.recall_any(client, keep);
        }
        for notice in std::mem::take(&mut effects.notices) {
            self.callbacks.notify_lock(&notice);
        }
        // Files are closed here, and kernel leases given back.
        drop((effects, let_go));
        result
    }

    /// Whether nothing of NFSv4's clients can be in the way of an access, whichever file it is to.
    pub(crate) fn is_free(&self, touch: AccessKind) -> bool {
        !self.denies.load(Ordering::Acquire) && self.has_no_delegations_against(touch)
    }

    fn has_no_delegations_against(&self, touch: AccessKind) -> bool {
        match touch {
            AccessKind::Read => self.delegated[1].load(Ordering::Acquire) == 0,
            AccessKind::Write | AccessKind::Change => !self.has_delegations(),
            AccessKind::Open(_) => false,
        }
    }

    /// Whether an access may begin, by the NFSv4 client `by` if it is one's: see [`Engine::check_conflicts`].
    pub(crate) fn check_conflicts(
        &self,
        by: Option<ClientId>,
        file: &FileHandle,
        touch: AccessKind,
    ) -> Result<(), Error> {
        if self.has_no_delegations_against(touch) {
            Ok(())
        } else {
            self.run(|engine, now| engine.check_conflicts(now, by, file, touch))
        }
    }

    /// As [`StateManager::check_conflicts`] for a change of names or attributes. What is returned is to be kept until the
    /// change is made: it doesn't recall the client's own delegation then.
    pub(super) fn begin_change(
        &self,
        by: Option<ClientId>,
        file: &FileHandle,
    ) -> Result<Option<OwnChange>, Error> {
        if !self.has_delegations() {
            return Ok(None);
        }
        let holds = self.run(|engine, now| {
            engine.check_conflicts(now, by, file, AccessKind::Change)?;
            Ok(by.is_some_and(|by| engine.holds_delegation_of(by, file)))
        })?;
        Ok(self.leases.get().filter(|_| holds).and_then(|leases| leases.own_change(file)))
    }

    /// As [`StateManager::check_conflicts`], for what has no open behind it (NFSv3): see [`Engine::check_conflicts_without_open`].
    pub(crate) fn check_conflicts_without_open(
        &self,
        file: &FileHandle,
        touch: AccessKind,
    ) -> Result<(), Error> {
        if self.denies.load(Ordering::Acquire) {
            self.run(|engine, now| engine.check_conflicts_without_open(now, None, file, touch))
        } else {
            self.check_conflicts(None, file, touch)
        }
    }

    /// Whether there is any delegation.
    pub(crate) fn has_delegations(&self) -> bool {
        self.delegated.iter().any(|count| count.load(Ordering::Acquire) > 0)
    }

    /// Whether there is any delegation for writing.
    pub(super) fn has_writers(&self) -> bool {
        self.delegated[1].load(Ordering::Acquire) > 0
    }

    /// Whether some file may be kept from whoever comes without an open of NFSv4's.
    pub(crate) fn restricts(&self) -> bool {
        self.denies.load(Ordering::Acquire) || self.has_delegations()
    }
}

impl CallbackState for StateManager {
    /// To be called every second: tells the engine the time, and of locks that local processes have given
    /// back.
    fn tick(&self) {
        let (blocked_waiters, in_grace) =
            self.run(|engine, now| (engine.blocked_waiters(MOST_LOOKED_AT), engine.in_grace(now)));
        if !in_grace && self.promised_more.swap(false, Ordering::Relaxed) {
            promise(&self.records.lock(), self.lease);
        }
        if let Some(kept) = self.kept_locks.get().filter(|_| !in_grace) {
            kept.release();
        }
        let is_free = |waiting: &BlockedWaiter<FileHandle, StateResources>| {
            let lock = file_lock(waiting.range, waiting.kind);
            let found = waiting.file.locks.lock().as_ref().map(|own| own.file().test(&lock));
            // Where it can't be said the client finds out.
            !matches!(found, Some(Ok(Some(_))))
        };
        let free: Vec<_> = blocked_waiters.into_iter().filter(is_free).collect();
        if !free.is_empty() {
            self.run(|engine, _| free.iter().for_each(|waiting| engine.unblock(waiting)));
        }
    }

    fn holds_delegation(&self, client: ClientId, id: &StateId, file: &FileHandle) -> bool {
        self.run(|engine, _| engine.check_delegation(client, id, file, 0).is_ok())
    }
}

impl std::fmt::Debug for StateManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StateManager").field("engine", &self.engine.lock().engine).finish_non_exhaustive()
    }
}

/// Puts on stable storage what must be there before the operation is answered.
fn record(records: &Option<Box<dyn Records>>, effects: &Effects<FileHandle, StateResources>) {
    static LIMIT: LogLimit = LogLimit::new(10);
    let Some(records) = records else { return };
    for instance in &effects.forget {
        if let Err(error) = records.forget(instance)
            && let Some(skipped) = LIMIT.admit(Instant::now())
        {
            tracing::error!(%error, skipped, client = %state::owner_of_instance(instance).escape_ascii(), "an NFSv4 client can't be struck off: after a restart it might reclaim what is another's");
        }
    }
    for instance in &effects.remember {
        if let Err(error) = records.remember(instance)
            && let Some(skipped) = LIMIT.admit(Instant::now())
        {
            tracing::warn!(%error, skipped, client = %state::owner_of_instance(instance).escape_ascii(), "an NFSv4 client can't be recorded: after a restart it won't be able to reclaim");
        }
    }
}

/// Puts the lease that clients are promised from now on on stable storage.
fn promise(records: &Option<Box<dyn Records>>, lease: Duration) {
    let Some(records) = records else { return };
    if let Err(error) = records.promise(lease) {
        tracing::error!(%error, "after a restart with a shorter lease NFSv4 clients may come too late to \
                                 reclaim");
    }
}

/// Random numbers for session ids, which nobody must guess.
fn random() -> u64 {
    let mut bytes = [0; 8];
    // The kernel's generator fails only before it is seeded, long before any server starts.
    getrandom::fill(&mut bytes).unwrap_or_else(|error| panic!("no random numbers: {error}"));
    u64::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::nfs4::open_records;

    const LEASE: Duration = Duration::from_secs(3600);

    /// A server over that directory.
    fn start(directory: &Path, lease: Duration) -> Arc<StateManager> {
        let (records, recovered) = open_records(directory, &[0; 16]);
        StateManager::new([0; 16], lease, 1024, records, recovered).unwrap()
    }

    #[test]
    fn the_grace_period_is_as_long_as_the_lease_that_clients_know() {
        let scratch = tempfile::tempdir().unwrap();
        let records = open_records(scratch.path(), &[0; 16]).0.unwrap();
        records.remember(b"one").unwrap();
        let promised = || records.load().lease;
        drop(start(scratch.path(), LEASE));
        assert_eq!(promised(), Some(LEASE));
        let states = start(scratch.path(), LEASE / 60);
        let in_grace = |after| states.run(|engine, _| engine.in_grace(Time(after)));
        let millis = LEASE.as_millis() as u64;
        assert!(in_grace(millis - 1) && !in_grace(millis));
        states.tick();
        assert_eq!(promised(), Some(LEASE), "another restart, and it is waited for as long again");
        states.run(|engine, _| engine.tick(Time(millis)));
        states.tick();
        // The callbacks' thread tells the time, too, and may have been first.
        let since = Instant::now();
        while promised() != Some(LEASE / 60) && since.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(promised(), Some(LEASE / 60));
        drop(start(scratch.path(), LEASE));
        assert_eq!(promised(), Some(LEASE), "longer at once");
    }
}
