//! The results of a measurement, as JSON and as a table.

use serde::Serialize;

use super::Workload;
use crate::human;
use crate::table::{Align, TextTable};

/// The runs of one workload over one data path.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Operations per second, the median of the runs.
    pub operations_per_second: f64,
    /// Bytes per second at the median.
    pub bytes_per_second: f64,
    /// The slowest run, operations per second.
    pub slowest: f64,
    /// The fastest run.
    pub fastest: f64,
    /// All runs in their order.
    pub runs: Vec<f64>,
}

impl Figure {
    /// Summarises `runs` (operations per second; at least one) of `block` bytes each.
    pub fn of(runs: Vec<f64>, block: usize) -> Self {
        let mut sorted = runs.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = match sorted.len() {
            0 => 0.0,
            len if len.is_multiple_of(2) => (sorted[middle - 1] + sorted[middle]) / 2.0,
            _ => sorted[middle],
        };
        Self {
            operations_per_second: median,
            bytes_per_second: median * block as f64,
            slowest: sorted.first().copied().unwrap_or(0.0),
            fastest: sorted.last().copied().unwrap_or(0.0),
            runs,
        }
    }

    /// Half the distance between the fastest and the slowest run, in percent of the median.
    pub fn spread(&self) -> f64 {
        if self.operations_per_second > 0.0 {
            (self.fastest - self.slowest) / 2.0 / self.operations_per_second * 100.0
        } else {
            0.0
        }
    }
}

/// A workload over all data paths.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The workload's name.
    pub workload: &'static str,
    /// Bytes per operation.
    pub block: usize,
    /// A plain file, without a server.
    pub raw: Option<Figure>,
    /// Over the lane.
    pub lane: Option<Figure>,
    /// Over the wire.
    pub wire: Option<Figure>,
    /// Lane to raw.
    pub lane_to_raw: Option<f64>,
    /// Wire to raw.
    pub wire_to_raw: Option<f64>,
    /// Lane to wire.
    pub lane_to_wire: Option<f64>,
    #[serde(skip)]
    title: &'static str,
    #[serde(skip)]
    random: bool,
}

impl Row {
    /// A row of results.
    pub fn new(workload: Workload, raw: Option<Figure>, lane: Option<Figure>, wire: Option<Figure>) -> Self {
        let ratio = |a: &Option<Figure>, b: &Option<Figure>| match (a, b) {
            (Some(a), Some(b)) if b.operations_per_second > 0.0 => {
                Some(a.operations_per_second / b.operations_per_second)
            }
            _ => None,
        };
        Self {
            workload: workload.name,
            block: workload.block,
            lane_to_raw: ratio(&lane, &raw),
            wire_to_raw: ratio(&wire, &raw),
            lane_to_wire: ratio(&lane, &wire),
            raw,
            lane,
            wire,
            title: workload.title,
            random: workload.random,
        }
    }

    fn show(&self, figure: Option<&Figure>) -> String {
        figure.map_or_else(
            || "-".to_owned(),
            |figure| {
                let value = if self.random {
                    format!("{}/s", human::thousands(figure.operations_per_second.round() as u64))
                } else {
                    format!("{}/s", human::bytes(figure.bytes_per_second as u64))
                };
                format!("{value} ±{:.0}%", figure.spread())
            },
        )
    }
}

/// A whole measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Samehost's version.
    pub version: &'static str,
    /// The kernel's release.
    pub kernel: String,
    /// Processors of this machine.
    pub processors: usize,
    /// What was measured.
    pub target: String,
    /// Whether there was a lane.
    pub local: bool,
    /// Why there was none.
    pub reasons: Vec<String>,
    /// Operations in flight.
    pub depth: u16,
    /// Runs of each measurement.
    pub runs: u16,
    /// Milliseconds per run.
    pub milliseconds: u32,
    /// Bytes of the file.
    pub size: u64,
    /// The figures.
    pub rows: Vec<Row>,
}

impl Report {
    /// The report as text. Data paths that weren't measured have no column.
    pub fn lines(&self) -> Vec<String> {
        let has = |data_path: fn(&Row) -> bool| self.rows.iter().any(data_path);
        let raw = has(|row| row.raw.is_some());
        let lane = has(|row| row.lane.is_some());
        let wire = has(|row| row.wire.is_some());
        let mut columns = vec![("", Align::Left)];
        let shown = [
            (raw, "raw"),
            (lane, "lane"),
            (wire, "wire"),
            (lane && raw, "lane/raw"),
            (wire && raw, "wire/raw"),
            (lane && wire, "lane/wire"),
        ];
        columns.extend(shown.iter().filter(|(shown, _)| *shown).map(|(_, title)| (*title, Align::Right)));
        let mut table = TextTable::new(&columns);
        for row in &self.rows {
            let ratio =
                |ratio: Option<f64>| ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
            let cells = [
                row.show(row.raw.as_ref()),
                row.show(row.lane.as_ref()),
                row.show(row.wire.as_ref()),
                ratio(row.lane_to_raw),
                ratio(row.wire_to_raw),
                ratio(row.lane_to_wire),
            ];
            let cells = cells.into_iter().zip(shown).filter(|(_, (shown, _))| *shown).map(|(cell, _)| cell);
            table.row(std::iter::once(row.title.to_owned()).chain(cells));
        }
        let mut lines = table.lines(0);
        lines.push(format!(
            "one thread, {} in flight, a file of {}; medians of {}, ± half the distance between fastest and \
             slowest",
            self.depth,
            human::bytes(self.size),
            human::count(self.runs.into(), "run")
        ));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::WORKLOADS;

    #[test]
    fn a_figure_is_the_median_with_its_spread() {
        let figure = Figure::of(vec![90.0, 110.0, 100.0], 4096);
        assert_eq!(figure.operations_per_second, 100.0);
        assert_eq!(figure.bytes_per_second, 409_600.0);
        assert_eq!((figure.slowest, figure.fastest), (90.0, 110.0));
        assert!((figure.spread() - 10.0).abs() < 1e-9);
        assert_eq!(Figure::of(vec![1.0, 3.0], 1).operations_per_second, 2.0);
    }

    #[test]
    fn data_paths_without_results_have_no_column() {
        let wire = Figure::of(vec![1000.0], 4096);
        let report = Report {
            version: "0",
            kernel: String::new(),
            processors: 1,
            target: String::new(),
            local: false,
            reasons: vec![],
            depth: 8,
            runs: 1,
            milliseconds: 1,
            size: 1 << 20,
            rows: vec![Row::new(WORKLOADS[0], None, None, Some(wire))],
        };
        let lines = report.lines();
        assert!(
            lines[0].contains("wire") && !lines[0].contains("lane") && !lines[0].contains("raw"),
            "{lines:?}"
        );
        assert!(lines[1].starts_with("4 KiB random read") && lines[1].ends_with("1,000/s ±0%"), "{lines:?}");
    }
}
