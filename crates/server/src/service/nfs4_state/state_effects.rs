//! The execution of the engine's effects, after the engine's lock is dropped.
//!
//! Client records change in the order in which the engine decided: [`EffectExecutor::prepare`] puts the
//! changes into a queue while the engine is still locked, and [`PreparedEffects::apply`] writes what is in
//! the queue afterwards. While one thread writes, others wait for it without the engine's lock. The next one
//! of these writes the changes of all of them.

use std::io;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use fairness::LogLimit;
use parking_lot::Mutex;
use recovery::{ClientRecord, RecordHolder, RecoveryStore};
use state::Effects;
use store::{FileHandle, PreservedFile};

use super::callbacks::Callbacks;
use super::inherited::KeptLocks;
use super::state_resources::StateResources;

/// The time between two attempts to change a client's record.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The client records, or none where they can't be kept.
type Records = Option<Box<dyn RecoveryStore>>;

/// What a server of a cluster does when it can't change a client's record.
pub(crate) struct RequiredRecords {
    /// For how long it tries.
    pub timeout: Duration,
    /// Ends this run. No call may be answered after it has returned.
    pub give_up: Box<dyn Fn() + Send + Sync>,
}

/// A change of the client records.
enum RecordChange {
    /// Removes the record of an instance.
    Forget(Vec<u8>),
    /// Adds a record, in the place of one of the same instance.
    Remember(state::ClientRecord),
}

impl RecordChange {
    const fn forgets(&self) -> bool {
        matches!(self, Self::Forget(_))
    }
}

/// Runs effects, and has what they need beside the callbacks.
pub(super) struct EffectExecutor {
    /// The changes that no thread has begun to write yet, in the engine's order.
    queue: Mutex<Vec<RecordChange>>,
    /// Locked from when changes are taken from the queue until they are durable.
    records: Mutex<Records>,
    /// Set on a server of a cluster.
    pub required: OnceLock<RequiredRecords>,
}

/// Effects that are taken from the engine and not yet run.
#[must_use]
pub(super) struct PreparedEffects<'a> {
    executor: &'a EffectExecutor,
    effects: Effects<FileHandle, StateResources>,
    /// The files that no client has open any more.
    closed: Vec<PreservedFile>,
    /// Whether the effects have put changes into the queue.
    changes_records: bool,
}

impl EffectExecutor {
    pub fn new(records: Records) -> Self {
        Self { queue: Mutex::default(), records: Mutex::new(records), required: OnceLock::new() }
    }

    /// Prepares effects to be applied. To be called with the engine locked.
    pub fn prepare(
        &self,
        mut effects: Effects<FileHandle, StateResources>,
        closed: Vec<PreservedFile>,
    ) -> PreparedEffects<'_> {
        let changes_records = !effects.remember.is_empty() || !effects.forget.is_empty();
        if changes_records {
            let forget = std::mem::take(&mut effects.forget).into_iter().map(RecordChange::Forget);
            let remember = std::mem::take(&mut effects.remember).into_iter().map(RecordChange::Remember);
            self.queue.lock().extend(forget.chain(remember));
        }
        PreparedEffects { executor: self, effects, closed, changes_records }
    }

    /// How many changes no thread has begun to write yet.
    #[cfg(test)]
    pub fn queued(&self) -> usize {
        self.queue.lock().len()
    }

    /// Keeps every thread from writing records.
    #[cfg(test)]
    pub fn block_writes(&self) -> impl Drop {
        self.records.lock()
    }

    /// Makes all changes that are in the queue. When this returns they are durable, or what failed is logged:
    /// also those that another thread has taken from it.
    fn write_queue(&self, kept_locks: Option<&KeptLocks>) {
        let records = self.records.lock();
        let changes = std::mem::take(&mut *self.queue.lock());
        if changes.is_empty() {
            return;
        }
        // This thread may have assumed the ids of a client's user, who has no access to the state directory.
        let recorded = store::as_process_user(|| {
            write_records(&records, &changes, self.required.get(), kept_locks);
            store::Result::Ok(())
        });
        if let Err(error) = recorded {
            tracing::error!(%error, "NFSv4 clients can't be recorded or struck off");
        }
    }

    /// Records the longest lease that clients may have been promised.
    pub fn record_lease(&self, lease: Duration) {
        let records = self.records.lock();
        let Some(records) = &*records else { return };
        if let Err(error) = records.set_lease(lease) {
            tracing::error!(%error, "after a restart with a shorter lease NFSv4 clients may come too late to \
                                     reclaim");
        }
    }
}

