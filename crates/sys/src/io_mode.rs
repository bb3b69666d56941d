//! The I/O modes, by the names that options and counters use for them.

use std::fmt;
use std::str::FromStr;

/// How bytes travel between memory and a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IoMode {
    /// `buffered`: through the page cache, where they stay.
    #[default]
    Buffered,
    /// `dontcache`: through the page cache, which drops them once they are on the disk (writes) or copied out
    /// (reads): `RWF_DONTCACHE`, Linux 6.14.
    DontCache,
    /// `direct`: past the page cache (`O_DIRECT`), as far as the alignment allows.
    Direct,
}

impl IoMode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Buffered, Self::DontCache, Self::Direct];

    const fn name(self) -> &'static str {
        match self {
            Self::Buffered => "buffered",
            Self::DontCache => "dontcache",
            Self::Direct => "direct",
        }
    }
}

impl FromStr for IoMode {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|mode| mode.name() == name);
        known.ok_or_else(|| format!("{name:?} is no I/O mode: write buffered, dontcache or direct"))
    }
}

impl fmt::Display for IoMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
