//! Counters by export, data path and procedure, with the time that calls took.
//!
//! Threads count in shards, so that they rarely share a cache line, with relaxed atomics, since no decision
//! depends on them. A shard with one writer needs no locked instruction. A status adds the shards. Each
//! thread times one of [`TIMED`] calls: reading the clock twice costs more than the rest of the counting, and
//! more than a hundredth of a small READ. The number of series is bounded: exports beyond [`MAX_EXPORTS`] are
//! counted together, and the counters of an export exist once it is used.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::AddAssign;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use ahash::HashMap;
use control::{Latencies, LatencyCounters, path_text};
use parking_lot::Mutex;
use proto::{localio, mount3, nfs3, nfs4, nfsacl};
use rpc::server::{CallTimer, Reply};
use sys::thread_slot;

/// The number of exports with counters of their own.
const MAX_EXPORTS: usize = 64;
/// The number of threads with a shard of their own, and the number of shards that the others share.
const SHARDS: usize = 16;
/// Each thread times one of so many calls.
const TIMED: u32 = 8;

control::metrics! {
    /// Counters of one procedure.
    pub struct ProcedureStatus {
        /// Calls.
        ops: Counter<Count> = "calls",
        /// Those answered with an error.
        errors: Counter<Count> = "errors",
        /// Payload bytes (READ and WRITE).
        bytes: Counter<Bytes> = "payload",
    }
}

/// The counters that an export has in each shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct ExportSlot(u8);

impl ExportSlot {
    /// For calls that concern no export.
    pub(crate) const NONE: Self = Self(0);
    /// For exports beyond [`MAX_EXPORTS`].
    const OTHER: Self = Self(1);
    /// The number of all slots.
    const COUNT: usize = MAX_EXPORTS + 2;

    /// Its position in [`ExportSlots::names`].
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The assignment of slots to exported directories. A directory keeps its slot when it is no longer exported.
#[derive(Debug, Default)]
pub(crate) struct ExportSlots(Mutex<Vec<PathBuf>>);

impl ExportSlots {
    pub(crate) fn of(&self, path: &Path) -> ExportSlot {
        let mut paths = self.0.lock();
        let index = paths.iter().position(|known| known == path).unwrap_or_else(|| {
            if paths.len() < MAX_EXPORTS {
                paths.push(path.to_owned());
                paths.len() - 1
            } else {
                MAX_EXPORTS
            }
        });
        u8::try_from(index + 2).ok().filter(|_| index < MAX_EXPORTS).map_or(ExportSlot::OTHER, ExportSlot)
    }

    /// The names of all slots that are assigned, in their order.
    pub(crate) fn names(&self) -> Vec<String> {
        let paths = self.0.lock();
        let paths = paths.iter().map(|path| path_text::text(path));
        ["none", "other"].into_iter().map(str::to_owned).chain(paths).collect()
    }
}

/// How calls reach the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum CallPath {
    /// Over TCP.
    Wire,
    /// Over a Unix socket of a client on this host.
    Lane,
}

impl CallPath {
    pub(crate) const ALL: [Self; 2] = [Self::Wire, Self::Lane];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Wire => "wire",
            Self::Lane => "lane",
        }
    }
}

/// A procedure of a program, an operation of NFSv4, or a request of the lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum CountedOperation {
    Nfs3(nfs3::Procedure),
    Nfs4(nfs4::Operation),
    Mount3(mount3::Procedure),
    Nfsacl(nfsacl::Procedure),
    Localio(localio::Procedure),
    /// An open over the lane.
    LaneOpen,
    /// An open of a whole directory over the lane, also counted as [`CountedOperation::LaneOpen`].
    LaneTree,
}

const NFS4: usize = nfs3::Procedure::ALL.len();
const MOUNT3: usize = NFS4 + nfs4::Operation::ALL.len();
const NFSACL: usize = MOUNT3 + mount3::Procedure::ALL.len();
const LOCALIO: usize = NFSACL + nfsacl::Procedure::ALL.len();
const LANE: usize = LOCALIO + localio::Procedure::ALL.len();
/// The number of all operations.
const OPERATIONS: usize = LANE + 2;

impl CountedOperation {
    const fn index(self) -> usize {
        match self {
            Self::Nfs3(procedure) => procedure as usize,
            // The numbers of the operations are consecutive.
            Self::Nfs4(operation) => NFS4 + operation as usize - nfs4::Operation::ALL[0] as usize,
            Self::Mount3(procedure) => MOUNT3 + procedure as usize,
            Self::Nfsacl(procedure) => NFSACL + procedure as usize,
            Self::Localio(procedure) => LOCALIO + procedure as usize,
            Self::LaneOpen => LANE,
            Self::LaneTree => LANE + 1,
        }
    }

