//! Tables of one column for each data path: of every measurement the times, their ratios, the calls to the
//! server, and the kernel's requests to a mount.

use super::data_path::{Calls, LeftOut};
use crate::figure::{Figure, Table, ratio};

/// One measurement over all data paths.
pub struct Comparison {
    /// What was measured.
    pub title: String,
    /// Its goal, behind the heading of its ratios.
    pub goal: &'static str,
    /// What was measured on each data path, in the order of the columns.
    pub columns: Vec<Column>,
}

/// One measurement over one data path.
#[derive(Debug, Clone, Default)]
pub struct Column {
    /// The time of each run.
    pub times: Figure,
    /// Calls to the server in the last run.
    pub calls: Calls,
}

impl Comparison {
    /// Nothing measured yet on this number of data paths.
    pub fn new(title: impl Into<String>, goal: &'static str, columns: usize) -> Self {
        Self { title: title.into(), goal, columns: vec![Column::default(); columns] }
    }
}

/// How a table shows its comparisons.
pub struct Presentation {
    /// The columns' headings.
    pub headings: Vec<&'static str>,
    /// Formats a time.
    pub time: fn(f64) -> String,
    /// The column that the others are compared with.
    pub base: usize,
    /// Whether the ratios are gains (the base's time to this) instead of losses.
    pub gain: bool,
    /// The calls are shown for one of so many operations; 1 shows all.
    pub operations: u64,
}

impl Presentation {
    /// The table.
    pub fn table(
        &self,
        title: String,
        description: String,
        left_out: &[LeftOut],
        comparisons: &[Comparison],
    ) -> Table {
        Table {
            title,
            description: description + &reasons(left_out),
            head: std::iter::once("").chain(self.headings.iter().copied()).collect(),
            rows: comparisons.iter().flat_map(|comparison| self.rows(comparison)).collect(),
        }
    }

    fn rows(&self, comparison: &Comparison) -> Vec<Vec<String>> {
        let row = |title: String, show: &dyn Fn(&Column) -> String| {
            std::iter::once(title).chain(comparison.columns.iter().map(show)).collect()
        };
        let base = comparison.columns.get(self.base).map(|column| column.times.clone()).unwrap_or_default();
        let (heading, title) = (self.headings.get(self.base).unwrap_or(&"nothing"), &comparison.title);
        let ratios = match (self.gain, comparison.goal) {
            (true, "") => format!("{title}: {heading} / this"),
            (true, goal) => format!("{title}: {heading} / this (goal {goal})"),
            (false, "") => format!("{title}: this / {heading}"),
            (false, goal) => format!("{title}: this / {heading} (goal {goal})"),
        };
        let mut rows = vec![
            row(title.clone(), &|column| column.times.show(self.time)),
            row(ratios, &|column| {
                if self.gain { ratio(&base, &column.times) } else { ratio(&column.times, &base) }
            }),
            row(format!("{title}: calls"), &|column| self.calls(column.calls)),
        ];
        if comparison.columns.iter().any(|column| column.calls.requests > 0) {
            let requests = |column: &Column| match column.calls.requests {
                0 => String::new(),
                requests => self.count(requests),
            };
            rows.push(row(format!("{title}: requests"), &requests));
        }
        rows
    }

    fn count(&self, count: u64) -> String {
        if self.operations == 1 {
            count.to_string()
        } else {
            format!("{:.2}", count as f64 / self.operations as f64)
        }
    }

    fn calls(&self, calls: Calls) -> String {
        if calls.lane == 0 {
            self.count(calls.wire)
        } else {
            format!("{} + {}", self.count(calls.lane), self.count(calls.wire))
        }
    }
}

/// The columns that weren't measured, as sentences.
fn reasons(left_out: &[LeftOut]) -> String {
    left_out.iter().map(|column| format!(" Left out: {} ({}).", column.heading, column.reason)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison() -> Comparison {
        let mut comparison = Comparison::new("tar x", "6", 2);
        comparison.columns[0].times.add(0.5);
        comparison.columns[1].times.add(2.0);
        comparison.columns[1].calls = Calls { lane: 10, wire: 25, requests: 60 };
        comparison
    }

    fn presentation(gain: bool, operations: u64) -> Presentation {
        let time = |seconds: f64| format!("{seconds:.1} s");
        Presentation { headings: vec!["raw", "wire"], time, base: 0, gain, operations }
    }

    #[test]
    fn a_measurement_has_rows_for_times_ratios_and_calls() {
        let left_out = [LeftOut { heading: "tree", reason: "no such option".to_owned() }];
        let table = presentation(false, 1).table("T".to_owned(), "D.".to_owned(), &left_out, &[comparison()]);
        assert_eq!(table.description, "D. Left out: tree (no such option).");
        assert_eq!(table.head, ["", "raw", "wire"]);
        assert_eq!(
            table.rows,
            [
                ["tar x", "0.5 s ±0 %", "2.0 s ±0 %"],
                ["tar x: this / raw (goal 6)", "1.00 ±0 %", "4.00 ±0 %"],
                ["tar x: calls", "0", "10 + 25"],
                ["tar x: requests", "", "60"],
            ]
        );
    }

    #[test]
    fn gains_are_the_inverse_and_calls_may_be_per_operation() {
        let table = presentation(true, 10).table("T".to_owned(), String::new(), &[], &[comparison()]);
        assert_eq!(table.rows[1], ["tar x: raw / this (goal 6)", "1.00 ±0 %", "0.25 ±0 %"]);
        assert_eq!(table.rows[2], ["tar x: calls", "0.00", "1.00 + 2.50"]);
        assert_eq!(table.rows[3], ["tar x: requests", "", "6.00"]);
    }
}
