//! `ctl export`, `ctl unexport` and `ctl reload`: changes of a server's exports.

use server::Change;

use super::server::server;
use super::{report, tell};
use crate::cli::Global;
use crate::exit::CommandResult;

/// Requests the change from the one server that `instance` selects.
pub fn change(global: &Global, name: &str, instance: Option<&str>, change: &Change) -> CommandResult {
    let socket = server(global, instance, None)?;
    report(name, tell(&socket, change)?)
}
