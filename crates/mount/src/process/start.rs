//! Starting a mount's process in the background.

use std::ffi::OsString;
use std::io::{self, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use super::{DaemonFailure, DaemonMessage, ProcessError};

/// The name of the process in ps(1).
const NAME: &str = "samehost";

/// How the start of a mount's process went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Started {
    /// The filesystem is mounted, and the process serves it.
    Mounted,
    /// The server can't be reached, and the process tries again in the background.
    Retrying(DaemonFailure),
    /// The filesystem isn't mounted, and the process has ended.
    Failed(DaemonFailure),
}

/// Starts this program once more with other arguments, with which it must run [`super::background`], and
/// waits for its last message. `waiting` gets the failures after which it tries again, with the milliseconds
/// for which it will.
///
/// # Errors
/// [`ProcessError::Start`], [`ProcessError::Messages`] and [`ProcessError::EndedEarly`].
pub fn start(
    arguments: impl IntoIterator<Item = OsString>,
    waiting: impl FnMut(&DaemonFailure, u64),
) -> Result<Started, ProcessError> {
    // The file that runs now, even if it was replaced meanwhile.
    let mut child = Command::new("/proc/self/exe")
        .arg0(NAME)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| ProcessError::Start(sys::proc_error(error)))?;
    let no_pipe = || ProcessError::Start(io::Error::from(io::ErrorKind::BrokenPipe));
    let stdout = child.stdout.take().ok_or_else(no_pipe)?;
    match DaemonMessage::receive_last(BufReader::new(stdout), waiting).map_err(ProcessError::Messages)? {
        Some(DaemonMessage::Mounted | DaemonMessage::Waiting { .. }) => Ok(Started::Mounted),
        Some(DaemonMessage::Retrying(failure)) => Ok(Started::Retrying(failure)),
        Some(DaemonMessage::Failed(failure)) => {
            // The process is about to end.
            let _ = child.wait();
            Ok(Started::Failed(failure))
        }
        None => Err(ProcessError::EndedEarly(child.wait().map_err(ProcessError::Start)?)),
    }
}
