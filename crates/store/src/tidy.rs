//! The thread that closes what nobody uses any more: one for all stores of the process, while there are any.

use std::sync::{Mutex, PoisonError, Weak};
use std::time::Duration;

use crate::open::Inner;

/// Time between two rounds.
const ROUND: Duration = Duration::from_secs(1);

/// The stores to look after; `None` while no thread runs.
static STORES: Mutex<Option<Vec<Weak<Inner>>>> = Mutex::new(None);

/// Looks after a store until it is gone. Without the thread (none could be started) descriptors are bounded all the same.
pub(crate) fn register(store: Weak<Inner>) {
    let mut stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
    match &mut *stores {
        Some(all) => all.push(store),
        None => match std::thread::Builder::new().name("store-tidy".into()).spawn(run) {
            Ok(_) => *stores = Some(vec![store]),
            Err(error) => tracing::warn!(%error, "no thread to close idle files"),
        },
    }
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
            store.tidy();
        }
    }
}
