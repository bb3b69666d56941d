//! Metric families: one name with its help, and its samples by labels.
//!
//! Names follow Prometheus's conventions: the prefix `samehost_`, a base unit (seconds, bytes) where there is
//! one, and `_total` for counters, which the encoder appends.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;

use crate::{MetricKind, MetricUnit, Metrics};

/// The labels of a sample.
pub type Labels = Vec<(&'static str, String)>;

/// The values of a histogram.
#[derive(Debug, Clone, PartialEq)]
pub struct HistogramSample {
    /// The sum of the observed values.
    pub sum: f64,
    /// The upper bound of each bucket, the last of them infinite, with the number of values in this bucket
    /// alone.
    pub buckets: Vec<(f64, u64)>,
}

/// Writes a family of counters or gauges. A family without samples isn't written.
///
/// # Errors
/// The writer's.
pub fn family(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    kind: MetricKind,
    samples: impl IntoIterator<Item = (Labels, u64)>,
) -> fmt::Result {
    let mut samples = samples.into_iter().peekable();
    if samples.peek().is_none() {
        return Ok(());
    }
    let metric_type = match kind {
        MetricKind::Counter => MetricType::Counter,
        MetricKind::Gauge => MetricType::Gauge,
    };
    let mut family = encoder.encode_descriptor(name, help, None, metric_type)?;
    for (labels, value) in samples {
        if labels.is_empty() {
            // The encoder writes {} for an empty set.
            put(&mut family, kind, value)?;
        } else {
            put(&mut family.encode_family(&labels)?, kind, value)?;
        }
    }
    Ok(())
}

fn put(sample: &mut MetricEncoder<'_>, kind: MetricKind, value: u64) -> fmt::Result {
    match kind {
        MetricKind::Counter => sample.encode_counter::<Labels, u64, u64>(&value, None),
        MetricKind::Gauge => sample.encode_gauge(&i64::try_from(value).unwrap_or(i64::MAX)),
    }
}

/// Writes a family of histograms. A family without samples isn't written.
///
/// # Errors
/// The writer's.
pub fn histogram(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: impl IntoIterator<Item = (Labels, HistogramSample)>,
) -> fmt::Result {
    let mut samples = samples.into_iter().peekable();
    if samples.peek().is_none() {
        return Ok(());
    }
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    for (labels, HistogramSample { sum, buckets }) in samples {
        let count = buckets.iter().map(|(_, count)| count).sum();
        family.encode_family(&labels)?.encode_histogram::<Labels>(sum, count, &buckets, None)?;
    }
    Ok(())
}

/// Writes a family for each number that a [`Metrics`] type declares: `PREFIX_NAME`, with the unit. `subject`
/// begins the help.
///
/// # Errors
/// The writer's.
pub fn declared<M: Metrics>(
    encoder: &mut DescriptorEncoder<'_>,
    (prefix, subject): (&str, &str),
    samples: &[(Labels, M)],
) -> fmt::Result {
    for (at, metric) in M::METRICS.iter().enumerate() {
        // A unit comes last: `bytes_read` is PREFIX_read_bytes.
        let (metric_name, unit) = match metric.unit {
            MetricUnit::Bytes => {
                let name = metric.name;
                (name.strip_prefix("bytes_").or(name.strip_suffix("_bytes")).unwrap_or(name), "_bytes")
            }
            MetricUnit::Count => (metric.name, ""),
        };
        let name = format!("{prefix}_{metric_name}{unit}");
        let values = samples
            .iter()
            .filter_map(|(labels, numbers)| numbers.values().nth(at).map(|value| (labels.clone(), value)));
        let help = format!("{subject}: {}", metric.help.trim_end_matches('.'));
        family(encoder, &name, &help, metric.kind, values)?;
    }
    Ok(())
}
