//! Several runs of one thing, and tables of them.

/// The runs of one measurement.
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

/// `a` to `b`, of medians.
pub fn ratio(a: &Figure, b: &Figure) -> String {
    if b.median() > 0.0 { format!("{:.2}", a.median() / b.median()) } else { "-".to_owned() }
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
