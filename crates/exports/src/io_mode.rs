//! How the server is to read and write files: the words of our own options `read_io=` and `write_io=`.

use std::fmt;
use std::str::FromStr;

/// How bytes travel between the server and a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum IoMode {
    /// `buffered`: through the page cache, and they stay there.
    #[default]
    Buffered,
    /// `dontcache`: through the page cache, which lets go of them as soon as it can.
    DontCache,
    /// `direct`: past the page cache, as far as alignment allows.
    Direct,
}

impl IoMode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Buffered, Self::DontCache, Self::Direct];

    const fn word(self) -> &'static str {
        match self {
            Self::Buffered => "buffered",
            Self::DontCache => "dontcache",
            Self::Direct => "direct",
        }
    }
}

impl FromStr for IoMode {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|mode| mode.word() == word);
        known.ok_or_else(|| format!("{word:?} is no I/O mode: write buffered, dontcache or direct"))
    }
}

impl fmt::Display for IoMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
