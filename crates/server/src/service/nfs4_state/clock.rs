//! The clock of leases: it counts the time in which the server runs.
//!
//! A server that is stopped (SIGSTOP), or on a suspended machine, receives no renewals. Requests that arrive
//! meanwhile wait in the sockets' queues, in any order. If the clock counted this time, a lock request in
//! front of the holder's renewal would take the lock away. So the clock advances by one tick at most between
//! two readings. It is read every second, also without requests.

use std::time::Duration;

use state::Time;

/// The advance in milliseconds after more than [`GAP`] without a reading: that between two regular readings.
const TICK: u64 = 1000;
/// The time without a reading, in milliseconds, after which the server didn't run: two ticks.
const GAP: u64 = 2 * TICK;

/// A clock that stands still while the server doesn't run.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// The time that it shows.
    shown: Time,
    /// The last reading, in milliseconds of the monotonic clock.
    read_at: u64,
}

/// A reading of the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Look {
    pub now: Time,
    /// The time of the reading before, if the server didn't run for a while since then.
    pub away_since: Option<Time>,
}

impl Clock {
    /// Reads the clock when the monotonic one is at `elapsed` since the start. Readings may come out of
    /// order.
    pub fn look(&mut self, elapsed: Duration) -> Look {
        let elapsed = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        let since = elapsed.saturating_sub(self.read_at);
        self.read_at = self.read_at.max(elapsed);
        let before = self.shown;
        if since > GAP {
            self.shown = before.plus(TICK);
            return Look { now: self.shown, away_since: Some(before) };
        }
        self.shown = before.plus(since);
        Look { now: self.shown, away_since: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stands_still_between_readings() {
        let mut clock = Clock::default();
        let mut look = |millis| {
            let Look { now, away_since } = clock.look(Duration::from_millis(millis));
            (now.0, away_since.map(|since| since.0))
        };
        assert_eq!(look(0), (0, None));
        assert_eq!(look(700), (700, None));
        assert_eq!(look(600), (700, None), "a thread that waited for the lock");
        assert_eq!(look(2700), (2700, None));
        assert_eq!(look(4701), (3700, Some(2700)));
        assert_eq!(look(4702), (3701, None), "once");
        assert_eq!(look(4700), (3701, None));
        assert_eq!(look(3_600_000), (4701, Some(3701)), "an hour");
    }
}
