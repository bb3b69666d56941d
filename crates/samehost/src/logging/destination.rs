//! The destination of log lines: standard error, or the system log of a mount in the background.

use std::io::{self, ErrorKind, Write};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

use super::TARGET;
use super::lost::LOST_LINES;

/// Where syslog(3) and the journal listen.
const SYSLOG: &str = "/dev/log";

/// The bytes for which a pipe has room if poll(2) says so (PIPE_BUF of pipe(7)). A socket has more.
const CERTAIN_ROOM: usize = 4096;

/// Whether a line waits until standard error takes it. Otherwise it is lost.
static WAITS: AtomicBool = AtomicBool::new(true);

/// Whether the last line was lost behind its beginning.
static IS_CUT: AtomicBool = AtomicBool::new(false);

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

/// Loses lines for which standard error has no room from now on.
pub fn lose_lines_instead_of_waiting() {
    WAITS.store(false, Relaxed);
}

/// Chooses the destination of each line.
#[derive(Clone, Copy, Debug)]
pub struct Destination;

impl<'a> MakeWriter<'a> for Destination {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line { priority: Priority::Information, is_report: false, text: Vec::new() }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Line {
        let priority = Priority::of(*metadata.level());
        Line { priority, is_report: metadata.target() == TARGET, text: Vec::new() }
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
    /// Whether it is about skipped or lost lines.
    is_report: bool,
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
        let written = if self.priority as u8 <= STDERR_PRIORITY.load(Relaxed) {
            to_stderr(&self.text)
        } else {
            to_syslog(self.priority, &self.text)
        };
        if written.is_err() {
            LOST_LINES.add(self.is_report);
        }
    }
}

/// Writes a line, in parts for which there is room if it may not wait.
fn to_stderr(line: &[u8]) -> io::Result<()> {
    let mut stderr = io::stderr().lock();
    if WAITS.load(Relaxed) {
        return stderr.write_all(line);
    }
    for (number, part) in line.chunks(CERTAIN_ROOM - 1).enumerate() {
        let mut ready = [PollFd::new(&stderr, PollFlags::OUT)];
        if poll(&mut ready, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? == 0 {
            IS_CUT.fetch_or(number > 0, Relaxed);
            return Err(ErrorKind::WouldBlock.into());
        }
        if IS_CUT.swap(false, Relaxed) {
            stderr.write_all(b"\n")?;
        }
        stderr.write_all(part)?;
    }
    Ok(())
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
