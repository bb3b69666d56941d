//! Changes of the exports of a running server (`samehost ctl export`, `unexport` and `reload`).
//!
//! Exports that are changed here stay so until the next reload, which reads the configured ones, as with
//! exportfs(8).

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::mpsc::sync_channel;

use control::{ControlAnswer, LateAnswer, Reply};
use exports::{EditError, Exports};

use crate::export_table::ExportTable;
use crate::lifecycle::running::RunningServer;

impl RunningServer {
    /// Makes a change on a thread of its own, since an exported directory may be on a mount that hangs. The
    /// thread answers when the change is made or has failed.
    pub(crate) fn in_background(
        self: &Arc<Self>,
        change: impl FnOnce(&Self) -> Result<String, String> + Send + 'static,
    ) -> ControlAnswer {
        if self.is_changing.swap(true, Acquire) {
            let reason = "an earlier change is still under way: an exported mount may hang".to_owned();
            let next = Some("wait for its result, which the server also logs, and try again".to_owned());
            return ControlAnswer::now(&Reply::Error { reason, next });
        }
        let server = Arc::clone(self);
        let (sender, receiver) = sync_channel(1);
        let thread = std::thread::Builder::new().name("change".into()).spawn(move || {
            let result = change(&server);
            server.is_changing.store(false, Release);
            match &result {
                Ok(done) => tracing::info!("samehost ctl: {done}"),
                Err(reason) => tracing::warn!("samehost ctl: {reason}"),
            }
            drop(server);
            let reply = match result {
                Ok(done) => Reply::Done(done),
                Err(reason) => Reply::Error { reason, next: None },
            };
            // The client may be gone.
            let _ = receiver.recv().map(|client: LateAnswer| client.send(&reply));
        });
        if let Err(error) = thread {
            self.is_changing.store(false, Release);
            let reason = format!("no thread for it: {error}");
            return ControlAnswer::now(&Reply::Error { reason, next: None });
        }
        ControlAnswer::Later(sender)
    }

    pub(crate) fn export(&self, line: &str) -> Result<String, String> {
        let path = self.edit(|exports| exports.export(line))?;
        let table = self.service.access.table();
        let entry = table.configured().find(|entry| entry.export.path() == path);
        match entry.and_then(|entry| entry.problem()) {
            Some(problem) => Err(format!("{} is exported and not served: {problem}", path.display())),
            None => Ok(format!("{} is exported until the next reload", path.display())),
        }
    }

    pub(crate) fn unexport(&self, line: &str) -> Result<String, String> {
        let path = self.edit(|exports| exports.unexport(line))?;
        let table = self.service.access.table();
        let left = table.configured().find(|entry| entry.export.path() == path);
        let left = left.map(|entry| {
            let clients = entry.export.clients().iter().map(|client| client.spec.to_string());
            clients.collect::<Vec<_>>().join(" ")
        });
        let path = path.display();
        Ok(match left {
            Some(clients) => format!("{path} is still exported to {clients}, until the next reload"),
            None => format!("{path} is not exported until the next reload"),
        })
    }

    pub(crate) fn reload_for_control(&self) -> Result<String, String> {
        self.reload().map(|reloaded| reloaded.to_string()).map_err(|error| error.to_string())
    }

    /// Replaces the export table by an edited one.
    fn edit(&self, edit: impl FnOnce(&mut Exports) -> Result<PathBuf, EditError>) -> Result<PathBuf, String> {
        let _one = self.reloading.lock();
        let before = self.service.access.table();
        let mut exports: Exports = before.configured().map(|entry| entry.export.clone()).collect();
        let path = edit(&mut exports).map_err(|error| error.to_string())?;
        self.put_in_place(&before, ExportTable::open(&exports, &self.opening, &before));
        Ok(path)
    }
}
