//! The server's NFSv4 state: the engine behind its lock.
//!
//! [`StateManager::run`] locks the engine, runs what it is given, and applies the effects after the lock is
//! dropped ([`super::state_effects`]). What NFSv3 and the lane ask at every access, whether there are
//! delegations or denials at all, is published in atomics.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ahash::{HashMap, HashSet};
use fairness::Peer;
use parking_lot::Mutex;
use recovery::{ClientRecord, Recovered, RecoveryStore};
use state::{
    AccessKind, BlockedWaiter, ChannelAttrs, ClientId, Engine, EngineConfig, EngineLimits, Error,
    OpenRequest, PendingLock, RecallTimeout, StateId, Time,
};
use store::{FileHandle, Leases, OwnChange, PreservedFile};

use super::callbacks::{self, CallbackState, Callbacks};
use super::clock::{Clock, Look};
use super::copies::Copies;
use super::inherited::{self, KeptLocks};
use super::lock_file::{OwnerLocks, file_lock};
use super::lock_store::LockStore;
use super::state_effects::{EffectExecutor, RequiredRecords};
use super::state_resources::{StateEngine, StateResources};
use crate::service::limits::{MAX_CACHED_REPLY, MAX_OPERATIONS, MAX_REPLY, MAX_REQUEST};

/// How long a courtesy client keeps its state after its lease has expired.
pub(crate) const COURTESY: Duration = Duration::from_secs(24 * 3600);
/// The interval of [`Engine::tick`] while there are calls, in milliseconds.
const TICK: u64 = 1000;
/// How long a client may take to return a delegation that a local process waits for. The kernel lets that
/// process in after 45 s (the default of `/proc/sys/fs/lease-break-time`). A client whose user may write the
/// file could do worse than delay it. A client whose user may only read it has nothing to send before it
/// returns the delegation.
const LOCAL_RECALL_TIMEOUT: RecallTimeout = RecallTimeout { writers: 40_000, readers: 10_000 };
/// For how long a file isn't delegated after a delegation of it was revoked, nor any file to the peer that
/// didn't return it, in milliseconds.
const DISTRUST: u64 = 3_600_000;
/// The most waiters for locks of local processes that are tested in a second.
const MAX_TESTED_WAITERS: usize = 1024;

/// The engine's bounds. The descriptors are set at start, from the limit of the process.
const LIMITS: EngineLimits = EngineLimits {
    channel: ChannelAttrs {
        request: MAX_REQUEST,
        response: MAX_REPLY,
        cached: MAX_CACHED_REPLY,
        operations: MAX_OPERATIONS,
        // A program with 16 threads that keep eight requests each in flight needs 128.
        slots: 256,
    },
    ..EngineLimits::DEFAULT
};

/// The engine, and what changes with it under its lock.
struct LockedEngine {
    engine: StateEngine,
    clock: Clock,
    /// The time of the last [`Engine::tick`].
    ticked: Time,
    /// The files that clients have open, so that they stay when their names go. Each is known to the engine.
    open_files: HashMap<FileHandle, PreservedFile>,
}

impl LockedEngine {
    /// Tells the engine the time, `elapsed` since the start on the monotonic clock.
    fn advance(&mut self, elapsed: Duration) -> Time {
        let Look { now, away_since } = self.clock.look(elapsed);
        if let Some(since) = away_since {
            tracing::warn!(
                "the server didn't run for a while: NFSv4 clients have another lease to renew theirs"
            );
            self.engine.resumed(since, now);
        }
        if now >= self.ticked.plus(TICK) {
            self.ticked = now;
            self.engine.tick(now);
        }
        now
    }

    /// Removes those of the `closed` files that weren't opened again.
    fn remove_closed_files(&mut self, closed: &[FileHandle]) -> Vec<PreservedFile> {
        let Self { engine, open_files, .. } = self;
        let closed = closed.iter().filter(|file| !engine.is_open(file));
        closed.filter_map(|file| open_files.remove(file)).collect()
    }
}

