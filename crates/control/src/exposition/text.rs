//! The text of a scrape, in OpenMetrics or in Prometheus's older format.
//!
//! The two differ in the names of counters: OpenMetrics describes `name` and its sample is `name_total`, the
//! older format describes `name_total`.

use std::collections::HashSet;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

/// The format of a scrape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    OpenMetrics,
    Prometheus,
}

impl Format {
    /// The format for a request with this `Accept` header.
    pub fn of_accept(header: Option<&str>) -> Self {
        match header {
            Some(types) if types.contains("application/openmetrics-text") => Self::OpenMetrics,
            _ => Self::Prometheus,
        }
    }

    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Asks the collectors and writes the text.
    ///
    /// # Errors
    /// A collector's.
    pub fn render(self, registry: &Registry) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, registry)?;
        Ok(match self {
            Self::OpenMetrics => text,
            Self::Prometheus => older(&text),
        })
    }
}

/// The older format of a text in OpenMetrics.
fn older(text: &str) -> String {
    let is_counter = |line: &str| {
        let (name, kind) = line.strip_prefix("# TYPE ")?.split_once(' ')?;
        (kind == "counter").then(|| name.to_owned())
    };
    let counters: HashSet<String> = text.lines().filter_map(is_counter).collect();
    let mut out = String::with_capacity(text.len() + text.len() / 16);
    for line in text.lines() {
        if line == "# EOF" || line.starts_with("# UNIT ") {
            continue;
        }
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some(word @ ("HELP" | "TYPE")), Some(name), Some(rest))
                if counters.contains(name) =>
            {
                out.extend(["# ", word, " ", name, "_total ", rest]);
            }
            _ => out.push_str(line),
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_described_by_their_samples_names_in_the_older_format() {
        let text = "# HELP a Calls.\n# TYPE a counter\na_total{x=\"# HELP a b\"} 1\n# HELP b Now.\n# TYPE b \
                    gauge\n# UNIT b bytes\nb 2\n# EOF\n";
        let expected = "# HELP a_total Calls.\n# TYPE a_total counter\na_total{x=\"# HELP a b\"} 1\n# HELP b \
                        Now.\n# TYPE b gauge\nb 2\n";
        assert_eq!(older(text), expected);
    }

    #[test]
    fn the_accept_header_chooses() {
        let prometheus = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";
        assert_eq!(Format::of_accept(Some(prometheus)), Format::OpenMetrics);
        assert_eq!(Format::of_accept(Some("*/*")), Format::Prometheus);
        assert_eq!(Format::of_accept(None), Format::Prometheus);
    }
}
