//! The choice of the server that a sub-command of `ctl` changes.

use std::path::Path;

use control::{ProcessAnswer, ProcessSocket};
use server::Status;

use super::unanswered;
use crate::cli::Global;
use crate::commands::status;
use crate::exit::{Exit, Failure};

/// The socket of the one server that the arguments select. `name` is a process id, or the beginning of an
/// instance.
pub fn server(global: &Global, name: Option<&str>, export: Option<&Path>) -> Result<ProcessSocket, Failure> {
    let dir = global.run_dir.display().to_string();
    let asked =
        status::servers(&global.run_dir).map_err(|error| status::unreadable(&global.run_dir, &error))?;
    let silent = asked.silent;
    let asked: Vec<ProcessAnswer<Status>> = asked.answers;
    if asked.is_empty() && silent.is_empty() {
        return Err(Failure::new(&dir, "no server is running here")
            .exit(Exit::Unreachable)
            .next("name its run directory with --run-dir or SAMEHOST_RUN_DIR"));
    }
    let exports =
        |status: &Status| export.is_none_or(|export| status.exports.iter().any(|other| other.path == export));
    let pid = name
        .and_then(|name| name.parse::<u32>().ok())
        .filter(|pid| asked.iter().any(|asked| asked.answer.pid == *pid));
    let named = |status: &Status| match pid {
        Some(pid) => status.pid == pid,
        None => name.is_none_or(|start| status.instance.starts_with(start)),
    };
    let mut matching: Vec<_> =
        asked.into_iter().filter(|asked| named(&asked.answer) && exports(&asked.answer)).collect();
    if matching.is_empty()
        && let Some(failure) = unanswered(&silent, "server")
    {
        return Err(failure);
    }
    status::report_unresponsive(&silent, "server");
    match (matching.pop(), matching.is_empty()) {
        (Some(only), true) => Ok(only.socket),
        (Some(_), false) => Err(Failure::new(&dir, "several servers match").next("name one with --server")),
        (None, _) => {
            let what = export.map_or_else(|| dir.clone(), |export| export.display().to_string());
            Err(Failure::new(what, "no matching server exports it")
                .next("`samehost status` lists the servers and their exports"))
        }
    }
}
