//! What a virtual machine's host gives to others ("steal" in proc(5)): figures that were measured meanwhile
//! say little.

use std::fs;

/// The processors' time, in ticks.
#[derive(Debug, Clone, Copy)]
pub struct Time {
    all: u64,
    stolen: u64,
}

impl Time {
    /// Since the machine was started.
    pub fn now() -> Self {
        Self::read(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    fn read(stat: &str) -> Self {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu ")).unwrap_or_default();
        // user, nice, system, idle, iowait, irq, softirq, steal; what follows is in user and nice already.
        let ticks: Vec<u64> =
            line.split_whitespace().take(8).filter_map(|ticks| ticks.parse().ok()).collect();
        Self { all: ticks.iter().sum(), stolen: ticks.get(7).copied().unwrap_or(0) }
    }

    /// How many percent of all were stolen since then.
    pub fn stolen_since(self, then: Self) -> u64 {
        100 * self.stolen.saturating_sub(then.stolen) / self.all.saturating_sub(then.all).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stolen_is_a_part_of_all_that_went_by() {
        let then = Time::read("cpu  10 0 10 60 0 0 0 20 5 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n");
        let now = Time::read("cpu  30 0 30 100 10 5 5 70 9 0\n");
        assert_eq!(now.stolen_since(then), 33);
        assert_eq!(now.stolen_since(now), 0);
        assert_eq!(Time::read("").stolen_since(then), 0);
    }
}
