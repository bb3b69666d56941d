//! The messages of a mount's process in the background to the command that started it: one line of JSON each,
//! over the pipe that is the process's standard output.

use std::fmt;
use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};

use super::ProcessError;

/// A message. All but the first are the last of their process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DaemonMessage {
    /// The server can't be reached yet; the process tries again.
    Waiting {
        /// The last failure.
        failure: DaemonFailure,
        /// Milliseconds for which the process will try.
        left_ms: u64,
    },
    /// The filesystem is mounted.
    Mounted,
    /// The filesystem isn't mounted, and the process tries again in the background (`bg`).
    Retrying(DaemonFailure),
    /// The filesystem isn't mounted.
    Failed(DaemonFailure),
}

/// A failure in words for the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonFailure {
    /// The exit code of the command.
    pub exit_code: u8,
    /// The file, directory, address or option.
    pub object: String,
    /// What failed.
    pub reason: String,
    /// What the user can do about it.
    pub next: Option<String>,
}

impl fmt::Display for DaemonFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.object, self.reason)?;
        if let Some(next) = &self.next {
            write!(f, "\n  next: {next}")?;
        }
        Ok(())
    }
}

impl DaemonFailure {
    /// The endpoint of the metrics can't be started.
    pub(super) fn of_metrics(error: &ProcessError) -> Self {
        Self {
            exit_code: 1,
            object: "mount".to_owned(),
            reason: error.to_string(),
            next: Some("give each mount an address of its own (-o metrics=ADDR:PORT)".to_owned()),
        }
    }
}

impl DaemonMessage {
    /// Writes the message.
    ///
    /// # Errors
    /// The writer's: `BrokenPipe` if the command that started the process is gone.
    pub fn send(&self, to: &mut impl Write) -> io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        to.write_all(&line)?;
        to.flush()
    }

    /// Reads up to a process's last message; `waiting` gets those before it. `None`: the process ended
    /// without one.
    ///
    /// # Errors
    /// The reader's; `InvalidData` for a line that is no message.
    pub fn receive_last(
        from: impl BufRead,
        mut waiting: impl FnMut(&DaemonFailure, u64),
    ) -> io::Result<Option<Self>> {
        for line in from.lines() {
            match serde_json::from_str(&line?)? {
                Self::Waiting { failure, left_ms } => waiting(&failure, left_ms),
                last => return Ok(Some(last)),
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_message_counts() {
        let failure = |reason: &str| DaemonFailure {
            exit_code: 4,
            object: "a".to_owned(),
            reason: reason.to_owned(),
            next: Some("c".to_owned()),
        };
        let receive = |messages: &[DaemonMessage]| {
            let mut pipe = Vec::new();
            messages.iter().for_each(|message| message.send(&mut pipe).unwrap());
            let mut waited = Vec::new();
            let last = DaemonMessage::receive_last(&pipe[..], |failure, left| {
                waited.push((failure.reason.clone(), left));
            });
            (waited, last.unwrap())
        };
        let waiting = |reason| DaemonMessage::Waiting { failure: failure(reason), left_ms: 7 };
        let (waited, last) = receive(&[waiting("two\nlines"), DaemonMessage::Mounted, waiting("no")]);
        assert_eq!((waited, last), (vec![("two\nlines".to_owned(), 7)], Some(DaemonMessage::Mounted)));
        let failed = DaemonMessage::Failed(failure("b"));
        assert_eq!(receive(std::slice::from_ref(&failed)).1, Some(failed));
        assert_eq!(receive(&[]).1, None);
        let nonsense = DaemonMessage::receive_last(&b"nonsense\n"[..], |_, _| {});
        assert_eq!(nonsense.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
