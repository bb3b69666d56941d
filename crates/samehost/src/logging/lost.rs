//! The number of lines for which a log had no room.
//!
//! Servers and mounts don't wait for their log: one that takes no lines must not stop a filesystem.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The lines of this process.
pub static LOST_LINES: LostLines = LostLines { lost: AtomicU64::new(0), is_reported: AtomicBool::new(false) };

/// The number of lost lines, and whether the log has it.
pub struct LostLines {
    lost: AtomicU64,
    is_reported: AtomicBool,
}

impl LostLines {
    /// Counts a line that was lost. A report isn't counted, but made again.
    pub fn add(&self, is_report: bool) {
        if !is_report {
            self.lost.fetch_add(1, Relaxed);
        }
        self.is_reported.store(false, Relaxed);
    }

    /// The number since the start, if it is to be reported. The caller reports it with the target
    /// [`TARGET`](super::TARGET).
    pub fn unreported(&self) -> Option<u64> {
        let lost = self.lost.load(Relaxed);
        (lost > 0 && !self.is_reported.swap(true, Relaxed)).then_some(lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_reported_again_if_it_grows_or_the_report_is_lost() {
        let lines = LostLines { lost: AtomicU64::new(0), is_reported: AtomicBool::new(false) };
        assert_eq!(lines.unreported(), None);
        lines.add(false);
        lines.add(false);
        assert_eq!((lines.unreported(), lines.unreported()), (Some(2), None));
        lines.add(true);
        assert_eq!((lines.unreported(), lines.unreported()), (Some(2), None));
        lines.add(false);
        assert_eq!(lines.unreported(), Some(3));
    }
}
