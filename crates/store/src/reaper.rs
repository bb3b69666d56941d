//! The thread that closes what nobody uses any more: one for all stores of the process, while there are any.

use std::sync::{Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::inner::StoreInner;

/// Time between two rounds.
const ROUND: Duration = Duration::from_secs(1);

/// The least time between two rounds for want of descriptors, if the first closed less than [`LITTLE`].
const BETWEEN: Duration = Duration::from_millis(50);
const LITTLE: usize = 8;

/// The stores to look after; `None` while no thread runs.
static STORES: Mutex<Option<Vec<Weak<StoreInner>>>> = Mutex::new(None);

/// Looks after a store until it is gone. Without the thread (none could be started) descriptors are bounded
/// all the same.
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

/// Closes what stores keep open for the next call: the process, or the system, has no descriptor left
/// (`EMFILE`, `ENFILE`), and a call that is at hand needs one more. It looks at all files in the caches, so
/// after a round that found little the next one waits for [`BETWEEN`].
pub(crate) fn make_room() {
    static IN_VAIN: Mutex<Option<Instant>> = Mutex::new(None);
    let mut in_vain = IN_VAIN.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Instant::now();
    if in_vain.is_some_and(|last| now.duration_since(last) < BETWEEN) {
        return;
    }
    let stores = STORES.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default();
    let closed: usize =
        stores.iter().filter_map(Weak::upgrade).map(|store| store.release_descriptors()).sum();
    *in_vain = (closed < LITTLE).then_some(now);
    tracing::debug!(closed, "no descriptor is left: what was kept open for later is closed");
}

fn run() {
    loop {
        std::thread::sleep(ROUND);
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
