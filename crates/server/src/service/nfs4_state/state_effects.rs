//! The execution of the engine's effects, after the engine's lock is dropped.
//!
//! Client records change in the order in which the engine decided: [`EffectExecutor::prepare`] locks the
//! store while the engine is still locked, and [`PreparedEffects::apply`] writes to it afterwards.

use std::io;
use std::time::{Duration, Instant};

use fairness::LogLimit;
use parking_lot::{Mutex, MutexGuard};
use recovery::RecoveryStore;
use state::Effects;
use store::{FileHandle, PreservedFile};

use super::callbacks::Callbacks;
use super::inherited::KeptLocks;
use super::state_resources::StateResources;

/// For how long it is tried to remove a client's record that others could suffer from.
const STRIKE_OFF_TIMEOUT: Duration = Duration::from_secs(60);
/// The time between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The client records, or none where they can't be kept.
type Records = Option<Box<dyn RecoveryStore>>;

/// Runs effects, and has what they need beside the callbacks.
pub(super) struct EffectExecutor {
    records: Mutex<Records>,
}

/// Effects that are taken from the engine and not yet run.
#[must_use]
pub(super) struct PreparedEffects<'a> {
    effects: Effects<FileHandle, StateResources>,
    /// The files that no client has open any more.
    closed: Vec<PreservedFile>,
    /// Locked if the effects change records.
    records: Option<MutexGuard<'a, Records>>,
}

impl EffectExecutor {
    pub fn new(records: Records) -> Self {
        Self { records: Mutex::new(records) }
    }

    /// Prepares effects to be applied. To be called with the engine locked.
    pub fn prepare(
        &self,
        effects: Effects<FileHandle, StateResources>,
        closed: Vec<PreservedFile>,
    ) -> PreparedEffects<'_> {
        let changes_records = !effects.remember.is_empty() || !effects.forget.is_empty();
        PreparedEffects { effects, closed, records: changes_records.then(|| self.records.lock()) }
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
        let Self { mut effects, closed, records } = self;
        if let Some(records) = records {
            // This thread may have assumed the ids of a client's user, who has no access to the state
            // directory.
            let recorded = store::as_process_user(|| {
                write_records(&records, &effects, kept_locks);
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
/// after a crash.
fn write_records(
    records: &Records,
    effects: &Effects<FileHandle, StateResources>,
    kept_locks: Option<&KeptLocks>,
) {
    static LIMIT: LogLimit = LogLimit::new(10);
    let Some(records) = records else { return };
    let failed = |result: io::Result<()>| {
        let error = result.err()?;
        LIMIT.admit(Instant::now()).map(|skipped| (error, skipped))
    };
    for instance in &effects.forget {
        let mut removed = records.remove_client(instance);
        if let Some(kept) = kept_locks.filter(|kept| kept.is_marked()) {
            let begun = Instant::now();
            while removed.is_err() && begun.elapsed() < STRIKE_OFF_TIMEOUT {
                std::thread::sleep(RETRY_INTERVAL);
                removed = records.remove_client(instance);
            }
            if removed.is_err() {
                kept.unmark();
            }
        }
        if let Some((error, skipped)) = failed(removed) {
            let client = state::owner_of_instance(instance).escape_ascii();
            tracing::error!(
                %error, skipped, %client,
                "an NFSv4 client can't be struck off: after a restart it might reclaim what is another's"
            );
        }
    }
    for instance in &effects.remember {
        if let Some((error, skipped)) = failed(records.add_client(instance)) {
            let client = state::owner_of_instance(instance).escape_ascii();
            tracing::warn!(
                %error, skipped, %client,
                "an NFSv4 client can't be recorded: after a restart it won't be able to reclaim"
            );
        }
    }
}
