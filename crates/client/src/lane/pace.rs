//! When to look for a lane next: a machine with the clock passed in.

use std::time::{Duration, Instant};

/// The first pause between probes.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause between probes.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Pace {
    failures: u32,
    pub(super) not_before: Option<Instant>,
    /// How often the connection had been made anew at the last probe.
    reconnects: u64,
    /// Reads and writes on the wire since the last probe.
    wire_ios: u64,
    /// How often files were let ask the same lane again, and when last.
    round: u32,
    round_began: Option<Instant>,
}

impl Pace {
    /// One read or write goes over the wire: is a probe due? `throttle`: a power of two, or 0.
    pub(super) fn is_due(&mut self, now: Instant, reconnects: u64, throttle: u32) -> bool {
        self.wire_ios += 1;
        if reconnects != self.reconnects {
            return true;
        }
        if throttle != 0 && self.wire_ios >= u64::from(throttle) {
            return true;
        }
        // A session that was never local is probed again only for the reasons above.
        self.not_before.is_some_and(|at| now >= at)
    }

    /// One read or write goes over the wire although there is a lane, which has refused the file. It may ask
    /// again in another round: the export's options may have changed. Returns the round.
    pub(super) fn round(&mut self, now: Instant, throttle: u32) -> u32 {
        self.wire_ios += 1;
        let began = *self.round_began.get_or_insert(now);
        let throttled = throttle != 0 && self.wire_ios >= u64::from(throttle);
        if throttled || now.saturating_duration_since(began) >= LONGEST_PAUSE {
            self.wire_ios = 0;
            self.round = self.round.wrapping_add(1);
            self.round_began = Some(now);
        }
        self.round
    }

    /// A probe begins.
    pub(super) const fn begin(&mut self, reconnects: u64) {
        self.reconnects = reconnects;
        self.wire_ios = 0;
        self.not_before = None;
    }

    /// It found no lane. `again`: there was one before, so it may come back. Returns the pause until the next
    /// one.
    pub(super) fn failed(&mut self, now: Instant, again: bool) -> Duration {
        let pause = pause(self.failures);
        self.failures = self.failures.saturating_add(1);
        self.not_before = again.then(|| now + pause);
        pause
    }

    /// It found one.
    pub(super) const fn succeeded(&mut self) {
        self.failures = 0;
        self.not_before = None;
    }

    /// The lane is gone.
    pub(super) fn lost(&mut self, now: Instant) {
        self.not_before = Some(now);
    }
}

/// The pause after this many that brought no lane.
pub(super) fn pause(failures: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << failures.min(16)).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_was_never_local_probes_only_for_a_reason() {
        let now = Instant::now();
        let later = now + Duration::from_secs(3600);
        let mut pace = Pace::default();
        pace.begin(0);
        pace.failed(now, false);
        assert!(!pace.is_due(later, 0, 0));
        assert!(pace.is_due(later, 1, 0), "after a reconnect");
        pace.begin(1);
        pace.failed(now, false);
        assert!((0..7).all(|_| !pace.is_due(later, 1, 8)));
        assert!(pace.is_due(later, 1, 8), "every 8 reads and writes");
    }

    #[test]
    fn a_file_that_was_refused_may_ask_again_now_and_then() {
        let now = Instant::now();
        let mut pace = Pace::default();
        assert!((0..1000).all(|_| pace.round(now, 0) == 0));
        assert_eq!(pace.round(now + LONGEST_PAUSE, 0), 1);
        assert_eq!(pace.round(now + LONGEST_PAUSE, 0), 1);
        let mut throttled = Pace::default();
        let rounds: Vec<u32> = (0..9).map(|_| throttled.round(now, 4)).collect();
        assert_eq!(rounds, [0, 0, 0, 1, 1, 1, 1, 2, 2]);
    }

    #[test]
    fn a_lost_lane_is_looked_for_at_once_and_then_ever_more_rarely() {
        let mut now = Instant::now();
        let mut pace = Pace::default();
        pace.begin(0);
        pace.succeeded();
        assert!(!pace.is_due(now, 0, 0));
        pace.lost(now);
        let mut pauses = Vec::new();
        for _ in 0..20 {
            assert!(pace.is_due(now, 0, 0));
            pace.begin(0);
            pace.failed(now, true);
            let at = pace.not_before.unwrap();
            assert!(!pace.is_due(at - Duration::from_millis(1), 0, 0));
            pauses.push(at - now);
            now = at;
        }
        assert_eq!(pauses[0], FIRST_PAUSE);
        assert_eq!(pauses[1], FIRST_PAUSE * 2);
        assert_eq!(pauses[19], LONGEST_PAUSE);
    }
}
