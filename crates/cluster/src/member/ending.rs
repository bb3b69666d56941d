//! The end of a run: it stops, is drained, or starts again.
//!
//! It falls silent first. The filesystem holds its clients' state until all nodes enforce: only then can it
//! end without others getting what its clients will reclaim.

use std::time::Instant;

use super::{Member, Task};
use crate::database::Versioned;
use crate::event::{Effect, RestartReason};

/// Why a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunEnd {
    /// The server stops.
    Stop { has_clients: bool },
    /// It starts again.
    Restart(RestartReason),
}

impl Member {
    /// Falls silent, and leaves the database so that the clients may reclaim. Returns whether anything was
    /// begun.
    pub(super) fn decide_ending(&mut self, now: Instant, seen: &Versioned) -> bool {
        let database = &seen.database;
        let node = self.config.node.clone();
        if !self.is_silent {
            return self.begin(Task::FallSilent, Effect::FallSilent);
        }
        let notes = database.notes.get(&node);
        let is_released =
            database.in_grace() && notes.is_some_and(|notes| notes.released == database.current);
        let Some(flags) = database.flags(&node) else {
            // The successor has removed it, and has yet to see that the filesystem holds its clients' state.
            return (is_released || !database.is_taken_over(&node)) && self.finish();
        };
        // It must be seen that the session is still alive when all others enforce.
        let probed = self.probes.since();
        let is_held = self.others_enforce.is_some_and(|since| probed.is_some_and(|probed| probed >= since));
        if database.is_taken_over(&node) {
            // What former runs have left is for the successor to examine.
            let is_own = notes.is_some_and(|notes| notes.sessions == [self.config.session.as_str()]);
            if !is_held {
                return false;
            }
            if is_own && !is_released {
                return self.write(now, seen, database.release_drained(&node));
            }
            // Before the successor accepts reclaims, which would conflict with it.
            if is_own && !self.has_released {
                return self.begin(Task::ReleaseOwn, Effect::ReleaseOwn);
            }
            return self.write(now, seen, database.depart(&node));
        }
        let has_state = match self.ending {
            Some(RunEnd::Stop { has_clients }) => has_clients || flags.needs_grace(),
            _ => true,
        };
        if !self.has_served {
            return self.finish();
        }
        if !has_state {
            if flags.enforces() && notes.is_none_or(|notes| notes.sessions.is_empty()) {
                return self.finish();
            }
            return self.write(now, seen, database.stop(&node));
        }
        if !(database.in_grace() && flags.needs_grace() && flags.enforces()) {
            return self.write(now, seen, database.begin_recovery(&node));
        }
        if is_released {
            return self.finish();
        }
        is_held && self.write(now, seen, database.release(&node, &self.config.session, &[&node]))
    }

    fn finish(&mut self) -> bool {
        self.end(match self.ending {
            Some(RunEnd::Restart(reason)) => Effect::Restart(reason),
            _ => Effect::Leave,
        });
        false
    }
}
