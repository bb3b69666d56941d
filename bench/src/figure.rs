//! Results of repeated runs, and tables of them.

use std::time::Duration;

/// The results of one measurement's runs, in the order of the runs.
#[derive(Debug, Clone, Default)]
pub struct Figure {
    runs: Vec<f64>,
}

impl Figure {
    /// Adds a run's result.
    pub fn add(&mut self, value: f64) {
        self.runs.push(value);
    }

    /// Results of runs made by another program.
    pub fn of(runs: Vec<f64>) -> Self {
        Self { runs }
    }

    /// The ratio of each of its runs to the run of `other` made at the same time: a disturbance of the
    /// machine affects both. Runs without a counterpart, or with a counterpart of zero, are left out.
    pub fn ratios_to(&self, other: &Self) -> Self {
        let pairs = self.runs.iter().zip(&other.runs).filter(|(_, other)| **other > 0.0);
        Self { runs: pairs.map(|(run, other)| run / other).collect() }
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.runs.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    /// The median; 0 without runs.
    pub fn median(&self) -> f64 {
        let sorted = self.sorted();
        match (sorted.len(), sorted.len() / 2) {
            (0, _) => 0.0,
            (len, middle) if len.is_multiple_of(2) => f64::midpoint(sorted[middle - 1], sorted[middle]),
            (_, middle) => sorted[middle],
        }
    }

    /// The result below which this part of the runs lies (0 to 1); 0 without runs.
    pub fn quantile(&self, part: f64) -> f64 {
        let sorted = self.sorted();
        let at = part * sorted.len().saturating_sub(1) as f64;
        sorted.get(at.round() as usize).copied().unwrap_or_default()
    }

    /// Half the distance between the largest and the smallest run, in percent of the median.
    fn spread(&self) -> f64 {
        match (self.sorted().as_slice(), self.median()) {
            ([min, .., max], median) if median > 0.0 => (max - min) / 2.0 / median * 100.0,
            _ => 0.0,
        }
    }

    /// Median and spread; `show` formats the median.
    pub fn show(&self, show: impl Fn(f64) -> String) -> String {
        format!("{} ±{:.0} %", show(self.median()), self.spread())
    }
}

/// The ratio of `a` to `b` by [`Figure::ratios_to`], with its spread; a dash without comparable runs.
pub fn ratio(a: &Figure, b: &Figure) -> String {
    let ratios = a.ratios_to(b);
    if ratios.runs.is_empty() { "-".to_owned() } else { ratios.show(|ratio| format!("{ratio:.2}")) }
}

/// Microseconds per operation; 0 without operations.
pub fn per_operation(used: Duration, operations: f64) -> f64 {
    if operations > 0.0 { used.as_secs_f64() * 1e6 / operations } else { 0.0 }
}

/// Operations per second.
pub fn per_second(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut shown = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    format!("{shown}/s")
}

/// Bytes per second, from bytes.
pub fn bytes_per_second(value: f64) -> String {
    if value >= 1e9 { format!("{:.2} GB/s", value / 1e9) } else { format!("{:.0} MB/s", value / 1e6) }
}

/// Bytes per item.
pub fn per_item(value: f64) -> String {
    format!("{value:.0}")
}

/// Microseconds.
pub fn microseconds(value: f64) -> String {
    format!("{value:.1} µs")
}

/// A table of results with its description.
#[derive(Debug)]
pub struct Table {
    /// Its title.
    pub title: String,
    /// What was measured, in a sentence or two.
    pub description: String,
    /// Column headings.
    pub head: Vec<&'static str>,
    /// The rows.
    pub rows: Vec<Vec<String>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_run_by_run_not_of_medians() {
        // The machine is half as fast for a while: the ratio of the medians would be 0.5.
        let (a, b) = (Figure::of(vec![10.0, 5.0, 5.0]), Figure::of(vec![10.0, 10.0, 5.0]));
        assert_eq!(ratio(&a, &b), "1.00 ±25 %");
    }

    #[test]
    fn runs_without_counterpart_or_beside_zero_are_left_out() {
        let a = Figure::of(vec![3.0, 8.0, 1.0]);
        assert_eq!(ratio(&a, &Figure::of(vec![0.0, 4.0])), "2.00 ±0 %");
        assert_eq!(ratio(&a, &Figure::of(vec![0.0, 0.0, 0.0])), "-");
        assert_eq!(ratio(&a, &Figure::default()), "-");
    }
}