impl PreparedEffects<'_> {
    /// Writes client records, queues callbacks, closes files and gives kernel leases back. To be called
    /// without the engine's lock, and before the operation is answered.
    pub fn apply(self, callbacks: &Callbacks, kept_locks: Option<&KeptLocks>) {
        let Self { executor, mut effects, closed, changes_records } = self;
        if changes_records {
            executor.write_queue(kept_locks);
        }
        for client in std::mem::take(&mut effects.ended) {
            callbacks.paths.with(|paths| paths.remove_client(client));
        }
        for recall in std::mem::take(&mut effects.recalls) {
            callbacks.recall(recall);
        }
        for (client, keep) in std::mem::take(&mut effects.recall_any) {
            callbacks.recall_any(client, keep);
        }
        for notice in std::mem::take(&mut effects.notices) {
            callbacks.notify_lock(&notice);
        }
        // Closes files, and gives kernel leases back.
        drop((effects, closed));
    }
}

/// Removes and adds client records. What fails is logged.
///
/// On a server of a cluster others may get the locks of a client that is struck off, as soon as these are
/// released. They are released after this, so it is tried for a while. If it fails, no client may reclaim
/// after a crash. A client that can't be recorded gets no answer, and so no state: the server tries for a
/// while, and then ends its run.
fn write_records(
    records: &Records,
    changes: &[RecordChange],
    required: Option<&RequiredRecords>,
    kept_locks: Option<&KeptLocks>,
) {
    let Some(records) = records else { return };
    // Clients are struck off durably before others are recorded.
    for group in changes.chunk_by(|change, next| !change.forgets() || next.forgets()) {
        let failed = write_group(&**records, group, required);
        if failed.forget
            && let Some(kept) = kept_locks
        {
            kept.unmark();
        }
        if failed.remember
            && let Some(required) = required
        {
            (required.give_up)();
        }
    }
}

/// Whether changes of either kind aren't durable.
struct FailedChanges {
    forget: bool,
    remember: bool,
}

/// Makes changes that become durable together.
fn write_group(
    records: &dyn RecoveryStore,
    group: &[RecordChange],
    required: Option<&RequiredRecords>,
) -> FailedChanges {
    static LIMIT: LogLimit = LogLimit::new(10);
    let logged = |error| LIMIT.admit(Instant::now()).map(|skipped| (error, skipped));
    let mut failed = FailedChanges { forget: false, remember: false };
    for change in group {
        match change {
            RecordChange::Forget(instance) => {
                let Err(error) = until_changed(required, || records.remove_client(instance)) else {
                    continue;
                };
                failed.forget = true;
                if let Some((error, skipped)) = logged(error) {
                    let client = state::owner_of_instance(instance).escape_ascii();
                    tracing::error!(
                        %error, skipped, %client,
                        "an NFSv4 client can't be struck off: after a restart it might reclaim what is \
                         another's"
                    );
                }
            }
            RecordChange::Remember(client) => {
                let state::ClientRecord { instance, holder } = client.clone();
                let holder = holder.map(|held| RecordHolder { peer: held.peer, principal: held.principal });
                let record = ClientRecord { instance, holder };
                let Err(error) = until_changed(required, || records.add_client(&record)) else { continue };
                failed.remember = true;
                if let Some((error, skipped)) = logged(error) {
                    let client = state::owner_of_instance(&record.instance).escape_ascii();
                    tracing::warn!(
                        %error, skipped, %client,
                        "an NFSv4 client can't be recorded: after a restart it won't be able to reclaim"
                    );
                }
            }
        }
    }
    if let Err(error) = until_changed(required, || records.sync()) {
        failed.forget |= group.iter().any(RecordChange::forgets);
        failed.remember |= !group.iter().all(RecordChange::forgets);
        if let Some((error, skipped)) = logged(error) {
            tracing::error!(
                %error, skipped,
                "NFSv4 clients can't be recorded or struck off for certain: after a power failure some won't \
                 be able to reclaim, and others might reclaim what is another's"
            );
        }
    }
    failed
}

