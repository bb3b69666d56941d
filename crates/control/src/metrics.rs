//! The numbers that a process reports, each declared once: field of the JSON, heading, help and kind.
//!
//! [`metrics!`](crate::metrics) makes a struct of a declaration: serde writes it as JSON, and tables are
//! rendered from its [`Metrics::METRICS`]. A number that isn't declared can't be reported.

/// How a number changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Counts up from 0 while the process runs.
    Counter,
    /// Goes up and down.
    Gauge,
}

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricUnit {
    /// Things or events.
    Count,
    /// Bytes.
    Bytes,
}

/// The declaration of one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its field in the JSON.
    pub name: &'static str,
    /// The heading of its column.
    pub title: &'static str,
    /// What it says, in sentences.
    pub help: &'static str,
    /// How it changes.
    pub kind: MetricKind,
    /// What it counts.
    pub unit: MetricUnit,
}

impl Metric {
    /// What it says, how it changes and what it counts.
    #[must_use]
    pub fn description(&self) -> String {
        let kind = match self.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
        };
        let unit = match self.unit {
            MetricUnit::Count => "",
            MetricUnit::Bytes => ", bytes",
        };
        format!("{} ({kind}{unit})", self.help.trim_end_matches('.'))
    }
}

/// A struct of declared numbers.
pub trait Metrics {
    /// The declarations, in the order of the fields.
    const METRICS: &'static [Metric];

    /// The values, in the same order.
    fn values(&self) -> impl Iterator<Item = u64>;
}

/// Declares a struct of `u64` fields that implements [`Metrics`], and serde's traits for JSON.
///
/// The documentation of a field is its help. `counted by` declares a second struct, of atomic counters, with
/// a method `snapshot` that makes the first one. `as` gives the name in the JSON, where it isn't the field's.
///
/// ```
/// use samehost_control::Metrics as _;
///
/// samehost_control::metrics! {
///     /// Files of a cache.
///     pub struct CacheStatus, counted by LiveCache {
///         /// Files that were found.
///         hits: Counter<Count> = "hits",
///         /// Bytes that were read for others.
///         read as "bytes": Counter<Bytes> = "payload",
///     }
/// }
///
/// let live = LiveCache::default();
/// live.read.fetch_add(512, std::sync::atomic::Ordering::Relaxed);
/// assert_eq!(live.snapshot(), CacheStatus { hits: 0, read: 512 });
/// let titles = CacheStatus::METRICS.iter().map(|metric| metric.title);
/// assert!(titles.zip(live.snapshot().values()).eq([("hits", 0), ("payload", 512)]));
/// assert_eq!(CacheStatus::METRICS[1].name, "bytes");
/// assert_eq!(CacheStatus::METRICS[1].help, "Bytes that were read for others.");
/// assert_eq!(CacheStatus::METRICS[1].description(), "Bytes that were read for others (counter, bytes)");
/// ```
#[macro_export]
macro_rules! metrics {
    (
        $(#[doc = $about:literal])+
        $visibility:vis struct $name:ident $(, counted by $live:ident)? {
            $(
                $(#[doc = $help:literal])+
                $field:ident $(as $name_in_json:literal)?: $kind:ident<$unit:ident> = $title:literal
            ),+ $(,)?
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ::serde::Serialize, ::serde::Deserialize)]
        #[serde(default)]
        #[non_exhaustive]
        $visibility struct $name {
            $($(#[doc = $help])+ $(#[serde(rename = $name_in_json)])? pub $field: u64,)+
        }

        impl $crate::Metrics for $name {
            const METRICS: &'static [$crate::Metric] = &[$($crate::Metric {
                name: $crate::metrics! { @name $field $($name_in_json)? },
                title: $title,
                help: concat!($($help),+).trim_ascii(),
                kind: $crate::MetricKind::$kind,
                unit: $crate::MetricUnit::$unit,
            }),+];

            fn values(&self) -> impl Iterator<Item = u64> {
                [$(self.$field),+].into_iter()
            }
        }

        $crate::metrics! { @live $name $($live)? { $($field),+ } }
    };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $name_in_json:literal) => { $name_in_json };
    (@live $name:ident { $($field:ident),+ }) => {};
    (@live $name:ident $live:ident { $($field:ident),+ }) => {
        #[doc = concat!("The counters behind [`", stringify!($name), "`].")]
        #[derive(Debug, Default)]
        pub(crate) struct $live {
            $(pub(crate) $field: ::std::sync::atomic::AtomicU64,)+
        }

        impl $live {
            /// The counters as they stand.
            pub(crate) fn snapshot(&self) -> $name {
                $name { $($field: self.$field.load(::std::sync::atomic::Ordering::Relaxed),)+ }
            }
        }
    };
}
