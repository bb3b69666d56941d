//! Saying the same thing seldom: what strangers can cause thousands of times a second mustn't fill the log.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// One cause of log lines: it is said at most once in an interval, with how often it came up.
#[derive(Debug)]
pub struct Seldom {
    every: Duration,
    /// When it was said last, and how often it has come up since.
    last: Mutex<(Option<Instant>, u64)>,
}

impl Seldom {
    /// At most once a minute.
    pub const MINUTE: Duration = Duration::from_secs(60);

    /// Nothing has been said.
    #[must_use]
    pub const fn new(every: Duration) -> Self {
        Self { every, last: Mutex::new((None, 0)) }
    }

    /// It has come up, at `now`. How often it has since it was said last, this time included, if it is to be said now.
    pub fn comes_up(&self, now: Instant) -> Option<u64> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.1 += 1;
        if last.0.is_some_and(|said| now.saturating_duration_since(said) < self.every) {
            return None;
        }
        last.0 = Some(now);
        Some(std::mem::take(&mut last.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_once_in_an_interval_with_how_often_it_came_up() {
        let seldom = Seldom::new(Seldom::MINUTE);
        let begin = Instant::now();
        let at = |seconds| seldom.comes_up(begin + Duration::from_secs(seconds));
        assert_eq!(at(0), Some(1));
        assert_eq!((at(1), at(30), at(59)), (None, None, None));
        assert_eq!(at(60), Some(4));
        assert_eq!((at(61), at(200)), (None, Some(2)));
    }
}