    /// All operations, in the order of their indices.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let nfs3 = nfs3::Procedure::ALL.iter().copied().map(Self::Nfs3);
        let nfs4 = nfs4::Operation::ALL.iter().copied().map(Self::Nfs4);
        let mount3 = mount3::Procedure::ALL.iter().copied().map(Self::Mount3);
        let nfsacl = nfsacl::Procedure::ALL.iter().copied().map(Self::Nfsacl);
        let localio = localio::Procedure::ALL.iter().copied().map(Self::Localio);
        let lane = [Self::LaneOpen, Self::LaneTree];
        nfs3.chain(nfs4).chain(mount3).chain(nfsacl).chain(localio).chain(lane)
    }

    /// The program or protocol, with the version where there are several.
    pub(crate) const fn program(self) -> &'static str {
        match self {
            Self::Nfs3(_) => "nfs3",
            Self::Nfs4(_) => "nfs4",
            Self::Mount3(_) => "mount",
            Self::Nfsacl(_) => "nfsacl",
            Self::Localio(_) => "localio",
            Self::LaneOpen | Self::LaneTree => "lane",
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Nfs3(procedure) => procedure.name(),
            Self::Nfs4(operation) => operation.name(),
            Self::Mount3(procedure) => procedure.name(),
            Self::Nfsacl(procedure) => procedure.name(),
            Self::Localio(procedure) => procedure.name(),
            Self::LaneOpen => "OPEN",
            Self::LaneTree => "TREE",
        }
    }

    /// Whether its payload comes from the client.
    pub(crate) const fn is_write(self) -> bool {
        matches!(self, Self::Nfs3(nfs3::Procedure::Write) | Self::Nfs4(nfs4::Operation::Write))
    }

    /// Its name in the JSON of a status, where procedures of NFSv3 have no prefix.
    fn status_name(self) -> String {
        match self {
            Self::Nfs3(_) | Self::LaneOpen | Self::LaneTree => self.name().to_owned(),
            Self::Nfs4(_) => format!("NFS4.{}", self.name()),
            Self::Mount3(_) => format!("MOUNT.{}", self.name()),
            Self::Nfsacl(_) => format!("NFSACL.{}", self.name()),
            Self::Localio(_) => format!("LOCALIO.{}", self.name()),
        }
    }
}

/// The counters of one operation of one export and data path, in one shard.
#[derive(Debug, Default)]
struct OperationCounters {
    /// Calls that were answered without an error. The number of all calls isn't counted: between two readings
    /// of it and of the errors, their difference could go back.
    successes: AtomicU64,
    errors: AtomicU64,
    bytes: AtomicU64,
    /// Of the timed calls.
    times: LatencyCounters,
}

type AllOperations = [OperationCounters; OPERATIONS];

/// An operation of an export and data path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SeriesKey {
    pub export: ExportSlot,
    pub data_path: CallPath,
    pub operation: CountedOperation,
}

/// The number of calls that failed with one status.
#[derive(Debug, Clone)]
struct Failures {
    status: String,
    count: u64,
}

/// The counters of some threads.
#[derive(Debug)]
#[repr(align(128))]
struct CounterShard {
    exports: [[OnceLock<Box<AllOperations>>; 2]; ExportSlot::COUNT],
    /// By series and number of the status.
    failures: Mutex<HashMap<(SeriesKey, u32), Failures>>,
}

impl Default for CounterShard {
    fn default() -> Self {
        Self { exports: std::array::from_fn(|_| Default::default()), failures: Mutex::default() }
    }
}

impl CounterShard {
    #[inline]
    fn counters(&self, key: SeriesKey) -> &OperationCounters {
        let all = &self.exports[usize::from(key.export.0)][key.data_path as usize];
        let all = all.get_or_init(|| Box::new(std::array::from_fn(|_| OperationCounters::default())));
        &all[key.operation.index()]
    }
}

/// The shard in which a thread counts.
#[derive(Clone, Copy)]
struct ThreadShard<'a> {
    shard: &'a CounterShard,
    /// Whether no other thread writes to it.
    is_own: bool,
}

impl ThreadShard<'_> {
    #[inline]
    fn add(self, counter: &AtomicU64, more: u64) {
        if self.is_own {
            counter.store(counter.load(Relaxed).wrapping_add(more), Relaxed);
        } else {
            counter.fetch_add(more, Relaxed);
        }
    }
}

