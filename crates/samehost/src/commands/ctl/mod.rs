//! `ctl`: changes settings of a running process.

mod exports;
mod io_mode;
mod lane;
mod server;

use ::server::Change;
use control::{ProcessSocket, Reply, Unresponsive};
use serde::Serialize;

use crate::cli::{CtlArgs, CtlCommand, Global};
use crate::commands::status;
use crate::exit::{CommandResult, Exit, Failure};
use crate::human;
use crate::output::{Output, print_error};

/// Runs the sub-command.
pub fn ctl(global: &Global, args: &CtlArgs) -> CommandResult {
    match &args.what {
        CtlCommand::IoMode(args) => io_mode::io_mode(global, args),
        CtlCommand::Export(args) => {
            let change = Change::Export { line: args.line.clone() };
            exports::change(global, "export", args.server.as_deref(), &change)
        }
        CtlCommand::Unexport(args) => {
            let change = Change::Unexport { line: args.line.clone() };
            exports::change(global, "unexport", args.server.as_deref(), &change)
        }
        CtlCommand::Reload(args) => {
            exports::change(global, "reload", args.server.as_deref(), &Change::Reload)
        }
        CtlCommand::Lane(args) => lane::lane(global, args),
    }
}

/// The failure where no process that answered is the chosen one: it may be one of those that didn't, of which
/// all but one are reported here.
fn unanswered(silent: &[Unresponsive], what: &'static str) -> Option<Failure> {
    let (Unresponsive { path, error }, others) = silent.split_last()?;
    status::report_unresponsive(others, what);
    Some(status::unanswered(path, error, what))
}

/// Requests a change from the process with this socket, and waits for its result.
fn tell(socket: &ProcessSocket, change: &impl Serialize) -> Result<Reply, Failure> {
    let what = socket.kind().to_string();
    let mut has_said = false;
    let waiting = || {
        if !std::mem::replace(&mut has_said, true) {
            print_error(&format!("the {what} is still at it, perhaps because a mount hangs; waiting"));
        }
    };
    control::tell(socket, change, waiting).map_err(|error| status::unanswered(&socket.path(), &error, &what))
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
            // Each is one line: another process may not write lines of this one's.
            let failure = Failure::new(about, human::line(&reason));
            Err(next.iter().map(|next| human::line(next)).fold(failure, Failure::next).into())
        }
    }
}
