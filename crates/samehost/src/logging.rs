//! Logging: structured, to standard error. A mount in the background has no standard error and logs to the
//! system log.

use std::io::{self, IsTerminal, Write};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use tracing::{Level, Metadata};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::exit::{Failure, Stop};

/// The environment variable with filters in tracing's syntax; it wins over `-v`.
pub const VARIABLE: &str = "SAMEHOST_LOG";

/// Where syslog(3) and the journal listen.
const SYSLOG: &str = "/dev/log";

/// Lines of this and higher priorities go to standard error, lower ones to the system log.
static STDERR_PRIORITY: AtomicU8 = AtomicU8::new(u8::MAX);

/// The kind of process that logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogSource {
    /// A command's.
    Command,
    /// A mount's in the foreground: changes of the lane are logged by default.
    Mount,
    /// A mount's that goes to the background. Default messages go to the system log.
    BackgroundMount,
}

/// Starts logging for the rest of the process.
pub fn start(verbose: u8, source: LogSource) -> Result<(), Stop> {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let filter = match std::env::var(VARIABLE) {
        Ok(text) => EnvFilter::try_new(text).map_err(|error| {
            Failure::usage(VARIABLE, error).next(format!("write a filter such as {VARIABLE}=info"))
        })?,
        Err(_) if source != LogSource::Command && verbose == 0 => EnvFilter::new("warn,samehost_mount=info"),
        Err(_) => EnvFilter::default().add_directive(level.into()),
    };
    let background = source == LogSource::BackgroundMount;
    if background && verbose == 0 {
        STDERR_PRIORITY.store(Priority::Warning as u8, Relaxed);
    }
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(Destination)
        .with_ansi(!background && io::stderr().is_terminal());
    // The system log adds the time.
    let set = if background {
        tracing::subscriber::set_global_default(builder.without_time().finish())
    } else {
        tracing::subscriber::set_global_default(builder.finish())
    };
    set.map_err(|error| Failure::new("logging", error).into())
}

/// Logs to the system log from now on.
pub fn detach() {
    STDERR_PRIORITY.store(0, Relaxed);
}

/// Chooses the destination of each line.
struct Destination;

impl<'a> MakeWriter<'a> for Destination {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line { priority: Priority::Information, text: Vec::new() }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Line {
        Line { priority: Priority::of(*metadata.level()), text: Vec::new() }
    }
}

/// syslog(3)'s priorities with the facility "daemon".
#[derive(Clone, Copy)]
#[repr(u8)]
enum Priority {
    Error = 3 << 3 | 3,
    Warning = 3 << 3 | 4,
    Information = 3 << 3 | 6,
    Debug = 3 << 3 | 7,
}

impl Priority {
    fn of(level: Level) -> Self {
        match level {
            Level::ERROR => Self::Error,
            Level::WARN => Self::Warning,
            Level::INFO => Self::Information,
            _ => Self::Debug,
        }
    }
}

/// A line, written as a whole.
struct Line {
    priority: Priority,
    text: Vec<u8>,
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // An error of the log can't be logged.
        if self.priority as u8 <= STDERR_PRIORITY.load(Relaxed) {
            let _ = io::stderr().lock().write_all(&self.text);
        } else {
            let _ = to_syslog(self.priority, &self.text);
        }
    }
}

/// Sends one datagram (RFC 3164 section 4.1, as syslog(3) does on its own host). It doesn't block: a slow log
/// loses lines instead of delaying a filesystem.
fn to_syslog(priority: Priority, text: &[u8]) -> io::Result<()> {
    let mut datagram = format!("<{}>samehost[{}]: ", priority as u8, std::process::id()).into_bytes();
    datagram.extend_from_slice(text.trim_ascii_end());
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to(&datagram, SYSLOG).map(drop)
}
