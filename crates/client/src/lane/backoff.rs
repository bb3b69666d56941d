//! The times of probes for a lane: a state machine with the clock passed in.

use std::time::{Duration, Instant};

/// The minimum pause between probes.
const MIN_PAUSE: Duration = Duration::from_millis(100);

/// The maximum pause between probes.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// The length of a lane's first round; each further one is twice as long, up to [`MAX_PAUSE`]. A server
/// grants nothing in its grace period, in which the lane after a restart is established.
const MIN_ROUND: Duration = Duration::from_secs(1);

/// When the next probe is due.
#[derive(Debug, Default)]
pub(super) struct ProbeBackoff {
    failures: u32,
    pub(super) not_before: Option<Instant>,
    /// The number of reconnects at the last probe.
    reconnects: u64,
    /// READs and WRITEs over the wire since the last probe.
    wire_ios: u64,
    /// The number of rounds with the same lane. A refused file may request a grant again in each.
    round: u32,
    /// The beginning of the round, and its length.
    round_began: Option<(Instant, Duration)>,
}

impl ProbeBackoff {
    /// Counts one READ or WRITE over the wire. Returns whether a probe is due. `throttle` is a power of two,
    /// or 0.
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

    /// Counts one READ or WRITE over the wire of a file that the lane has refused. Returns the round. In
    /// another round the file may request a grant again, because the export's options may have changed.
    pub(super) fn round(&mut self, now: Instant, throttle: u32) -> u32 {
        self.wire_ios += 1;
        let (began, length) = *self.round_began.get_or_insert((now, MIN_ROUND));
        let throttled = throttle != 0 && self.wire_ios >= u64::from(throttle);
        if throttled || now.saturating_duration_since(began) >= length {
            self.wire_ios = 0;
            self.round = self.round.wrapping_add(1);
            self.round_began = Some((now, (length * 2).min(MAX_PAUSE)));
        }
        self.round
    }

    /// Notes the start of a probe.
    pub(super) const fn begin(&mut self, reconnects: u64) {
        self.reconnects = reconnects;
        self.wire_ios = 0;
        self.not_before = None;
    }

    /// Notes that the probe found no lane. `again` means that there may be one later.
    /// Returns the pause until the next probe.
    pub(super) fn failed(&mut self, now: Instant, again: bool) -> Duration {
        let pause = pause(self.failures);
        self.failures = self.failures.saturating_add(1);
        self.not_before = again.then(|| now + pause);
        pause
    }

    /// Notes that the probe found a lane.
    pub(super) const fn succeeded(&mut self) {
        self.failures = 0;
        self.not_before = None;
        self.round_began = None;
    }

    /// Notes that the lane has ended.
    pub(super) fn lost(&mut self, now: Instant) {
        self.not_before = Some(now);
    }
}

/// The pause after this many failed probes.
pub(super) fn pause(failures: u32) -> Duration {
    MIN_PAUSE.saturating_mul(1 << failures.min(16)).min(MAX_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_was_never_local_probes_after_reconnects_and_by_throttle_only() {
        let now = Instant::now();
        let later = now + Duration::from_secs(3600);
        let mut backoff = ProbeBackoff::default();
        backoff.begin(0);
        backoff.failed(now, false);
        assert!(!backoff.is_due(later, 0, 0));
        assert!(backoff.is_due(later, 1, 0), "after a reconnect");
        backoff.begin(1);
        backoff.failed(now, false);
        assert!((0..7).all(|_| !backoff.is_due(later, 1, 8)));
        assert!(backoff.is_due(later, 1, 8), "every 8 reads and writes");
    }

    #[test]
    fn a_refused_file_may_request_a_grant_again_in_each_round() {
        let now = Instant::now();
        let mut backoff = ProbeBackoff::default();
        assert!((0..1000).all(|_| backoff.round(now, 0) == 0));
        let mut lengths = Vec::new();
        for _ in 0..2 {
            let mut began = now;
            for _ in 0..7 {
                let round = backoff.round(began, 0);
                let is_next = |second: &u64| backoff.round(began + Duration::from_secs(*second), 0) != round;
                let length = (1..).find(is_next).unwrap();
                lengths.push(length);
                began += Duration::from_secs(length);
            }
            // A new lane begins with short rounds.
            backoff.succeeded();
        }
        assert_eq!(lengths, [[1, 2, 4, 8, 16, 30, 30]; 2].concat());
        let mut throttled = ProbeBackoff::default();
        let rounds: Vec<u32> = (0..9).map(|_| throttled.round(now, 4)).collect();
        assert_eq!(rounds, [0, 0, 0, 1, 1, 1, 1, 2, 2]);
    }

    #[test]
    fn a_lost_lane_is_probed_for_at_once_and_then_with_growing_pauses() {
        let mut now = Instant::now();
        let mut backoff = ProbeBackoff::default();
        backoff.begin(0);
        backoff.succeeded();
        assert!(!backoff.is_due(now, 0, 0));
        backoff.lost(now);
        let mut pauses = Vec::new();
        for _ in 0..20 {
            assert!(backoff.is_due(now, 0, 0));
            backoff.begin(0);
            backoff.failed(now, true);
            let at = backoff.not_before.unwrap();
            assert!(!backoff.is_due(at - Duration::from_millis(1), 0, 0));
            pauses.push(at - now);
            now = at;
        }
        assert_eq!(pauses[0], MIN_PAUSE);
        assert_eq!(pauses[1], MIN_PAUSE * 2);
        assert_eq!(pauses[19], MAX_PAUSE);
    }
}
