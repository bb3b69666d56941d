//! What a check found: file, line and what is wrong there, all at once rather than the first only.

use std::fmt::Write;

/// Findings of one check.
#[derive(Default)]
pub struct Findings(Vec<String>);

impl Findings {
    /// Adds one. `line` counts from 1.
    pub fn add(&mut self, path: &str, line: usize, what: &str) {
        self.0.push(format!("{path}:{line}: {what}"));
    }

    /// Ends the test unless there are none.
    pub fn assert_none(&self, of: &str) {
        let mut list = String::new();
        for finding in &self.0 {
            let _ = writeln!(list, "  {finding}");
        }
        assert!(self.0.is_empty(), "{of}:\n{list}");
    }
}
