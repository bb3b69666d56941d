//! Standard output and standard error, without surprises.
//!
//! Results go to standard output through one buffered writer whose errors are looked at: a full disk is an
//! error, a reader that went away is the end. Complaints go to standard error, one at a time, and never tear
//! a progress bar apart.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use indicatif::MultiProgress;
use serde::Serialize;

use crate::exit::{Exit, Failure, Stop};

/// Standard output.
pub struct Output {
    inner: BufWriter<StdoutLock<'static>>,
    terminal: bool,
}

impl Output {
    /// Takes standard output. There should be one at a time.
    pub fn stdout() -> Self {
        let stdout = io::stdout();
        let terminal = stdout.is_terminal();
        Self { inner: BufWriter::with_capacity(64 * 1024, stdout.lock()), terminal }
    }

    /// Whether a person is looking.
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Writes one line of text.
    pub fn line(&mut self, text: impl AsRef<[u8]>) -> Result<(), Stop> {
        self.bytes(text.as_ref())?;
        self.bytes(b"\n")
    }

    /// Writes bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        self.inner.write_all(bytes).map_err(stop)
    }

    /// Writes `value` as JSON, indented.
    pub fn json(&mut self, value: &impl Serialize) -> Result<(), Stop> {
        let text = serde_json::to_string_pretty(value).map_err(|error| Failure::new("JSON output", error))?;
        self.line(text)
    }

    /// Hands everything over. Each command ends with it; what is still buffered otherwise may be lost.
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

/// Writes one complaint to standard error. If standard error is gone there's nobody left to tell.
pub fn complain(text: &str) {
    let _ = writeln!(io::stderr().lock(), "samehost: {text}");
}

/// Collects what goes wrong in a command with many operands, which goes on with the next one.
pub struct Reporter {
    bars: MultiProgress,
    worst: std::cell::Cell<Exit>,
}

impl Reporter {
    /// A reporter that keeps clear of the progress bars in `bars`.
    pub fn new(bars: MultiProgress) -> Self {
        Self { bars, worst: std::cell::Cell::new(Exit::Done) }
    }

    /// Tells the user about `failure` and remembers it for the exit code.
    pub fn report(&self, failure: &Failure) {
        self.bars.suspend(|| complain(&failure.to_string()));
        self.worst.set(self.worst.get().max(failure.exit));
    }

    /// [`Self::report`]s a failure, and passes the other kind of stop on.
    pub fn take(&self, stop: Stop) -> Result<(), Stop> {
        match stop {
            Stop::Failed(failure) => {
                self.report(&failure);
                Ok(())
            }
            Stop::ReaderGone => Err(stop),
        }
    }

    /// The exit code so far: the highest of all that was reported.
    pub fn exit(&self) -> Exit {
        self.worst.get()
    }
}
