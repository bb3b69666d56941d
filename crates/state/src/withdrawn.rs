//! Files that are served no more: their export has gone, or the filesystem has been unmounted.
//!
//! What their clients had goes at once, and with it everything that was kept open for them: an admin who
//! takes a filesystem away wants it free, and no client can use what it had there, since its handles lead
//! nowhere.

use std::hash::Hash;
use std::sync::Arc;

use crate::engine::Engine;

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// Ends all opens, locks and delegations of the files that `is_gone` says so of, and returns what was
    /// kept open for them. Takes as long as there are states, and is for rare events.
    #[must_use]
    pub fn withdraw(&mut self, is_gone: impl Fn(&K) -> bool) -> Vec<Arc<L>> {
        let gone = self.states.iter().filter(|(_, state)| is_gone(&state.key)).map(|(number, _)| *number);
        let gone: Vec<u64> = gone.collect();
        // The locks of an open go with it, and are gone when it is their turn.
        gone.into_iter().for_each(|number| self.drop_state(number));
        std::mem::take(&mut self.effects.released)
    }
}