/// Records of clients, as the engine takes them.
fn recorded(recovered: Vec<ClientRecord>) -> impl Iterator<Item = state::ClientRecord> {
    recovered.into_iter().map(|ClientRecord { instance, holder }| {
        let holder = holder.map(|held| state::RecordHolder { peer: held.peer, principal: held.principal });
        state::ClientRecord { instance, holder }
    })
}

/// The state of all NFSv4 clients.
pub(crate) struct StateManager {
    engine: Mutex<LockedEngine>,
    effects: EffectExecutor,
    /// [`Engine::denies`], published.
    denies: AtomicBool,
    /// Called when an open denies access and none did before, once that is published and before the OPEN is
    /// answered.
    denial_began: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// [`Engine::delegated`], published. A caller that doesn't see a delegation yet meets its kernel lease.
    delegated: [AtomicUsize; 2],
    /// Stable storage has a longer lease than clients get now, until the grace period ends.
    promised_more: AtomicBool,
    start: Instant,
    /// The kernel leases of delegated files.
    pub leases: OnceLock<Leases>,
    /// Where locks are kept across a restart, if they are.
    pub kept_locks: OnceLock<KeptLocks>,
    /// Calls to the clients.
    pub callbacks: Callbacks,
    /// Copies in progress.
    pub copies: Copies,
    /// `so_major_id`.
    pub identity: [u8; 16],
    /// `eir_server_scope`: the same on all servers of a cluster, whose file handles are the same.
    pub scope: [u8; 16],
    /// The length of a lease.
    pub lease: Duration,
    /// The start in nanoseconds since 1970. The change attribute of pseudo directories begins with it, and
    /// grows by 1 with each change of the exports: a later run begins with a greater one.
    pub since: u64,
}

impl StateManager {
    /// Without clients. All that they have open, locked and delegated may cost `descriptors` descriptors.
    /// Clients keep it for `courtesy` after their `lease` has expired.
    /// `identity` and the store of `records` must stay the same across restarts: the `recovered` clients may
    /// reclaim during the grace period.
    ///
    /// # Errors
    /// If the threads for callbacks and leases can't be created.
    pub(crate) fn new(
        identity: [u8; 16],
        scope: [u8; 16],
        (lease, courtesy): (Duration, Duration),
        descriptors: usize,
        records: Option<Box<dyn RecoveryStore>>,
        recovered: Recovered,
    ) -> std::io::Result<Arc<Self>> {
        let millis = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
        let mut random = random_numbers();
        let config = EngineConfig {
            boot: random() as u32,
            lease: millis,
            courtesy: courtesy.as_millis() as u64,
            distrust: DISTRUST,
            limits: EngineLimits { descriptors, ..LIMITS },
        };
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let since = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        // Clients notice the restart when they next renew the lease that they were promised (RFC 8881 section
        // 8.4.2.1).
        let grace = recovered.lease.map_or(lease, |promised| promised.max(lease));
        let grace_ends = Time(u64::try_from(grace.as_millis()).unwrap_or(u64::MAX));
        let mut engine = Engine::new(config, Box::new(random), recorded(recovered.clients), grace_ends);
        if !recovered.damaged.is_empty() {
            engine.recovered_incompletely();
        }
        let effects = EffectExecutor::new(records);
        if recovered.lease.is_none_or(|promised| promised < lease) {
            effects.record_lease(lease);
        }
        let (callbacks, queue) = Callbacks::new(lease);
        let locked = LockedEngine {
            engine,
            clock: Clock::default(),
            ticked: Time::default(),
            open_files: HashMap::default(),
        };
        let manager = Arc::new(Self {
            engine: Mutex::new(locked),
            effects,
            denies: AtomicBool::new(false),
            denial_began: OnceLock::new(),
            delegated: Default::default(),
            promised_more: AtomicBool::new(grace > lease),
            start: Instant::now(),
            leases: OnceLock::new(),
            kept_locks: OnceLock::new(),
            callbacks,
            copies: Copies::default(),
            identity,
            scope,
            lease,
            since,
        });
        let weak = Arc::downgrade(&manager);
        callbacks::start(weak.clone(), queue)?;
        let leases = Leases::start(move |file, writes| {
            if let Some(manager) = weak.upgrade() {
                manager.run(|engine, now| {
                    engine.recall_for_local_open(now, file, writes, LOCAL_RECALL_TIMEOUT);
                });
            }
        })?;
        let _ = manager.leases.set(leases);
        Ok(manager)
    }

