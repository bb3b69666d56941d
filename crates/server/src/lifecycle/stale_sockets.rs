//! The sockets of a server whose process ends without stopping it.

use std::path::PathBuf;

/// A server's sockets in its run directory. For processes that must exit while
/// [`Server::stop`](crate::Server::stop) is still waiting for clients.
#[derive(Debug, Clone)]
pub struct StaleSockets {
    pub(crate) run_dir: PathBuf,
    /// Their common name, up to the dot.
    pub(crate) instance: String,
}

impl StaleSockets {
    /// Removes those that exist. Connected clients aren't affected.
    pub fn remove(&self) {
        for entry in std::fs::read_dir(&self.run_dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.file_stem().is_some_and(|stem| stem == self.instance.as_str()) {
                // The server itself may be removing it.
                let _ = std::fs::remove_file(path);
            }
        }
    }
}
