//! A bound on log lines that peers can cause thousands of times a second.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The period of a bound.
const PERIOD: Duration = Duration::from_secs(60);

/// One kind of log line, limited to a number of lines a minute.
#[derive(Debug)]
pub struct LogLimit {
    lines_a_minute: u32,
    counted: Mutex<Counted>,
}

/// The lines written and skipped since a minute began.
#[derive(Debug)]
struct Counted {
    since: Option<Instant>,
    written: u32,
    skipped: u64,
}

impl LogLimit {
    /// A limit of `lines_a_minute` lines.
    #[must_use]
    pub const fn new(lines_a_minute: u32) -> Self {
        Self { lines_a_minute, counted: Mutex::new(Counted { since: None, written: 0, skipped: 0 }) }
    }

    /// Whether a line may be written at `now`. If so, returns the number of lines skipped since the last one.
    pub fn admit(&self, now: Instant) -> Option<u64> {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if counted.since.is_none_or(|since| now.saturating_duration_since(since) >= PERIOD) {
            counted.since = Some(now);
            counted.written = 0;
        }
        if counted.written >= self.lines_a_minute {
            counted.skipped += 1;
            return None;
        }
        counted.written += 1;
        Some(std::mem::take(&mut counted.skipped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_lines_a_minute_and_how_many_were_left_out() {
        let limit = LogLimit::new(10);
        let begin = Instant::now();
        let written = |seconds| {
            let now = begin + Duration::from_secs(seconds);
            (0..100).filter_map(|_| limit.admit(now)).collect::<Vec<_>>()
        };
        assert_eq!(written(0), [0; 10]);
        assert!(written(59).is_empty());
        let later = written(60);
        assert_eq!((later.len(), later[0], later[1]), (10, 190, 0));
    }
}
