//! `ctl`: changes settings of a running process.

mod io_mode;
mod lane;

use control::Reply;

use crate::cli::{CtlArgs, CtlCommand, Global};
use crate::exit::{CommandResult, Exit, Failure};
use crate::output::Output;

/// Runs the sub-command.
pub fn ctl(global: &Global, args: &CtlArgs) -> CommandResult {
    match &args.what {
        CtlCommand::IoMode(args) => io_mode::io_mode(global, args),
        CtlCommand::Lane(args) => lane::lane(global, args),
    }
}

/// Prints the reply of a process.
fn report(about: &str, reply: Reply) -> CommandResult {
    match reply {
        Reply::Done(words) => {
            let mut output = Output::stdout();
            output.line(words)?;
            output.flush()?;
            Ok(Exit::Done)
        }
        Reply::Error { reason, next } => {
            let failure = Failure::new(about, reason);
            Err(next.into_iter().fold(failure, Failure::next).into())
        }
    }
}
