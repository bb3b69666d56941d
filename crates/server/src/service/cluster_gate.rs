//! Which NFSv4 calls, and requests of lanes, a server of a cluster may execute now.
//!
//! The cluster's thread permits calls for a short time, again and again (`lifecycle::cluster`). If it can't
//! run, the time passes, and calls get no answer: what the server would confirm may be another's by now.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The time between two looks at running calls.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// The gate of a server of a cluster.
///
/// At first calls are postponed (NFS4ERR_DELAY), until it is known whether clients may reclaim: a client that
/// is refused gives up what it had.
#[derive(Debug)]
pub(crate) struct ClusterGate {
    start: Instant,
    /// Whether NFSv4.0 is served.
    pub has_v40: bool,
    /// The time until which calls are executed, in milliseconds since `start`.
    open_until: AtomicU64,
    /// Calls are executed, and no longer postponed.
    executes: AtomicBool,
    /// It stays closed.
    has_ended: AtomicBool,
    /// The running calls of even and of odd generations.
    running: [AtomicUsize; 2],
    generation: AtomicUsize,
}

/// What happens to a call.
#[derive(Debug)]
pub(crate) enum CallEntry<'a> {
    /// It gets no answer.
    Refused,
    /// The client is to try again later.
    Postponed,
    /// It is executed.
    Executed {
        /// Counts as running until it is dropped.
        _call: RunningCall<'a>,
    },
}

/// A call in execution.
#[derive(Debug)]
pub(crate) struct RunningCall<'a>(&'a AtomicUsize);

impl Drop for RunningCall<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl ClusterGate {
    pub fn new(has_v40: bool) -> Self {
        Self {
            start: Instant::now(),
            has_v40,
            open_until: AtomicU64::new(0),
            executes: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            running: Default::default(),
            generation: AtomicUsize::new(0),
        }
    }

    fn millis(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.start).as_millis()).unwrap_or(u64::MAX)
    }

    /// Begins a call.
    pub fn enter(&self) -> CallEntry<'_> {
        loop {
            let generation = self.generation.load(Ordering::SeqCst);
            let running = &self.running[generation & 1];
            running.fetch_add(1, Ordering::SeqCst);
            let call = RunningCall(running);
            // A call that has entered after the generation's end would not be waited for.
            if self.generation.load(Ordering::SeqCst) == generation {
                return match (self.executes.load(Ordering::SeqCst), self.is_open()) {
                    (false, _) => CallEntry::Postponed,
                    (true, false) => CallEntry::Refused,
                    (true, true) => CallEntry::Executed { _call: call },
                };
            }
        }
    }

    /// Whether calls may be answered now. A call that was executed for so long that it isn't open any more
    /// gets no answer either: what it would confirm may be another's by now.
    pub fn is_open(&self) -> bool {
        !self.has_ended.load(Ordering::SeqCst)
            && self.millis(Instant::now()) < self.open_until.load(Ordering::SeqCst)
    }

    /// From now on calls are executed while it is open.
    pub fn execute_calls(&self) {
        self.executes.store(true, Ordering::SeqCst);
    }

    /// Opens it until then; `None` closes it for now.
    pub fn open(&self, until: Option<Instant>) {
        self.open_until.store(until.map_or(0, |until| self.millis(until)), Ordering::SeqCst);
    }

    /// Closes it for good: this run answers nothing any more.
    pub fn end(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
    }

    /// Waits until all calls that have begun before have ended. One thread at a time may wait.
    pub fn wait_for_running(&self) {
        let generation = self.generation.fetch_add(1, Ordering::SeqCst);
        while self.running[generation & 1].load(Ordering::SeqCst) > 0 {
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_run_while_it_is_open_and_are_waited_for() {
        let gate = ClusterGate::new(false);
        assert!(matches!(gate.enter(), CallEntry::Postponed));
        gate.execute_calls();
        assert!(matches!(gate.enter(), CallEntry::Refused), "closed");
        gate.open(Some(Instant::now() + Duration::from_secs(3600)));
        let early = gate.enter();
        assert!(matches!(early, CallEntry::Executed { .. }));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| gate.wait_for_running());
            while gate.generation.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            // Later calls run meanwhile, and aren't waited for.
            let late = gate.enter();
            assert!(!waiting.is_finished());
            drop(early);
            waiting.join().unwrap();
            drop(late);
        });
        assert!(gate.is_open());
        let running = gate.enter();
        gate.open(None);
        assert!(!gate.is_open(), "what runs isn't answered");
        drop(running);
        assert!(matches!(gate.enter(), CallEntry::Refused));
        gate.end();
        gate.open(Some(Instant::now() + Duration::from_secs(3600)));
        assert!(matches!(gate.enter(), CallEntry::Refused), "for good");
        assert!(gate.running.iter().all(|running| running.load(Ordering::SeqCst) == 0));
    }
}