    /// Lets the clients of a former run, or of another node of the cluster, reclaim.
    pub(crate) fn accept_reclaims(&self, recovered: Recovered) {
        recovered.damaged.iter().for_each(|what| tracing::error!("no record of an NFSv4 client: {what}"));
        let promised = recovered.lease.map_or(self.lease, |promised| promised.max(self.lease));
        let time = u64::try_from(promised.as_millis()).unwrap_or(u64::MAX);
        let is_incomplete = !recovered.damaged.is_empty();
        self.run(|engine, now| engine.accept_reclaims(now, recorded(recovered.clients), is_incomplete, time));
    }

    /// Sets what is called when an open denies access and none did before. It must not call this manager.
    pub(crate) fn on_denial(&self, notify: impl Fn() + Send + Sync + 'static) {
        let _ = self.denial_began.set(Box::new(notify));
    }

    /// Clients get state only when they are recorded.
    pub(crate) fn require_records(&self, required: RequiredRecords) {
        let _ = self.effects.required.set(required);
    }

    /// Keeps locks across a restart, and takes over those of the last run.
    pub(crate) fn keep_locks(&self, store: Arc<LockStore>) {
        let _ = self.kept_locks.set(KeptLocks::new(store));
    }

    /// A hash that names a lock's owner, also after a restart.
    pub(crate) fn lock_owner_hash(&self, lock: &PendingLock<StateResources>) -> u64 {
        self.run(|engine, _| {
            engine
                .lock_owner(lock)
                .map_or(inherited::SHARED, |(client, owner)| inherited::owner(client, owner))
        })
    }

    /// Leaves the kept locks to the next run.
    pub(crate) fn leave_locks(&self) {
        if let Some(kept) = self.kept_locks.get() {
            kept.leave();
        }
    }

    /// Runs `with` on the locked engine, and applies the effects after the lock is dropped.
    pub(crate) fn run<T>(&self, with: impl FnOnce(&mut StateEngine, Time) -> T) -> T {
        self.run_locked(|locked, now| with(&mut locked.engine, now))
    }

    fn run_locked<T>(&self, with: impl FnOnce(&mut LockedEngine, Time) -> T) -> T {
        let elapsed = self.start.elapsed();
        let mut locked = self.engine.lock();
        let now = locked.advance(elapsed);
        let result = with(&mut locked, now);
        let effects = locked.engine.take_effects(now);
        let denies = locked.engine.denies();
        let begins = !self.denies.swap(denies, Ordering::AcqRel) && denies;
        for (published, count) in self.delegated.iter().zip(locked.engine.delegated()) {
            published.store(count, Ordering::Release);
        }
        let closed = locked.remove_closed_files(&effects.closed);
        let ended = effects.ended.clone();
        let effects = self.effects.prepare(effects, closed);
        drop(locked);
        self.copies.end_clients(&ended);
        if begins && let Some(notify) = self.denial_began.get() {
            notify();
        }
        effects.apply(&self.callbacks, self.kept_locks.get());
        result
    }

    /// OPEN. `hold` opens the file if no client has it open yet: it stays as long as any client has.
    ///
    /// # Errors
    /// Those of [`Engine::open`].
    pub(crate) fn open(
        &self,
        request: &OpenRequest<'_, FileHandle>,
        hold: impl FnOnce() -> Option<PreservedFile>,
    ) -> Result<StateId, Error> {
        self.run_locked(|locked, now| {
            let id = locked.engine.open(now, request)?;
            if !locked.open_files.contains_key(request.key)
                && let Some(hold) = hold()
            {
                locked.open_files.insert(*request.key, hold);
            }
            Ok(id)
        })
    }

