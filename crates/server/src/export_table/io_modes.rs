//! The I/O mode that applies to a client of an export.
//!
//! In the order of precedence: what `samehost ctl io-mode EXPORT` has set for the export; the export's option
//! for the client (`read_io=`, `write_io=`); what `samehost ctl io-mode` has set for the server; the server's
//! start options. Settings by ctl last until they are reset or the server ends; a reload keeps them.

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

/// An optional mode for each direction, which one thread may change while others read it.
#[derive(Debug, Default)]
pub(crate) struct IoModeSettings {
    read: AtomicU8,
    write: AtomicU8,
}

impl IoModeSettings {
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

/// The modes that apply to a client with `options`.
pub(crate) fn modes(server: &IoModeSettings, export: &IoModeSettings, options: &ExportOptions) -> IoModes {
    let mode = |direction| effective(server, export, options, direction);
    IoModes { read: mode(Direction::Read), write: mode(Direction::Write) }
}

/// The mode that applies to one direction.
pub(crate) fn effective(
    server: &IoModeSettings,
    export: &IoModeSettings,
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
    fn the_more_specific_setting_wins_and_can_be_reset() {
        let (server, export) =
            (IoModeSettings::new(IoMode::DontCache, IoMode::Buffered), IoModeSettings::default());
        let mut options = ExportOptions::default();
        let now = |options: &ExportOptions| modes(&server, &export, options);
        assert_eq!(now(&options), IoModes { read: IoMode::DontCache, write: IoMode::Buffered });
        options.apply("write_io=direct").unwrap();
        assert_eq!(now(&options).write, IoMode::Direct);
        server.set(Direction::Write, Some(IoMode::DontCache));
        assert_eq!(now(&options).write, IoMode::Direct, "the export's option is more specific");
        export.set(Direction::Write, Some(IoMode::Buffered));
        assert_eq!(now(&options).write, IoMode::Buffered);
        export.set(Direction::Write, None);
        assert_eq!(now(&options).write, IoMode::Direct);
    }
}
