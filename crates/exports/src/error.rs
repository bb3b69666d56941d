//! What is wrong with an exports text, and where.

use std::fmt;

/// One mistake in an exports text. A text may have many; all are reported at once.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ParseError {
    /// Where the text came from: a file's path, or `--export` (`--export#2` for the second of several).
    pub source_name: String,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in bytes.
    pub column: usize,
    /// What is wrong and what to do about it.
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.source_name, self.line, self.column, self.message)
    }
}