/// Changes a record. A server of a cluster tries again for a while.
fn until_changed(
    required: Option<&RequiredRecords>,
    mut change: impl FnMut() -> io::Result<()>,
) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        let changed = change();
        if changed.is_ok() || required.is_none_or(|required| begun.elapsed() >= required.timeout) {
            return changed;
        }
        std::thread::sleep(RETRY_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use recovery::Recovered;

    use super::*;

    /// Fails so many times.
    struct Failing(AtomicUsize);

    impl RecoveryStore for Failing {
        fn load(&self) -> Recovered {
            Recovered::default()
        }

        fn set_lease(&self, _: Duration) -> io::Result<()> {
            Ok(())
        }

        fn add_client(&self, _: &ClientRecord) -> io::Result<()> {
            let left = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            left.map_or(Ok(()), |_| Err(io::ErrorKind::TimedOut.into()))
        }

        fn remove_client(&self, _: &[u8]) -> io::Result<()> {
            Ok(())
        }

        fn sync(&self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Logs what is changed.
    #[derive(Default)]
    struct Logged(Arc<Mutex<Vec<String>>>);

    impl Logged {
        fn log(&self, what: &str, instance: &[u8]) -> io::Result<()> {
            self.0.lock().push(format!("{what}{}", instance.escape_ascii()));
            Ok(())
        }
    }

    impl RecoveryStore for Logged {
        fn load(&self) -> Recovered {
            Recovered::default()
        }

        fn set_lease(&self, _: Duration) -> io::Result<()> {
            Ok(())
        }

        fn add_client(&self, client: &ClientRecord) -> io::Result<()> {
            self.log("+", &client.instance)
        }

        fn remove_client(&self, instance: &[u8]) -> io::Result<()> {
            self.log("-", instance)
        }

        fn sync(&self) -> io::Result<()> {
            self.log("sync", b"")
        }
    }

    #[test]
    fn one_thread_writes_the_changes_of_all_that_wait_in_the_order_of_the_engine() {
        let log = Arc::new(Mutex::default());
        let executor = EffectExecutor::new(Some(Box::new(Logged(Arc::clone(&log)))));
        let remember = |name: &[u8]| state::ClientRecord { instance: name.to_vec(), holder: None };
        let prepare = |forget: &[&[u8]], added: &[&[u8]]| {
            let forget = forget.iter().map(|name| name.to_vec()).collect();
            let remember = added.iter().map(|name| remember(name)).collect();
            executor.prepare(Effects { forget, remember, ..Effects::default() }, Vec::new())
        };
        let runs = [
            prepare(&[], &[b"a"]),
            prepare(&[], &[]),
            prepare(&[b"a", b"b"], &[b"c"]),
            prepare(&[b"c"], &[]),
            prepare(&[b"d"], &[]),
        ];
        assert_eq!(runs.each_ref().map(|run| run.changes_records), [true, false, true, true, true]);
        // Whichever is first.
        executor.write_queue(None);
        let expected = ["+a", "-a", "-b", "sync", "+c", "-c", "-d", "sync"];
        assert_eq!(*log.lock(), expected);
        executor.write_queue(None);
        assert_eq!(*log.lock(), expected, "the others find nothing to do");
        drop(runs);
    }

    #[test]
    fn a_server_of_a_cluster_ends_its_run_if_a_client_cannot_be_recorded() {
        let ended = Arc::new(AtomicUsize::new(0));
        let required = |timeout| {
            let ended = Arc::clone(&ended);
            let give_up = Box::new(move || {
                ended.fetch_add(1, Ordering::SeqCst);
            });
            RequiredRecords { timeout, give_up }
        };
        let adds = |times, required: Option<&RequiredRecords>| {
            let records: Records = Some(Box::new(Failing(AtomicUsize::new(times))));
            let client = state::ClientRecord { instance: vec![0; 16], holder: None };
            write_records(&records, &[RecordChange::Remember(client)], required, None);
            ended.load(Ordering::SeqCst)
        };
        assert_eq!(adds(usize::MAX, None), 0, "a single server goes on");
        assert_eq!(adds(2, Some(&required(Duration::MAX))), 0, "it is tried again");
        assert_eq!(adds(usize::MAX, Some(&required(Duration::ZERO))), 1);
    }
}
