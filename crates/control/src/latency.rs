//! Times, counted in buckets. Server and client have the same buckets, so that their times can be compared.

use std::array;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::exposition::HistogramSample;

/// The inclusive upper bounds of the buckets, in nanoseconds. The last bucket has no bound.
pub const LATENCY_BOUNDS: [u64; 16] = [
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    50_000_000,
    250_000_000,
    1_000_000_000,
];

const BUCKETS: usize = LATENCY_BOUNDS.len() + 1;

/// How many times were in each bucket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Latencies {
    /// The sum of all times, in nanoseconds.
    pub nanoseconds: u64,
    /// The number of times in each bucket alone, in the order of [`LATENCY_BOUNDS`].
    pub counts: [u64; BUCKETS],
}

impl Latencies {
    /// The number of all times.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The buckets in seconds, as Prometheus has them.
    #[must_use]
    pub fn histogram(&self) -> HistogramSample {
        // The quotient is the nearest to the decimal fraction, so it is printed as that.
        let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
        let bounds = LATENCY_BOUNDS.map(seconds).into_iter().chain([f64::INFINITY]);
        HistogramSample { sum: seconds(self.nanoseconds), buckets: bounds.zip(self.counts).collect() }
    }
}

impl AddAssign for Latencies {
    fn add_assign(&mut self, other: Self) {
        self.nanoseconds += other.nanoseconds;
        self.counts.iter_mut().zip(other.counts).for_each(|(sum, count)| *sum += count);
    }
}

/// [`Latencies`] that threads count, without order between them: no decision depends on them.
#[derive(Debug, Default)]
pub struct LatencyCounters {
    nanoseconds: AtomicU64,
    counts: [AtomicU64; BUCKETS],
}

impl LatencyCounters {
    /// Counts a time. One beyond 584 years counts as that.
    pub fn record(&self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let bucket = LATENCY_BOUNDS.iter().position(|bound| nanoseconds <= *bound);
        self.counts[bucket.unwrap_or(LATENCY_BOUNDS.len())].fetch_add(1, Relaxed);
        self.nanoseconds.fetch_add(nanoseconds, Relaxed);
    }

    /// The counts as they stand.
    #[must_use]
    pub fn totals(&self) -> Latencies {
        Latencies {
            nanoseconds: self.nanoseconds.load(Relaxed),
            counts: array::from_fn(|bucket| self.counts[bucket].load(Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_their_buckets() {
        let counters = LatencyCounters::default();
        let times = [0, 1_000, 1_001, 1_000_000_000, 1_000_000_001];
        times.iter().for_each(|time| counters.record(Duration::from_nanos(*time)));
        let mut totals = counters.totals();
        assert_eq!((totals.counts[0], totals.counts[1], totals.counts[15], totals.counts[16]), (2, 1, 1, 1));
        assert_eq!((totals.count(), totals.nanoseconds), (5, 2_000_002_002));
        let histogram = totals.histogram();
        assert_eq!((histogram.sum, histogram.buckets[1]), (2.000_002_002, (2.5e-6, 1)));
        assert_eq!(histogram.buckets.last(), Some(&(f64::INFINITY, 1)));
        totals += counters.totals();
        assert_eq!((totals.count(), totals.counts[0]), (10, 4));
    }
}
