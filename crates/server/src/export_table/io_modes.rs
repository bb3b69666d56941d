//! Which I/O mode holds for whom, and how that is changed while the server runs.
//!
//! From strong to weak: what `samehost ctl io-mode EXPORT` has set for the export; the export's own option
//! for the client (`read_io=`, `write_io=`); what `samehost ctl io-mode` has set for the server; what it was
//! started with. Both settings of ctl last until they are taken back or the server ends; a reload keeps them.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use exports::{ExportOptions, IoMode};
use io::IoModes;
use serde::{Deserialize, Serialize};

/// Reading or writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// READ.
    Read,
    /// WRITE.
    Write,
}

impl std::fmt::Display for Direction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
        })
    }
}

/// A mode for each direction, or none: changed by one thread while others look.
#[derive(Debug, Default)]
pub(crate) struct Switches {
    read: AtomicU8,
    write: AtomicU8,
}

impl Switches {
    pub(crate) fn new(read: IoMode, write: IoMode) -> Self {
        let switches = Self::default();
        switches.set(Direction::Read, Some(read));
        switches.set(Direction::Write, Some(write));
        switches
    }

    pub(crate) fn get(&self, direction: Direction) -> Option<IoMode> {
        let number = self.of(direction).load(Relaxed);
        IoMode::ALL.get(usize::from(number).wrapping_sub(1)).copied()
    }

    pub(crate) fn set(&self, direction: Direction, mode: Option<IoMode>) {
        let place = |mode| IoMode::ALL.iter().position(|other| *other == mode).map_or(0, |at| at as u8 + 1);
        self.of(direction).store(mode.map_or(0, place), Relaxed);
    }

    const fn of(&self, direction: Direction) -> &AtomicU8 {
        match direction {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
        }
    }
}

/// The modes that hold for a client with `options`.
pub(crate) fn modes(server: &Switches, export: &Switches, options: &ExportOptions) -> IoModes {
    let mode = |direction| effective(server, export, options, direction);
    IoModes { read: mode(Direction::Read), write: mode(Direction::Write) }
}

/// The mode that holds in one direction.
pub(crate) fn effective(
    server: &Switches,
    export: &Switches,
    options: &ExportOptions,
    direction: Direction,
) -> IoMode {
    let option = match direction {
        Direction::Read => options.read_io,
        Direction::Write => options.write_io,
    };
    export.get(direction).or(option).or_else(|| server.get(direction)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearer_word_wins_and_can_be_taken_back() {
        let (server, export) = (Switches::new(IoMode::DontCache, IoMode::Buffered), Switches::default());
        let mut options = ExportOptions::default();
        let now = |options: &ExportOptions| modes(&server, &export, options);
        assert_eq!(now(&options), IoModes { read: IoMode::DontCache, write: IoMode::Buffered });
        options.apply("write_io=direct").unwrap();
        assert_eq!(now(&options).write, IoMode::Direct);
        server.set(Direction::Write, Some(IoMode::DontCache));
        assert_eq!(now(&options).write, IoMode::Direct, "the export's option is nearer");
        export.set(Direction::Write, Some(IoMode::Buffered));
        assert_eq!(now(&options).write, IoMode::Buffered);
        export.set(Direction::Write, None);
        assert_eq!(now(&options).write, IoMode::Direct);
    }
}