thread_local! {
    /// The export that the call on this thread was admitted to last.
    static EXPORT: Cell<ExportSlot> = const { Cell::new(ExportSlot::NONE) };
    /// The number of calls until this thread times one.
    static UNTIMED: Cell<u32> = const { Cell::new(0) };
}

/// Attributes the call that runs on this thread to an export. The access check calls it.
pub(crate) fn enter_export(export: ExportSlot) {
    EXPORT.set(export);
}

/// A call that has begun.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BegunCall {
    /// `None` if it isn't timed.
    began: Option<Instant>,
}

impl BegunCall {
    /// Begins a call on this thread, which concerns no export yet.
    #[inline]
    pub(crate) fn now() -> Self {
        EXPORT.set(ExportSlot::NONE);
        Self::timed_in_turn()
    }

    /// Begins a part of a call that is counted separately, and concerns the same export.
    #[inline]
    pub(crate) fn timed_in_turn() -> Self {
        let untimed = UNTIMED.get();
        UNTIMED.set(untimed.checked_sub(1).unwrap_or(TIMED - 1));
        Self { began: (untimed == 0).then(Instant::now) }
    }

    /// Begins the next operation of the same COMPOUND, of which all operations are timed or none. Its export
    /// is that of the last one until the access check says otherwise.
    #[inline]
    pub(crate) fn next_operation(self) -> Self {
        Self { began: self.began.map(|_| Instant::now()) }
    }
}

/// How a call ended.
#[derive(Clone, Copy)]
pub(crate) struct CallEnd<'a> {
    pub operation: CountedOperation,
    pub data_path: CallPath,
    /// The status of a failure, by its number and its name.
    pub failure: Option<(u32, &'a dyn fmt::Debug)>,
    /// Payload bytes.
    pub bytes: u64,
}

/// The name of the status of calls without results of their program.
#[derive(Debug)]
struct NoResults;

/// [`CallEnd::failure`] of calls without results of their program.
pub(crate) const NO_RESULTS: (u32, &dyn fmt::Debug) = (u32::MAX, &NoResults);

/// All counters. No number that can be read goes back: each is counted by itself, or a sum of such.
#[derive(Debug)]
pub(crate) struct Counters {
    shards: Box<[CounterShard]>,
}

/// The sum of the shards for one series.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SeriesTotals {
    pub errors: u64,
    pub bytes: u64,
    pub calls: u64,
    /// Of the timed calls.
    pub times: Latencies,
}

impl SeriesTotals {
    fn add(&mut self, counters: &OperationCounters) {
        let errors = counters.errors.load(Relaxed);
        self.errors += errors;
        self.bytes += counters.bytes.load(Relaxed);
        self.calls += counters.successes.load(Relaxed) + errors;
        self.times += counters.times.totals();
    }
}

impl AddAssign for SeriesTotals {
    fn add_assign(&mut self, other: Self) {
        self.errors += other.errors;
        self.bytes += other.bytes;
        self.calls += other.calls;
        self.times += other.times;
    }
}

impl Default for Counters {
    fn default() -> Self {
        Self { shards: (0..2 * SHARDS).map(|_| CounterShard::default()).collect() }
    }
}

impl Counters {
    /// Counts a call that has ended.
    #[inline]
    pub(crate) fn record(&self, begun: BegunCall, end: &CallEnd<'_>) {
        let key = self.record_result(end);
        if let Some(began) = begun.began {
            self.shard().shard.counters(key).times.record(began.elapsed());
        }
    }

    /// Counts a call whose reply is encoded. If its payload is still to be read from a file, the time ends
    /// when that is done ([`Counters::record_completion`]).
    #[inline]
    pub(crate) fn record_reply(&self, begun: BegunCall, end: &CallEnd<'_>, reply: &mut Reply) {
        match begun.began {
            Some(began) if reply.has_file() => {
                let key = self.record_result(end);
                reply.set_timer(CallTimer { label: label_of(key), began });
            }
            _ => self.record(begun, end),
        }
    }

    /// Records the time of a call whose payload was read after its results.
    #[inline]
    pub(crate) fn record_completion(&self, timer: CallTimer) {
        let [.., export, data_path, high, low] = timer.label.to_be_bytes();
        let shard = self.shard().shard;
        let all = shard.exports.get(usize::from(export)).and_then(|both| both.get(usize::from(data_path)));
        let index = usize::from(u16::from_be_bytes([high, low]));
        if let Some(counters) = all.and_then(OnceLock::get).and_then(|all| all.get(index)) {
            counters.times.record(timer.began.elapsed());
        }
    }

