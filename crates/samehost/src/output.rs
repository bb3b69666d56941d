//! Standard output and standard error.
//!
//! Results go to standard output through one buffered writer. A full disk is an error; a closed pipe ends the
//! command. Errors go to standard error and suspend progress bars.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use indicatif::MultiProgress;
use serde::Serialize;

use crate::exit::{Exit, Failure, Stop};
use crate::human;

/// Standard output.
pub struct Output {
    inner: BufWriter<StdoutLock<'static>>,
    terminal: bool,
}

impl Output {
    /// A writer for standard output. There should be only one.
    pub fn stdout() -> Self {
        let stdout = io::stdout();
        let terminal = stdout.is_terminal();
        Self { inner: BufWriter::with_capacity(64 * 1024, stdout.lock()), terminal }
    }

    /// Whether standard output is a terminal.
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Writes one line of text for people. Names and words of other users and hosts may be in it, so what a
    /// terminal would obey is escaped.
    pub fn line(&mut self, text: impl AsRef<str>) -> Result<(), Stop> {
        self.raw_line(human::line(text.as_ref()).as_bytes())
    }

    /// Writes a line as it is, for programs.
    pub fn raw_line(&mut self, line: &[u8]) -> Result<(), Stop> {
        self.bytes(line)?;
        self.bytes(b"\n")
    }

    /// Writes bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        self.inner.write_all(bytes).map_err(stop)
    }

    /// Writes `value` as JSON, indented.
    pub fn json(&mut self, value: &impl Serialize) -> Result<(), Stop> {
        let text = serde_json::to_string_pretty(value).map_err(|error| Failure::new("JSON output", error))?;
        self.raw_line(text.as_bytes())
    }

    /// Writes `value` as JSON in one line.
    pub fn json_line(&mut self, value: &impl Serialize) -> Result<(), Stop> {
        let text = serde_json::to_string(value).map_err(|error| Failure::new("JSON output", error))?;
        self.raw_line(text.as_bytes())
    }

    /// Flushes the buffer. Every command ends with it; otherwise buffered data may be lost.
    pub fn flush(&mut self) -> Result<(), Stop> {
        self.inner.flush().map_err(stop)
    }
}

fn stop(error: io::Error) -> Stop {
    if error.kind() == io::ErrorKind::BrokenPipe {
        Stop::ReaderGone
    } else {
        Failure::new("standard output", error).into()
    }
}

/// Writes an error to standard error, escaped as by [`Output::line`] but for newlines, and ignores its
/// failure.
pub fn print_error(text: &str) {
    let _ = writeln!(io::stderr().lock(), "samehost: {}", human::lines(text));
}

/// Reports the failures of single operands, after which a command continues.
pub struct Reporter {
    bars: MultiProgress,
    worst: std::cell::Cell<Exit>,
}

impl Reporter {
    /// A reporter that suspends the progress bars in `bars`.
    pub fn new(bars: MultiProgress) -> Self {
        Self { bars, worst: std::cell::Cell::new(Exit::Done) }
    }

    /// Prints `failure` and includes it in the exit code.
    pub fn report(&self, failure: &Failure) {
        self.bars.suspend(|| print_error(&failure.to_string()));
        self.worst.set(self.worst.get().max(failure.exit));
    }

    /// [`Self::report`]s a failure, and returns any other stop.
    pub fn take(&self, stop: Stop) -> Result<(), Stop> {
        match stop {
            Stop::Failed(failure) => {
                self.report(&failure);
                Ok(())
            }
            Stop::ReaderGone => Err(stop),
        }
    }

    /// The highest exit code of the reported failures.
    pub fn exit(&self) -> Exit {
        self.worst.get()
    }
}
