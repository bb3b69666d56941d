//! Whether a probe is running in the background. There is one at a time. If another is wanted meanwhile, it
//! follows: what the first one has found may have ended again, and nothing asks a second time before the next
//! I/O.

use std::sync::atomic::{AtomicU8, Ordering::SeqCst};

const IDLE: u8 = 0;
const RUNNING: u8 = 1;
const WANTED_AGAIN: u8 = 2;

#[derive(Debug, Default)]
pub(super) struct BackgroundProbe(AtomicU8);

impl BackgroundProbe {
    /// A probe is wanted. Returns whether the caller has to begin it.
    pub(super) fn want(&self) -> bool {
        let next = |state| Some(if state == IDLE { RUNNING } else { WANTED_AGAIN });
        self.0.fetch_update(SeqCst, SeqCst, next) == Ok(IDLE)
    }

    /// A probe is done. Returns whether another one has to follow.
    pub(super) fn done(&self) -> bool {
        let next = |state| Some(if state == WANTED_AGAIN { RUNNING } else { IDLE });
        self.0.fetch_update(SeqCst, SeqCst, next) == Ok(WANTED_AGAIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_that_is_wanted_during_another_follows_it() {
        let probe = BackgroundProbe::default();
        assert!(probe.want() && !probe.done());
        assert!(probe.want(), "the first one is done");
        assert!(!probe.want() && !probe.want());
        assert!(probe.done() && !probe.done(), "one follows for both");
        assert!(probe.want());
    }
}
