//! What a server leaves behind if its process ends without having stopped it.

use std::path::PathBuf;

/// A server's sockets in its run directory. For who must end the process while
/// [`Server::stop`](crate::Server::stop) is still waiting for clients.
#[derive(Debug, Clone)]
pub struct Leftovers {
    pub(crate) run_dir: PathBuf,
    /// The name of all of them, up to the dot.
    pub(crate) instance: String,
}

impl Leftovers {
    /// Removes them, as far as they are there. Clients that are connected stay so.
    pub fn remove(&self) {
        for entry in std::fs::read_dir(&self.run_dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.file_stem().is_some_and(|stem| stem == self.instance.as_str()) {
                // Somebody else may be just removing it.
                let _ = std::fs::remove_file(path);
            }
        }
    }
}
