//! Changes of a running server (`samehost ctl`), requested through its control socket.

use std::path::PathBuf;
use std::sync::Arc;

use control::{ControlAnswer, Reply};
use serde::{Deserialize, Serialize};

use crate::export_table::io_modes::Direction;
use crate::lifecycle::running::RunningServer;

/// A requested change, as JSON on the socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// Another I/O mode.
    IoMode {
        /// The export; without one, all exports that don't set a mode of their own.
        #[serde(default, with = "control::path_text::option")]
        export: Option<PathBuf>,
        /// For reads or for writes.
        direction: Direction,
        /// `buffered`, `dontcache` or `direct`; without one, the previous change is reset.
        mode: Option<String>,
    },
    /// Exports a directory, or changes its options for clients, until the next reload.
    Export {
        /// A line in exports(5) syntax.
        line: String,
    },
    /// Ends exports until the next reload.
    Unexport {
        /// A line in exports(5) syntax, whose options are ignored. Without clients: for all of them.
        line: String,
    },
    /// Reads the configuration and the exports again.
    Reload,
}

impl RunningServer {
    /// Makes a change.
    pub(crate) fn change(self: &Arc<Self>, change: Change) -> ControlAnswer {
        match change {
            Change::Export { line } => self.in_background(move |server| server.export(&line)),
            Change::Unexport { line } => self.in_background(move |server| server.unexport(&line)),
            Change::Reload => self.in_background(RunningServer::reload_for_control),
            Change::IoMode { export, direction, mode } => {
                ControlAnswer::now(&self.change_io_mode(export, direction, mode.as_deref()))
            }
        }
    }

    fn change_io_mode(&self, export: Option<PathBuf>, direction: Direction, mode: Option<&str>) -> Reply {
        let mode = match mode.map(str::parse).transpose() {
            Ok(mode) => mode,
            Err(reason) => return Reply::Error { reason, next: None },
        };
        let access = &self.service.access;
        let Some(path) = export else {
            let started_with = match direction {
                Direction::Read => self.config.lock().read_io,
                Direction::Write => self.config.lock().write_io,
            };
            let mode = mode.unwrap_or(started_with);
            access.io.set(direction, Some(mode));
            self.modes_changed();
            return Reply::Done(format!("{direction} mode {mode}, where no export says otherwise"));
        };
        let table = access.table();
        let Some(entry) = table.configured().find(|entry| entry.export.path() == path) else {
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

    /// Applies changed modes. Grants were given by the old modes and are recalled.
    pub(crate) fn modes_changed(&self) {
        self.service.access.modes_changed();
        if let Some(lane) = &self.lane {
            lane.recall(|_| true);
        }
    }
}
