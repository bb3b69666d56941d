//! The thread that closes idle descriptors: one for all stores of the process.

use std::sync::{Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::inner::StoreInner;

/// Time between two rounds.
const REAP_INTERVAL: Duration = Duration::from_secs(1);

/// Minimum time before another call of [`release_descriptors`] after one that closed less than
/// [`FEW_DESCRIPTORS`].
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
const FEW_DESCRIPTORS: usize = 8;

/// The stores to look after; `None` while no thread runs.
static STORES: Mutex<Option<Vec<Weak<StoreInner>>>> = Mutex::new(None);

/// Looks after a store until it is dropped. If no thread could be started, the number of descriptors is
/// bounded all the same.
pub(crate) fn register(store: Weak<StoreInner>) {
    let mut stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
    match &mut *stores {
        Some(all) => all.push(store),
        None => match std::thread::Builder::new().name("store-reaper".into()).spawn(run) {
            Ok(_) => *stores = Some(vec![store]),
            Err(error) => tracing::warn!(%error, "no thread to close idle files"),
        },
    }
}

/// Closes descriptors that stores keep for later calls, when the process or the system has none left
/// (`EMFILE`, `ENFILE`). It examines all cached files, so after a call that closed few descriptors the next
/// one is skipped for [`RETRY_INTERVAL`].
pub(crate) fn release_descriptors() {
    static LAST_IN_VAIN: Mutex<Option<Instant>> = Mutex::new(None);
    let mut in_vain = LAST_IN_VAIN.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Instant::now();
    if in_vain.is_some_and(|last| now.duration_since(last) < RETRY_INTERVAL) {
        return;
    }
    let stores = STORES.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default();
    let closed: usize =
        stores.iter().filter_map(Weak::upgrade).map(|store| store.release_descriptors()).sum();
    *in_vain = (closed < FEW_DESCRIPTORS).then_some(now);
    tracing::debug!(closed, "no descriptor is left: what was kept open for later is closed");
}

fn run() {
    loop {
        std::thread::sleep(REAP_INTERVAL);
        let mut stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(all) = &mut *stores else { return };
        all.retain(|store| store.strong_count() > 0);
        if all.is_empty() {
            *stores = None;
            return;
        }
        let round = all.clone();
        drop(stores);
        for store in round.iter().filter_map(Weak::upgrade) {
            store.reap();
        }
    }
}
