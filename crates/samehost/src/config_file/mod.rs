//! Configuration files in TOML: every error has file, line and column, and all errors of a file's keys are
//! reported together.
//!
//! [`serve`] is the server's file, whose keys are the options of `samehost serve`, and [`manual`] its man
//! page. [`mount`] has defaults for mount options.

pub mod manual;
pub mod mount;
pub mod serve;

use std::fmt;
use std::io::{self, Read as _};
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use crate::exit::Failure;

/// The longest file that is read, in bytes.
const MAX_SIZE: u64 = 1 << 20;

/// Why a configuration file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file can't be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file has errors.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Wrong(Vec<Mistake>),
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Failure::usage("configuration", error)
            .next("samehost.toml(5) has the keys of the server's file, samehost-mount(1) those of mounts")
    }
}

/// One error of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    file: String,
    line: usize,
    column: usize,
    message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.message)
    }
}

/// A file's name and text.
pub struct ConfigFile {
    name: String,
    text: String,
}

impl ConfigFile {
    /// Reads a file of at most 1 MiB.
    ///
    /// # Errors
    /// [`ConfigError::Unreadable`]; also for text that isn't UTF-8.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let unreadable = |source| ConfigError::Unreadable { path: path.to_owned(), source };
        let mut text = String::new();
        let file = std::fs::File::open(path).map_err(unreadable)?;
        file.take(MAX_SIZE + 1).read_to_string(&mut text).map_err(unreadable)?;
        if text.len() as u64 > MAX_SIZE {
            return Err(unreadable(io::Error::new(io::ErrorKind::FileTooLarge, "longer than 1 MiB")));
        }
        Ok(Self { name: path.display().to_string(), text })
    }

    /// Parses the file and passes its top-level table to `interpret`, which adds its own errors to the list.
    ///
    /// # Errors
    /// [`ConfigError::Wrong`] with the first error of the syntax, or else those that `interpret` has added.
    pub fn parse<T>(
        &self,
        interpret: impl FnOnce(&DeTable<'_>, &mut Vec<Mistake>) -> T,
    ) -> Result<T, ConfigError> {
        let (table, errors) = DeTable::parse_recoverable(&self.text);
        // Further errors of the syntax mostly follow from the first.
        let error = errors.first();
        let mut mistakes: Vec<_> = error
            .map(|error| self.mistake(&error.span().unwrap_or(0..0), error.message()))
            .into_iter()
            .collect();
        if !mistakes.is_empty() {
            return Err(ConfigError::Wrong(mistakes));
        }
        let interpreted = interpret(table.get_ref(), &mut mistakes);
        // The table is in the order of the keys.
        mistakes.sort_by_key(|mistake| (mistake.line, mistake.column));
        if mistakes.is_empty() { Ok(interpreted) } else { Err(ConfigError::Wrong(mistakes)) }
    }

    /// An error at a position of the text. Lines and columns count from 1, columns in characters.
    pub fn mistake(&self, at: &Range<usize>, message: impl Into<String>) -> Mistake {
        let before = self.text.get(..at.start).unwrap_or(&self.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Mistake {
            file: self.name.clone(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            message: message.into(),
        }
    }
}

/// A value's type in words.
fn type_name(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

/// The digits of an integer, in base 10; `None` beyond 64 bits.
fn decimal(integer: &toml::de::DeInteger<'_>) -> Option<String> {
    i64::from_str_radix(integer.as_str(), integer.radix()).ok().map(|number| number.to_string())
}
