//! The exit codes of commands, and errors with the object, the reason and, where there is one, the next step.
//!
//! [`Failure`] has a field for each of them, so that no call site forgets one.

use std::fmt;
use std::process::ExitCode;

/// The exit codes of all commands. Scripts rely on the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// The operation failed, or some of its operands did.
    Failed = 1,
    /// The command line is wrong. Nothing was tried.
    Usage = 2,
    /// There is no lane, and one was required (`probe`, `--lane required`).
    NotLocal = 3,
    /// The server couldn't be reached; for `status`, no server.
    Unreachable = 4,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// The exit codes in every command's long help, as a literal that other texts can end with.
macro_rules! exit_codes {
    () => {
        "Exit codes:
  0  done
  1  the operation failed, or some of its operands did
  2  the command line couldn't be understood; nothing was tried
  3  no lane came up where one was asked for (probe, --lane required)
  4  the server couldn't be reached; for status: no server is running"
    };
}
pub(crate) use exit_codes;

/// The same as a constant.
pub const EXIT_CODES: &str = exit_codes!();

/// A failure, in words for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// The file, directory, address or option.
    pub object: String,
    /// What failed.
    pub reason: String,
    /// What the user can do about it.
    pub next: Option<String>,
}

impl Failure {
    /// A failed operation on `object`. Numbers of system errors are left out of the reason.
    pub fn new(object: impl Into<String>, reason: impl fmt::Display) -> Self {
        let reason = sys::without_error_numbers(&reason.to_string());
        Self { exit: Exit::Failed, object: object.into(), reason, next: None }
    }

    /// A command line that can't be carried out.
    pub fn usage(object: impl Into<String>, reason: impl fmt::Display) -> Self {
        Self { exit: Exit::Usage, ..Self::new(object, reason) }
    }

    /// Adds the next step.
    #[must_use]
    pub fn next(mut self, step: impl Into<String>) -> Self {
        self.next = Some(step.into());
        self
    }

    /// Changes the exit code.
    #[must_use]
    pub fn exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.object, self.reason)?;
        if let Some(next) = &self.next {
            write!(f, "\n  next: {next}")?;
        }
        Ok(())
    }
}

/// Why a command stopped early.
#[derive(Debug)]
pub enum Stop {
    /// It failed.
    Failed(Box<Failure>),
    /// The reader of standard output has gone (`samehost ls ... | head -1`), which is no error.
    ReaderGone,
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Stop::Failed(Box::new(failure))
    }
}

/// The result of a command.
pub type CommandResult = Result<Exit, Stop>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_object_reason_and_next_step() {
        let failure = Failure::new("nfs://a/b", "permission denied").next("ask for access");
        assert_eq!(failure.to_string(), "nfs://a/b: permission denied\n  next: ask for access");
        let failure = Failure::new("/a", std::io::Error::from_raw_os_error(13));
        assert_eq!(failure.to_string(), "/a: Permission denied");
    }

    #[test]
    fn every_exit_code_is_in_the_help() {
        for exit in [Exit::Done, Exit::Failed, Exit::Usage, Exit::NotLocal, Exit::Unreachable] {
            assert!(EXIT_CODES.contains(&format!("\n  {}  ", exit as u8)), "{exit:?}");
        }
    }
}
