//! Several runs of one thing, and tables of them.

use std::time::Duration;

/// The runs of one measurement, in the order in which they were made.
#[derive(Debug, Clone, Default)]
pub struct Figure {
    runs: Vec<f64>,
}

impl Figure {
    /// Adds a run.
    pub fn add(&mut self, value: f64) {
        self.runs.push(value);
    }

    /// From runs that somebody else made.
    pub fn of(runs: Vec<f64>) -> Self {
        Self { runs }
    }

    /// The ratios of its runs to those of `other`, each to the one that was made beside it: what the machine
    /// did just then has met both. Runs without a neighbour, and those beside a zero, are left out.
    pub fn to(&self, other: &Self) -> Self {
        let pairs = self.runs.iter().zip(&other.runs).filter(|(_, beside)| **beside > 0.0);
        Self { runs: pairs.map(|(run, beside)| run / beside).collect() }
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.runs.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    /// The median; 0 of nothing.
    pub fn median(&self) -> f64 {
        let sorted = self.sorted();
        match (sorted.len(), sorted.len() / 2) {
            (0, _) => 0.0,
            (len, middle) if len.is_multiple_of(2) => f64::midpoint(sorted[middle - 1], sorted[middle]),
            (_, middle) => sorted[middle],
        }
    }

    /// Half the distance between the largest and the smallest run, in percent of the median.
    fn spread(&self) -> f64 {
        match (self.sorted().as_slice(), self.median()) {
            ([least, .., most], median) if median > 0.0 => (most - least) / 2.0 / median * 100.0,
            _ => 0.0,
        }
    }

    /// Median and spread, the median put into words by `show`.
    pub fn show(&self, show: impl Fn(f64) -> String) -> String {
        format!("{} ±{:.0} %", show(self.median()), self.spread())
    }
}

/// `a` to `b`, as [`Figure::to`] has it, with the spread; a dash where nothing can be compared.
pub fn ratio(a: &Figure, b: &Figure) -> String {
    let ratios = a.to(b);
    if ratios.runs.is_empty() { "-".to_owned() } else { ratios.show(|ratio| format!("{ratio:.2}")) }
}

/// What each of so many operations took, in microseconds; 0 where there were none.
pub fn per_operation(used: Duration, operations: f64) -> f64 {
    if operations > 0.0 { used.as_secs_f64() * 1e6 / operations } else { 0.0 }
}

/// Operations a second.
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

/// Bytes a second, from bytes.
pub fn bytes_per_second(value: f64) -> String {
    if value >= 1e9 { format!("{:.2} GB/s", value / 1e9) } else { format!("{:.0} MB/s", value / 1e6) }
}

/// Bytes of one of many.
pub fn per_item(value: f64) -> String {
    format!("{value:.0}")
}

/// Microseconds.
pub fn microseconds(value: f64) -> String {
    format!("{value:.1} µs")
}

/// A table with what it says.
#[derive(Debug)]
pub struct Table {
    /// Its title.
    pub title: String,
    /// What was done, in a sentence or two.
    pub about: String,
    /// Heads of the columns.
    pub head: Vec<&'static str>,
    /// The rows.
    pub rows: Vec<Vec<String>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_of_neighbours_and_not_of_medians() {
        // A machine that is twice as slow for a while: the medians would say 0.5.
        let (a, b) = (Figure::of(vec![10.0, 5.0, 5.0]), Figure::of(vec![10.0, 10.0, 5.0]));
        assert_eq!(ratio(&a, &b), "1.00 ±25 %");
    }

    #[test]
    fn what_has_no_neighbour_or_a_zero_beside_it_is_left_out() {
        let a = Figure::of(vec![3.0, 8.0, 1.0]);
        assert_eq!(ratio(&a, &Figure::of(vec![0.0, 4.0])), "2.00 ±0 %");
        assert_eq!(ratio(&a, &Figure::of(vec![0.0, 0.0, 0.0])), "-");
        assert_eq!(ratio(&a, &Figure::default()), "-");
    }
}