    /// Ends the state on the files of these exports, and closes the files.
    pub(crate) fn withdraw(&self, exports: &[u32]) {
        let is_withdrawn = |file: &FileHandle| {
            FileHandle::export_of(file.as_bytes()).is_some_and(|export| exports.contains(&export))
        };
        self.copies.withdraw(is_withdrawn);
        self.close(is_withdrawn);
    }

    /// Ends the state of the clients for which `is_referred` holds on the files of an export, which refers
    /// them to other servers. They can't end it themselves: each operation on these files is NFS4ERR_MOVED.
    pub(crate) fn withdraw_referred(&self, export: u32, is_referred: impl Fn(Peer) -> bool) {
        // Names are resolved without the engine's lock. A client that comes later finds the referral.
        let mut peers: HashSet<Peer> = self.run(|engine, _| engine.peers().collect());
        peers.retain(|peer| is_referred(*peer));
        if peers.is_empty() {
            return;
        }
        let resources = self.run(|engine, _| {
            engine.withdraw(|file, peer| {
                FileHandle::export_of(file.as_bytes()) == Some(export)
                    && peer.is_some_and(|peer| peers.contains(&peer))
            })
        });
        Self::release_locks(resources);
    }

    /// Ends all state when the server has stopped: the clients may reclaim it from the next run.
    pub(crate) fn close_all(&self) {
        self.close(|_| true);
    }

    /// Releases all state, also what is kept across a restart. The clients keep their records: they may
    /// reclaim it from another server of the cluster.
    pub(crate) fn release_all(&self) {
        let (resources, files) = self.run_locked(|locked, _| {
            (locked.engine.withdraw(|_, _| true), std::mem::take(&mut locked.open_files))
        });
        resources.iter().for_each(|state| drop(state.locks.lock().take()));
        if let Some(kept) = self.kept_locks.get() {
            kept.release();
        }
        drop((resources, files));
        // Last: as long as the mark is there, a successor ends the mount's session, with what is still held.
        if let Some(kept) = self.kept_locks.get() {
            kept.unmark();
        }
    }

    fn close(&self, is_closed: impl Fn(&FileHandle) -> bool + Copy) {
        let (resources, files) = self.run_locked(|locked, _| {
            let resources = locked.engine.withdraw(|file, _| is_closed(file));
            // Also of granted files: the kernel holds what a local process has open.
            let files: Vec<_> = locked.open_files.extract_if(|file, _| is_closed(file)).collect();
            (resources, files)
        });
        Self::release_locks(resources);
        drop(files);
    }

    /// Closes the descriptors of states that have ended, with the locks that they hold.
    fn release_locks(mut resources: Vec<Arc<StateResources>>) {
        // The kernel keeps a file's locks in a list, in the order in which their owners came. Unlocking
        // thousands of them one by one takes seconds; closed together, oldest first, each is found at once.
        resources.sort_by_cached_key(|state| state.locks.lock().as_ref().map(OwnerLocks::descriptor));
        for locks in resources.iter().filter_map(|state| state.locks.lock().take()) {
            locks.leave_to_close();
        }
    }

    /// Whether no state can conflict with such an access, whatever the file.
    pub(crate) fn is_free(&self, access: AccessKind) -> bool {
        !self.denies.load(Ordering::Acquire) && self.has_no_delegations_against(access)
    }

    fn has_no_delegations_against(&self, access: AccessKind) -> bool {
        match access {
            AccessKind::Read => !self.has_write_delegations(),
            AccessKind::Write | AccessKind::Change => !self.has_delegations(),
            AccessKind::Open(_) => false,
        }
    }

    /// Whether an access may begin, of the NFSv4 client `by` if there is one: see
    /// [`Engine::check_conflicts`].
    pub(crate) fn check_conflicts(
        &self,
        by: Option<ClientId>,
        file: &FileHandle,
        access: AccessKind,
    ) -> Result<(), Error> {
        if self.has_no_delegations_against(access) {
            Ok(())
        } else {
            self.run(|engine, now| engine.check_conflicts(now, by, file, access))
        }
    }