    /// This thread's shard. No two threads have the same slot at a time.
    #[inline]
    fn shard(&self) -> ThreadShard<'_> {
        match thread_slot::current() {
            Some(slot) if slot < SHARDS => ThreadShard { shard: &self.shards[slot], is_own: true },
            slot => {
                let shared = SHARDS + slot.unwrap_or(0) % SHARDS;
                ThreadShard { shard: &self.shards[shared], is_own: false }
            }
        }
    }

    /// Counts everything but the time.
    #[inline]
    fn record_result(&self, end: &CallEnd<'_>) -> SeriesKey {
        let CallEnd { operation, data_path, failure, bytes } = *end;
        let key = SeriesKey { export: EXPORT.get(), data_path, operation };
        let own = self.shard();
        let counters = own.shard.counters(key);
        if bytes > 0 {
            own.add(&counters.bytes, bytes);
        }
        let Some((number, name)) = failure else {
            own.add(&counters.successes, 1);
            return key;
        };
        own.add(&counters.errors, 1);
        let mut failures = own.shard.failures.lock();
        let new = || Failures { status: format!("{name:?}").to_uppercase(), count: 0 };
        failures.entry((key, number)).or_insert_with(new).count += 1;
        key
    }

    /// All series with calls.
    pub(crate) fn series(&self) -> BTreeMap<SeriesKey, SeriesTotals> {
        let mut all: BTreeMap<SeriesKey, SeriesTotals> = BTreeMap::new();
        for shard in &self.shards {
            for (export, both) in (0..).map(ExportSlot).zip(&shard.exports) {
                for (data_path, counters) in CallPath::ALL.into_iter().zip(both) {
                    for (operation, counters) in
                        CountedOperation::all().zip(counters.get().into_iter().flat_map(|all| all.iter()))
                    {
                        all.entry(SeriesKey { export, data_path, operation }).or_default().add(counters);
                    }
                }
            }
        }
        all.retain(|_, totals| *totals != SeriesTotals::default());
        all
    }

    /// The number of failures by series and status.
    pub(crate) fn failures(&self) -> BTreeMap<(SeriesKey, String), u64> {
        let mut all = BTreeMap::new();
        for shard in &self.shards {
            for ((key, _), failures) in &*shard.failures.lock() {
                *all.entry((*key, failures.status.clone())).or_default() += failures.count;
            }
        }
        all
    }

    /// The number of failures of an operation with a status, and with any other.
    pub(crate) fn failures_of(&self, operation: CountedOperation, status: u32) -> (u64, u64) {
        let (mut with_it, mut others) = (0, 0);
        for shard in &self.shards {
            for ((key, number), failures) in &*shard.failures.lock() {
                match (key.operation == operation, *number == status) {
                    (true, true) => with_it += failures.count,
                    (true, false) => others += failures.count,
                    (false, _) => {}
                }
            }
        }
        (with_it, others)
    }

    /// The totals of an operation over all exports and data paths.
    pub(crate) fn operation(&self, operation: CountedOperation) -> ProcedureStatus {
        let mut sum = SeriesTotals::default();
        let all = self.shards.iter().flat_map(|shard| shard.exports.iter().flatten());
        all.filter_map(OnceLock::get).for_each(|all| sum.add(&all[operation.index()]));
        ProcedureStatus { ops: sum.calls, errors: sum.errors, bytes: sum.bytes }
    }

    /// All counters by transport and procedure, zeros included. NULL is answered by the RPC engine and not
    /// counted.
    pub(crate) fn status(&self) -> BTreeMap<String, BTreeMap<String, ProcedureStatus>> {
        let is_wire = |operation: &CountedOperation| operation.index() < LANE && operation.name() != "NULL";
        let named = |operation: CountedOperation| (operation.status_name(), self.operation(operation));
        let wire = CountedOperation::all().filter(is_wire).map(named).collect();
        let lane = BTreeMap::from([named(CountedOperation::LaneOpen)]);
        BTreeMap::from([("wire".to_owned(), wire), ("lane".to_owned(), lane)])
    }
}

