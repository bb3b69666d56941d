//! The execution of the engine's effects, after the engine's lock is dropped.
//!
//! Client records change in the order in which the engine decided: [`EffectExecutor::prepare`] locks the
//! store while the engine is still locked, and [`PreparedEffects::apply`] writes to it afterwards.

use std::io;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use fairness::LogLimit;
use parking_lot::{Mutex, MutexGuard};
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

/// Runs effects, and has what they need beside the callbacks.
pub(super) struct EffectExecutor {
    records: Mutex<Records>,
    /// Set on a server of a cluster.
    pub required: OnceLock<RequiredRecords>,
}

/// Effects that are taken from the engine and not yet run.
#[must_use]
pub(super) struct PreparedEffects<'a> {
    effects: Effects<FileHandle, StateResources>,
    /// The files that no client has open any more.
    closed: Vec<PreservedFile>,
    /// Locked if the effects change records.
    records: Option<MutexGuard<'a, Records>>,
    required: Option<&'a RequiredRecords>,
}

impl EffectExecutor {
    pub fn new(records: Records) -> Self {
        Self { records: Mutex::new(records), required: OnceLock::new() }
    }

    /// Prepares effects to be applied. To be called with the engine locked.
    pub fn prepare(
        &self,
        effects: Effects<FileHandle, StateResources>,
        closed: Vec<PreservedFile>,
    ) -> PreparedEffects<'_> {
        let changes_records = !effects.remember.is_empty() || !effects.forget.is_empty();
        let records = changes_records.then(|| self.records.lock());
        PreparedEffects { effects, closed, records, required: self.required.get() }
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
        let Self { mut effects, closed, records, required } = self;
        if let Some(records) = records {
            // This thread may have assumed the ids of a client's user, who has no access to the state
            // directory.
            let recorded = store::as_process_user(|| {
                write_records(&records, &effects, required, kept_locks);
                store::Result::Ok(())
            });
            if let Err(error) = recorded {
                tracing::error!(%error, "NFSv4 clients can't be recorded or struck off");
            }
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
    effects: &Effects<FileHandle, StateResources>,
    required: Option<&RequiredRecords>,
    kept_locks: Option<&KeptLocks>,
) {
    static LIMIT: LogLimit = LogLimit::new(10);
    let Some(records) = records else { return };
    let failed = |result: io::Result<()>| {
        let error = result.err()?;
        LIMIT.admit(Instant::now()).map(|skipped| (error, skipped))
    };
    for instance in &effects.forget {
        let removed = until_changed(required, || records.remove_client(instance));
        if removed.is_err()
            && let Some(kept) = kept_locks
        {
            kept.unmark();
        }
        if let Some((error, skipped)) = failed(removed) {
            let client = state::owner_of_instance(instance).escape_ascii();
            tracing::error!(
                %error, skipped, %client,
                "an NFSv4 client can't be struck off: after a restart it might reclaim what is another's"
            );
        }
    }
    for client in &effects.remember {
        let state::ClientRecord { instance, holder } = client.clone();
        let holder = holder.map(|held| RecordHolder { peer: held.peer, principal: held.principal });
        let record = ClientRecord { instance, holder };
        let added = until_changed(required, || records.add_client(&record));
        if added.is_err()
            && let Some(required) = required
        {
            (required.give_up)();
        }
        if let Some((error, skipped)) = failed(added) {
            let client = state::owner_of_instance(&record.instance).escape_ascii();
            tracing::warn!(
                %error, skipped, %client,
                "an NFSv4 client can't be recorded: after a restart it won't be able to reclaim"
            );
        }
    }
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
            let effects = Effects { remember: vec![client], ..Effects::default() };
            write_records(&records, &effects, required, None);
            ended.load(Ordering::SeqCst)
        };
        assert_eq!(adds(usize::MAX, None), 0, "a single server goes on");
        assert_eq!(adds(2, Some(&required(Duration::MAX))), 0, "it is tried again");
        assert_eq!(adds(usize::MAX, Some(&required(Duration::ZERO))), 1);
    }
}
