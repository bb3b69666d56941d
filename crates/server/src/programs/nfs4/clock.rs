//! The clock by which leases run: time in which the server could have heard its clients.
//!
//! A server that is stopped (SIGSTOP), or whose machine is suspended, hears no renewal; what was sent
//! meanwhile stands in the sockets' queues, in any order. Had the clock gone on, a lock request in front of
//! its holder's renewal would take the lock away. So the clock doesn't go on by more than a tick between two
//! looks at it; it is looked at every second, also when there is nothing to do.

use std::time::Duration;

use state::Time;

/// How far the clock goes on, in milliseconds, where it wasn't looked at for longer than [`GAP`]: as from one
/// look to the next.
const TICK: u64 = 1000;
/// From how long on, in milliseconds, nobody having looked at the clock means that the server didn't run: two
/// ticks.
const GAP: u64 = 2 * TICK;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// What it shows.
    shown: Time,
    /// When it was looked at last, in milliseconds of the clock that goes on.
    looked: u64,
}

/// What a look at the clock shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Look {
    pub now: Time,
    /// What it showed before, if the server didn't run for a while since.
    pub away_since: Option<Time>,
}

impl Clock {
    /// Looks at the clock when the monotonic one is at `elapsed` since the start. Looks may come late, out of
    /// order.
    pub fn look(&mut self, elapsed: Duration) -> Look {
        let elapsed = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        let since = elapsed.saturating_sub(self.looked);
        self.looked = self.looked.max(elapsed);
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
    fn it_stands_still_while_nobody_looks() {
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