    /// As [`StateManager::check_conflicts`], for a change of names or attributes. The client's own delegation
    /// isn't recalled while the returned guard lives: the caller keeps it until the change is made.
    pub(crate) fn begin_change(
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

    /// As [`StateManager::check_conflicts`], for an access without an open (NFSv3): see
    /// [`Engine::check_conflicts_without_open`].
    pub(crate) fn check_conflicts_without_open(
        &self,
        file: &FileHandle,
        access: AccessKind,
    ) -> Result<(), Error> {
        if self.denies.load(Ordering::Acquire) {
            self.run(|engine, now| engine.check_conflicts_without_open(now, None, file, access))
        } else {
            self.check_conflicts(None, file, access)
        }
    }

    /// Whether there is any delegation.
    pub(crate) fn has_delegations(&self) -> bool {
        self.delegated.iter().any(|count| count.load(Ordering::Acquire) > 0)
    }

    /// Whether there is any write delegation.
    pub(crate) fn has_write_delegations(&self) -> bool {
        self.delegated[1].load(Ordering::Acquire) > 0
    }

    /// Whether files may be opened that this manager doesn't know of: see
    /// [`Engine::permits_uncounted_opens`].
    pub(crate) fn permits_uncounted_opens(&self) -> bool {
        self.run(|engine, now| engine.permits_uncounted_opens(now))
    }

    /// Tells the engine which of these waiters wait for no local process any more. Returns whether there are
    /// any.
    pub(crate) fn unblock_waiters(
        &self,
        mut waiters: Vec<BlockedWaiter<FileHandle, StateResources>>,
    ) -> bool {
        // If the kernel can't be asked the waiter tries by itself.
        waiters.retain(|waiter| {
            let lock = file_lock(waiter.range, waiter.kind);
            let found = waiter.file.locks.lock().as_ref().map(|own| own.file().test(&lock));
            !matches!(found, Some(Ok(Some(_))))
        });
        if !waiters.is_empty() {
            self.run(|engine, _| waiters.iter().for_each(|waiter| engine.unblock(waiter)));
        }
        !waiters.is_empty()
    }

    /// Whether a delegation or a denial may conflict with an access of some file.
    pub(crate) fn restricts(&self) -> bool {
        self.denies.load(Ordering::Acquire) || self.has_delegations()
    }
}

impl CallbackState for StateManager {
    fn tick(&self) {
        let (blocked, in_grace) =
            self.run(|engine, now| (engine.blocked_waiters(MAX_TESTED_WAITERS), engine.in_grace(now)));
        if !in_grace && self.promised_more.swap(false, Ordering::Relaxed) {
            self.effects.record_lease(self.lease);
        }
        if let Some(kept) = self.kept_locks.get().filter(|_| !in_grace) {
            kept.release();
        }
        self.unblock_waiters(blocked);
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

/// Random numbers that cannot be guessed: ids are made of them. One system call gets several, which saves one
/// for each OPEN.
fn random_numbers() -> impl FnMut() -> u64 {
    let mut numbers = Vec::new();
    move || loop {
        if let Some(number) = numbers.pop() {
            return number;
        }
        let mut bytes = [0; 512];
        // It fails only before it is seeded, long before any server starts.
        getrandom::fill(&mut bytes).unwrap_or_else(|error| panic!("no random numbers: {error}"));
        numbers.extend(bytes.as_chunks().0.iter().map(|chunk| u64::from_ne_bytes(*chunk)));
    }
}

#[cfg(test)]
mod tests {
    use recovery::{StateDirectory, open_client_records};
    use state::{CreateSession, ExchangeId, Principal, Requester, Sequence, SessionId};

    use super::*;

    const LEASE: Duration = Duration::from_secs(3600);

    /// A manager with records in that directory.
    fn start(directory: &Arc<StateDirectory>, lease: Duration) -> Arc<StateManager> {
        let (records, recovered) = open_client_records(directory, &[0; 16]);
        StateManager::new([0; 16], [0; 16], (lease, COURTESY), 1024, records, recovered).unwrap()
    }

    #[test]
    fn the_grace_period_is_as_long_as_the_lease_that_clients_know() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = Arc::new(StateDirectory::acquire(scratch.path()).unwrap());
        let records = open_client_records(&directory, &[0; 16]).0.unwrap();
        records.add_client(&ClientRecord { instance: b"one".to_vec(), holder: None }).unwrap();
        let promised = || records.load().lease;
        drop(start(&directory, LEASE));
        assert_eq!(promised(), Some(LEASE));
        let manager = start(&directory, LEASE / 60);
        let in_grace = |after| manager.run(|engine, _| engine.in_grace(Time(after)));
        let millis = LEASE.as_millis() as u64;
        assert!(in_grace(millis - 1) && !in_grace(millis));
        manager.tick();
        assert_eq!(promised(), Some(LEASE), "until the grace period has ended");
        manager.run(|engine, _| engine.tick(Time(millis)));
        manager.tick();
        // The callback thread ticks, too, and may record it at the same time.
        let since = Instant::now();
        while promised() != Some(LEASE / 60) && since.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(promised(), Some(LEASE / 60));
        drop(start(&directory, LEASE));
        assert_eq!(promised(), Some(LEASE), "a longer lease is recorded at once");
    }

    /// A new client that has nothing to reclaim, with a session. The reply to RECLAIM_COMPLETE depends on its
    /// record.
    fn admit(manager: &StateManager, owner: &[u8]) -> SessionId {
        let principal = &Principal::Sys(0);
        let peer = Peer::V4([127, 0, 0, 1]);
        let exchange = ExchangeId { owner, peer, verifier: [1; 8], principal, update: false };
        let found = manager.run(|engine, now| engine.exchange_id(now, &exchange)).unwrap();
        let (client, sequence) = (found.client, found.sequence);
        let create = CreateSession { client, sequence, principal, channel: LIMITS.channel };
        let session = manager.run(|engine, now| engine.create_session(now, &create)).unwrap().session;
        let requester = Requester { client, principal: principal.clone() };
        manager.run(|engine, _| engine.reclaim_complete(&requester)).unwrap();
        session
    }

    #[test]
    fn other_clients_do_not_wait_while_records_are_written() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = Arc::new(StateDirectory::acquire(scratch.path()).unwrap());
        let manager = start(&directory, LEASE);
        let session = admit(&manager, b"reader");
        let recorded = || open_client_records(&directory, &[0; 16]).1.clients.len();
        assert_eq!(recorded(), 1);
        let (answer, answers) = std::sync::mpsc::sync_channel(2);
        std::thread::scope(|scope| {
            let blocked = manager.effects.block_writes();
            for owner in [b"one", b"two"] {
                let (manager, answer) = (&manager, answer.clone());
                scope.spawn(move || {
                    admit(manager, owner);
                    answer.send(owner.as_slice()).unwrap();
                });
            }
            // They have left the engine, also the second, and wait for their records.
            let since = Instant::now();
            while manager.effects.queued() < 2 && since.elapsed() < Duration::from_secs(30) {
                std::thread::sleep(Duration::from_millis(1));
            }
            let queued = manager.effects.queued();
            let (manager, answer) = (&manager, answer.clone());
            scope.spawn(move || {
                let (slot, highest_slot, fingerprint, length, operations) = (0, 0, 0, 100, 1);
                let request =
                    Sequence { session, sequence: 1, slot, highest_slot, fingerprint, length, operations };
                manager.run(|engine, now| engine.sequence(now, &request)).unwrap();
                answer.send(b"reader").unwrap();
            });
            let first = answers.recv_timeout(Duration::from_secs(30));
            let recorded_meanwhile = recorded();
            // Before any assertion: a panic would wait for the threads.
            drop(blocked);
            assert_eq!((queued, first, recorded_meanwhile), (2, Ok(&b"reader"[..]), 1));
            let mut admitted: Vec<_> = answers.iter().take(2).collect();
            admitted.sort_unstable();
            assert_eq!(admitted, [b"one", b"two"]);
            assert_eq!(recorded(), 3);
        });
    }
}
