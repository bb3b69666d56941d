//! [`ParseError`]: a mistake in an exports file, and its position.

use std::fmt;

/// One mistake. All mistakes of a text are reported at once.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ParseError {
    /// The source of the text: a file's path, or `--export` (`--export#2` for the second of several).
    pub source_name: String,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in bytes.
    pub column: usize,
    /// The mistake and its remedy.
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.source_name, self.line, self.column, self.message)
    }
}
