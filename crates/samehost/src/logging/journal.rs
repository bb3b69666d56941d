//! Log lines as fields for the journal, by its native protocol
//! (<https://systemd.io/JOURNAL_NATIVE_PROTOCOL/>): one datagram for each line.
//!
//! Invariant: no line waits. If the journal has no room for a line, the line is lost and counted.

use std::fmt;
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::net::UnixDatagram;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::lost::LOST_LINES;
use super::{IDENTIFIER, TARGET};

/// Where the journal listens.
pub const SOCKET: &str = "/run/systemd/journal/socket";

/// Sends each event with its fields, those of its spans and its place in the code.
pub struct JournalLayer {
    socket: UnixDatagram,
}

impl JournalLayer {
    /// # Errors
    /// There is no journal.
    pub fn new() -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        // The journal ignores an empty datagram.
        match socket.send_to(&[], SOCKET) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(Self { socket }),
        }
    }
}

/// Fields in the form of the protocol.
struct Fields(Vec<u8>);

impl Fields {
    fn of(metadata: &Metadata<'_>, prefix: &str) -> Self {
        let mut fields = Self(Vec::with_capacity(256));
        fields.put(&format!("{prefix}TARGET"), metadata.target());
        if let (Some(file), Some(line)) = (metadata.file(), metadata.line()) {
            fields.put(&format!("{prefix}CODE_FILE"), file);
            fields.put(&format!("{prefix}CODE_LINE"), line);
        }
        fields
    }

    /// Adds a field: its name, a newline, the value's length in 64 bits, the value, a newline. Names consist
    /// of A to Z, 0 to 9 and underscores, and begin with a letter.
    fn put(&mut self, name: &str, value: impl fmt::Display) {
        let valid = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
        let name = name.trim_start_matches(|c: char| !c.is_ascii_alphabetic());
        self.0.extend(name.chars().map(|c| valid(c) as u8));
        self.0.push(b'\n');
        let at = self.0.len();
        self.0.extend([0; 8]);
        // Writing to a vector can't fail; a value whose formatting fails is cut there.
        let _ = write!(self.0, "{value}");
        let length = (self.0.len() - at - 8) as u64;
        self.0[at..at + 8].copy_from_slice(&length.to_le_bytes());
        self.0.push(b'\n');
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field.name(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field.name(), format_args!("{value:?}"));
    }
}

/// The priorities of syslog(3). Level info has "notice", because audit lines are worth more than what
/// `-vv` logs.
const fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 5,
        Level::DEBUG => 6,
        Level::TRACE => 7,
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for JournalLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Fields::of(span.metadata(), "SPAN_");
        fields.put("SPAN_NAME", span.name());
        attributes.record(&mut fields);
        span.extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(fields) = span.extensions_mut().get_mut::<Fields>() {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let metadata = event.metadata();
        let mut line = Fields::of(metadata, "");
        line.put("PRIORITY", priority(*metadata.level()));
        line.put("SYSLOG_IDENTIFIER", IDENTIFIER);
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(fields) = span.extensions().get::<Fields>() {
                line.0.extend(&fields.0);
            }
        }
        event.record(&mut line);
        if self.socket.send_to(&line.0, SOCKET).is_err() {
            LOST_LINES.add(metadata.target() == TARGET);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_names_that_the_journal_takes_and_values_of_any_bytes() {
        let mut fields = Fields(Vec::new());
        fields.put("_data.path", "a\nb");
        fields.put("r#type", 12);
        assert_eq!(fields.0, b"DATA_PATH\n\x03\0\0\0\0\0\0\0a\nb\nR_TYPE\n\x02\0\0\0\0\0\0\x0012\n");
    }
}
