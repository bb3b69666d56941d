//! The destination of log lines: standard error, or the system log of a mount in the background.

use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// Where syslog(3) and the journal listen.
const SYSLOG: &str = "/dev/log";

/// Lines of this and higher priorities go to standard error, lower ones to the system log.
static STDERR_PRIORITY: AtomicU8 = AtomicU8::new(u8::MAX);

/// Sends everything but warnings and errors to the system log from now on.
pub fn keep_warnings_on_stderr() {
    STDERR_PRIORITY.store(Priority::Warning as u8, Relaxed);
}

/// Sends everything to the system log from now on.
pub fn detach() {
    STDERR_PRIORITY.store(0, Relaxed);
}

/// Chooses the destination of each line.
#[derive(Clone, Copy, Debug)]
pub struct Destination;

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
pub struct Line {
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
        // The last field may have been left out of a line behind its blank.
        self.text.truncate(self.text.trim_ascii_end().len());
        self.text.push(b'\n');
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
