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
use super::state_resources::StateResources;

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
    pub fn apply(self, callbacks: &Callbacks) {
        let Self { mut effects, closed, records } = self;
        if let Some(records) = records {
            // This thread may have assumed the ids of a client's user, who has no access to the state
            // directory.
            let recorded = store::as_process_user(|| {
                write_records(&records, &effects);
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
fn write_records(records: &Records, effects: &Effects<FileHandle, StateResources>) {
    static LIMIT: LogLimit = LogLimit::new(10);
    let Some(records) = records else { return };
    let failed = |result: io::Result<()>| {
        let error = result.err()?;
        LIMIT.admit(Instant::now()).map(|skipped| (error, skipped))
    };
    for instance in &effects.forget {
        if let Some((error, skipped)) = failed(records.remove_client(instance)) {
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
