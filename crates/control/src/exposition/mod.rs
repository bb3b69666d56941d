//! Metrics for Prometheus: their text, and the HTTP endpoint that serves it.
//!
//! A process registers [`Collector`]s, which are asked at each scrape. [`MetricsEndpoint`] answers scrapes;
//! the families of a collector are written with [`family`], [`histogram`] and [`declared`].

mod endpoint;
mod families;
mod text;

pub use endpoint::{MetricsAddress, MetricsEndpoint};
pub use families::{HistogramSample, Labels, declared, family, histogram};
pub use prometheus_client::collector::Collector;
pub use prometheus_client::encoding::DescriptorEncoder;
pub use prometheus_client::registry::Registry;
