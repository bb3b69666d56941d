//! Log lines that clients can provoke: a few a minute of each kind, so that nobody fills the disk with them.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How many lines of a kind are written in one [`PERIOD`].
const MOST: u32 = 10;
const PERIOD: Duration = Duration::from_secs(60);

/// One kind of line.
#[derive(Debug)]
pub(super) struct LogLimit {
    counted: Mutex<Counted>,
}

/// What was written, and what wasn't, since a period began.
#[derive(Debug)]
struct Counted {
    since: Option<Duration>,
    written: u32,
    skipped: u64,
}

impl LogLimit {
    pub const fn new() -> Self {
        Self { counted: Mutex::new(Counted { since: None, written: 0, skipped: 0 }) }
    }

    /// Whether a line may be written now; if so how many weren't since the last one.
    pub fn admit(&self) -> Option<u64> {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        self.counted.lock().admit(START.elapsed())
    }
}

impl Counted {
    fn admit(&mut self, now: Duration) -> Option<u64> {
        if self.since.is_none_or(|since| now >= since + PERIOD) {
            (self.since, self.written) = (Some(now), 0);
        }
        if self.written >= MOST {
            self.skipped += 1;
            return None;
        }
        self.written += 1;
        Some(std::mem::take(&mut self.skipped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_lines_a_minute_and_how_many_there_would_have_been() {
        let mut counted = Counted { since: None, written: 0, skipped: 0 };
        let written =
            |counted: &mut Counted, now| (0..100).filter_map(|_| counted.admit(now)).collect::<Vec<_>>();
        assert_eq!(written(&mut counted, Duration::from_secs(5)), [0; MOST as usize]);
        assert!(written(&mut counted, Duration::from_secs(64)).is_empty());
        let later = written(&mut counted, Duration::from_secs(65));
        assert_eq!((later.len(), later[0], later[1]), (MOST as usize, 190, 0));
    }
}
