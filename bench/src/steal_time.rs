//! Time that a virtual machine's host gave to others ("steal" in proc(5)): results measured meanwhile are
//! unreliable.

use std::fs;

/// The processors' time since boot, in ticks.
#[derive(Debug, Clone, Copy)]
pub struct CpuTime {
    all: u64,
    stolen: u64,
}

impl CpuTime {
    /// The time now.
    pub fn now() -> Self {
        Self::read(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    fn read(stat: &str) -> Self {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu ")).unwrap_or_default();
        // user, nice, system, idle, iowait, irq, softirq, steal; later fields are included in user and nice.
        let ticks: Vec<u64> =
            line.split_whitespace().take(8).filter_map(|ticks| ticks.parse().ok()).collect();
        Self { all: ticks.iter().sum(), stolen: ticks.get(7).copied().unwrap_or(0) }
    }

    /// The steal time since `earlier`, in percent of all time.
    pub fn stolen_since(self, earlier: Self) -> u64 {
        100 * self.stolen.saturating_sub(earlier.stolen) / self.all.saturating_sub(earlier.all).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_a_percentage_of_all_time() {
        let earlier = CpuTime::read("cpu  10 0 10 60 0 0 0 20 5 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n");
        let now = CpuTime::read("cpu  30 0 30 100 10 5 5 70 9 0\n");
        assert_eq!(now.stolen_since(earlier), 33);
        assert_eq!(now.stolen_since(now), 0);
        assert_eq!(CpuTime::read("").stolen_since(earlier), 0);
    }
}
