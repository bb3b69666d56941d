//! The selection of measurements: `--only PART[:WORD]...`.

use std::fmt;
use std::str::FromStr;

/// A part, or those of its cells that have all of the words.
#[derive(Debug, Clone)]
pub struct Selection {
    /// The part.
    pub part: String,
    words: Vec<String>,
}

impl FromStr for Selection {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut words = text.split(':').map(str::to_owned);
        Ok(Self { part: words.next().unwrap_or_default(), words: words.collect() })
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.part)?;
        self.words.iter().try_for_each(|word| write!(f, ":{word}"))
    }
}

impl Selection {
    /// Whether a cell with these words is selected.
    pub fn takes(&self, words: &[&str]) -> bool {
        self.words.iter().all(|word| words.contains(&word.as_str()))
    }

    /// Whether the whole part is selected.
    pub fn is_whole(&self) -> bool {
        self.words.is_empty()
    }
}
