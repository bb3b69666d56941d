//! The findings of a check, reported together: file, line and problem.

use std::fmt::Write;

/// Findings of one check.
#[derive(Default)]
pub struct Findings(Vec<String>);

impl Findings {
    /// Adds a finding. `line` counts from 1.
    pub fn add(&mut self, path: &str, line: usize, what: &str) {
        self.0.push(format!("{path}:{line}: {what}"));
    }

    /// Fails the test if there are findings.
    pub fn assert_none(&self, of: &str) {
        let mut list = String::new();
        for finding in &self.0 {
            let _ = writeln!(list, "  {finding}");
        }
        assert!(self.0.is_empty(), "{of}:\n{list}");
    }
}