/// The series in a [`CallTimer`]: its export, data path and operation.
const fn label_of(key: SeriesKey) -> u64 {
    (key.export.0 as u64) << 24 | (key.data_path as u64) << 16 | key.operation.index() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: CountedOperation = CountedOperation::Nfs3(nfs3::Procedure::Read);

    fn end(failure: Option<(u32, &dyn fmt::Debug)>) -> CallEnd<'_> {
        CallEnd { operation: READ, data_path: CallPath::Lane, failure, bytes: 10 }
    }

    #[test]
    fn each_operation_has_its_index() {
        assert!(CountedOperation::all().map(CountedOperation::index).eq(0..OPERATIONS));
    }

    /// Those of threads with a shard of their own, and of threads that share one.
    #[test]
    fn the_shards_are_added() {
        const CALLS: u64 = 1000;
        let counters = Counters::default();
        let threads = 4 * SHARDS;
        let all_here = std::sync::Barrier::new(threads);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let _ = thread_slot::current();
                    all_here.wait();
                    for _ in 0..CALLS {
                        let begun = BegunCall::now();
                        enter_export(ExportSlot(5));
                        counters.record(begun, &end(None));
                        counters.record(begun, &end(Some((2, &nfs3::Nfsstat3::Noent))));
                    }
                });
            }
        });
        let calls = threads as u64 * CALLS;
        let status = counters.operation(READ);
        assert_eq!((status.ops, status.errors, status.bytes), (2 * calls, calls, 20 * calls));
        let key = SeriesKey { export: ExportSlot(5), data_path: CallPath::Lane, operation: READ };
        assert_eq!(counters.series().into_keys().collect::<Vec<_>>(), [key]);
        assert_eq!(counters.failures(), BTreeMap::from([((key, "NOENT".to_owned()), calls)]));
    }

    #[test]
    fn no_number_goes_back_while_calls_end() {
        const CALLS: u64 = 50_000;
        let counters = Counters::default();
        let numbers = || {
            let all = counters.operation(READ);
            let (not_found, others) = counters.failures_of(READ, nfs3::Nfsstat3::Noent as u32);
            [all.ops, all.errors, all.ops - all.errors, not_found, others]
        };
        std::thread::scope(|scope| {
            let ending = scope.spawn(|| {
                let failure =
                    |status: &'static nfs3::Nfsstat3| Some((*status as u32, status as &dyn fmt::Debug));
                for _ in 0..CALLS {
                    counters.record(BegunCall::now(), &end(failure(&nfs3::Nfsstat3::Noent)));
                    counters.record(BegunCall::now(), &end(failure(&nfs3::Nfsstat3::Acces)));
                }
            });
            let mut last = numbers();
            while !ending.is_finished() {
                let next = numbers();
                assert!(last.iter().zip(&next).all(|(last, next)| last <= next), "{last:?}, then {next:?}");
                last = next;
            }
        });
        assert_eq!(numbers(), [2 * CALLS, 2 * CALLS, 0, CALLS, CALLS]);
    }

    #[test]
    fn a_payload_that_is_read_later_counts_once() {
        let counters = Counters::default();
        let file: std::os::fd::OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
        let mut reply = Reply::new(1);
        reply.attach_file(std::sync::Arc::new(file), 0, 10);
        // The first call of a thread is timed.
        let begun = std::thread::scope(|scope| scope.spawn(BegunCall::now).join().unwrap());
        enter_export(ExportSlot(3));
        counters.record_reply(begun, &end(None), &mut reply);
        let timed = || counters.series().pop_first().unwrap().1.times.count();
        assert_eq!((counters.operation(READ).ops, timed()), (1, 0));
        counters.record_completion(reply.take_timer().unwrap());
        assert_eq!((counters.operation(READ).ops, timed()), (1, 1));
        let (key, totals) = counters.series().pop_first().unwrap();
        assert_eq!((key.export, key.operation, totals.bytes), (ExportSlot(3), READ, 10));
    }

    #[test]
    fn a_thread_times_some_calls_in_turn() {
        let timed = std::thread::spawn(|| {
            let all: Vec<_> = (0..2 * TIMED).map(|_| BegunCall::now().began.is_some()).collect();
            all
        });
        let timed = timed.join().unwrap();
        let expected: Vec<_> = (0..2 * TIMED).map(|call| call % TIMED == 0).collect();
        assert_eq!(timed, expected);
    }

    #[test]
    fn exports_beyond_the_bound_share_a_slot() {
        let slots = ExportSlots::default();
        let all: Vec<_> =
            (0..MAX_EXPORTS + 5).map(|number| slots.of(Path::new(&format!("/{number}")))).collect();
        assert_eq!(all[0], slots.of(Path::new("/0")));
        assert_eq!(all[MAX_EXPORTS..], [ExportSlot::OTHER; 5]);
        let names = slots.names();
        assert_eq!((names.len(), &*names[1], &*names[2]), (ExportSlot::COUNT, "other", "/0"));
        assert_eq!(usize::from(all[MAX_EXPORTS - 1].0), names.len() - 1);
    }
}
