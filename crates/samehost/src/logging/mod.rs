//! Logging: text or JSON to standard error, or fields to the journal. A mount in the background has no
//! standard error and logs to the system log.
//!
//! Each message is limited to a number of lines a minute, so that no peer can fill the log. Servers and
//! mounts lose lines rather than wait for a log that takes none.

mod destination;
mod journal;
mod limit;
mod lost;

use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal};
use std::os::unix::fs::MetadataExt as _;

use clap::ValueEnum;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::debug_fn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{EnvFilter, Layer, Registry};

pub use destination::detach;

use crate::exit::{Failure, Stop};
use destination::Destination;
use journal::JournalLayer;
use limit::PerMessageLimit;

/// The environment variable with filters in tracing's syntax; it wins over `-v` and `--no-audit`.
pub const VARIABLE: &str = "SAMEHOST_LOG";

/// The variable in which systemd names the stream that it has connected to the journal.
const JOURNAL_STREAM: &str = "JOURNAL_STREAM";

/// The name of our lines in the journal and the system log.
const IDENTIFIER: &str = "samehost";

/// The target of the lines about skipped and lost lines, which has no limit.
const TARGET: &str = "samehost::logging";

/// The field for the journal only: the kind of a message, for programs that search for it.
const MESSAGE_ID: &str = "message_id";

/// The form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// `journal` if standard error leads to the journal, otherwise `text`.
    Auto,
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
    /// The journal's own protocol, with fields.
    Journal,
}

/// The kind of process that logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogSource {
    /// A command's.
    Command,
    /// A server's, with the audit lines or without.
    Server {
        /// Whether audit lines are logged.
        audit: bool,
    },
    /// A mount's in the foreground: changes of the lane are logged by default.
    Mount,
    /// A mount's that goes to the background. Default messages go to the system log.
    BackgroundMount,
}

/// Starts logging for the rest of the process.
pub fn start(verbose: u8, format: LogFormat, source: LogSource) -> Result<(), Stop> {
    let filter = match std::env::var(VARIABLE) {
        Ok(text) => EnvFilter::try_new(text).map_err(|error| {
            Failure::usage(VARIABLE, error).next(format!("write a filter such as {VARIABLE}=info"))
        })?,
        Err(_) => EnvFilter::new(default_filter(verbose, source)),
    };
    let background = source == LogSource::BackgroundMount;
    if source != LogSource::Command {
        destination::lose_lines_instead_of_waiting();
    }
    if background && verbose == 0 {
        destination::keep_warnings_on_stderr();
    }
    let lines = match format {
        LogFormat::Journal => journal()?,
        LogFormat::Auto if !background && stderr_is_journal() => journal()?,
        LogFormat::Json => json(),
        LogFormat::Auto | LogFormat::Text => text(background),
    };
    let subscriber = Registry::default().with(lines).with(PerMessageLimit::default()).with(filter);
    tracing::subscriber::set_global_default(subscriber).map_err(|error| Failure::new("logging", error).into())
}

/// The filter without [`VARIABLE`].
fn default_filter(verbose: u8, source: LogSource) -> String {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    match source {
        LogSource::Server { audit } => {
            format!("{level},{}={}", server::AUDIT_TARGET, if audit { "info" } else { "off" })
        }
        LogSource::Mount | LogSource::BackgroundMount if verbose == 0 => {
            "warn,samehost_mount=info".to_owned()
        }
        _ => level.to_string(),
    }
}

/// Where a kind of line goes.
type Lines = Box<dyn Layer<Registry> + Send + Sync>;

fn text(background: bool) -> Lines {
    // The identifier of a message would only lengthen its line; it is the last field of its event.
    let fields = debug_fn(|to, field, value| match field.name() {
        MESSAGE_ID => Ok(()),
        "message" => write!(OneLine(to), "{value:?}"),
        name => write!(OneLine(to), "{name}={value:?}"),
    });
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(Destination)
        .fmt_fields(fields.delimited(" "))
        .with_ansi(!background && io::stderr().is_terminal());
    // The system log adds the time.
    if background { layer.without_time().boxed() } else { layer.boxed() }
}

/// Writes text without control characters: names of files and words of peers make no further line and nothing
/// that a terminal executes.
struct OneLine<W>(W);

impl<W: fmt::Write> fmt::Write for OneLine<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some((at, found)) = rest.char_indices().find(|(_, c)| c.is_control()) {
            write!(self.0, "{}{}", &rest[..at], found.escape_default())?;
            rest = &rest[at + found.len_utf8()..];
        }
        self.0.write_str(rest)
    }
}

fn json() -> Lines {
    tracing_subscriber::fmt::layer().json().flatten_event(true).with_writer(Destination).boxed()
}

fn journal() -> Result<Lines, Failure> {
    let layer = JournalLayer::new().map_err(|error| {
        Failure::new(format!("the journal ({})", journal::SOCKET), error)
            .next("log to standard error with --log-format text or json")
    })?;
    Ok(layer.boxed())
}

/// Whether standard error is the stream that systemd has connected to the journal (systemd.exec(5)).
fn stderr_is_journal() -> bool {
    let Ok(stream) = std::env::var(JOURNAL_STREAM) else { return false };
    let stderr = std::fs::metadata("/proc/self/fd/2");
    stderr.is_ok_and(|stderr| names_file(&stream, stderr.dev(), stderr.ino()))
}

/// Whether JOURNAL_STREAM, `DEVICE:INODE`, names this file.
fn names_file(stream: &str, device: u64, inode: u64) -> bool {
    stream.split_once(':').is_some_and(|(dev, ino)| dev.parse() == Ok(device) && ino.parse() == Ok(inode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        let mut text = String::new();
        write!(OneLine(&mut text), "a\nb\x1b[2Jc\u{9b}d\u{e9}\r").unwrap();
        assert_eq!(text, "a\\nb\\u{1b}[2Jc\\u{9b}d\u{e9}\\r");
    }

    #[test]
    fn only_servers_log_audit_lines() {
        let server = |verbose, audit| default_filter(verbose, LogSource::Server { audit });
        assert_eq!(server(0, true), "warn,audit=info");
        assert_eq!(server(1, false), "info,audit=off");
        assert_eq!(default_filter(0, LogSource::BackgroundMount), "warn,samehost_mount=info");
        assert_eq!(default_filter(2, LogSource::Mount), "debug");
        assert_eq!(default_filter(0, LogSource::Command), "warn");
    }

    #[test]
    fn the_journal_is_told_from_a_file_that_has_taken_its_place() {
        assert!(names_file("10:245", 10, 245));
        for other in ["10:246", "11:245", "10", "", "a:b"] {
            assert!(!names_file(other, 10, 245), "{other:?}");
        }
    }
}
