//! What can be changed while the server runs (`samehost ctl`), asked for at its socket.

use std::path::PathBuf;

use control::Reply;
use serde::{Deserialize, Serialize};

use crate::export_table::io_modes::Direction;
use crate::lifecycle::running::Running;

/// A change that is asked for, as JSON on the socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// Another I/O mode.
    IoMode {
        /// For this export; without one for the server, where no export says otherwise.
        export: Option<PathBuf>,
        /// For reads or for writes.
        direction: Direction,
        /// `buffered`, `dontcache` or `direct`; without one, what was set before by this way is taken back.
        mode: Option<String>,
    },
}

impl Running {
    /// Makes a change.
    pub(crate) fn change(&self, change: Change) -> Reply {
        match change {
            Change::IoMode { export, direction, mode } => {
                let mode = match mode.map(|word| word.parse()).transpose() {
                    Ok(mode) => mode,
                    Err(reason) => return Reply::Error { reason, next: None },
                };
                let gate = &self.service.gate;
                let Some(path) = export else {
                    let started_with = match direction {
                        Direction::Read => self.config.read_io,
                        Direction::Write => self.config.write_io,
                    };
                    let mode = mode.unwrap_or(started_with);
                    gate.io.set(direction, Some(mode));
                    self.modes_changed();
                    return Reply::Done(format!("{direction} mode {mode}, where no export says otherwise"));
                };
                let table = gate.table();
                let Some(entry) = table.entries().iter().find(|entry| entry.export.path() == path) else {
                    return Reply::Error {
                        reason: format!("{} is not exported by this server", path.display()),
                        next: Some("`samehost status` lists the exports".to_owned()),
                    };
                };
                entry.io.set(direction, mode);
                self.modes_changed();
                Reply::Done(match mode {
                    Some(mode) => format!("{direction} mode {mode} for {}", path.display()),
                    None => format!("{direction} mode of {} by its options again", path.display()),
                })
            }
        }
    }

    /// What was granted was granted by the modes of then.
    fn modes_changed(&self) {
        self.service.gate.modes_changed();
        if let Some(lane) = &self.lane {
            lane.recall(|_| true);
        }
    }
}
