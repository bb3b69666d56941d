//! Samehost and Debian's nfs-ganesha, running at the same time on the same directory.

use std::path::{Path, PathBuf};

use anyhow::Result;
use samehost_tests::ganesha::Ganesha;
use samehost_tests::process::Daemon;
use samehost_tests::{Netns, Serve, Server};

/// ServerPair servers in one network namespace, exporting the same directory.
pub struct ServerPair {
    pub ours: Server,
    pub ganesha: Ganesha,
    pub netns: Netns,
    pub export: PathBuf,
}

/// One of the two servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    Ours,
    Ganesha,
}

impl Target {
    /// Ours first.
    pub const ALL: [Self; 2] = [Self::Ours, Self::Ganesha];
}

impl ServerPair {
    /// Creates the directory `name` in `place`, lets `fill` create its files, and starts both servers on it.
    /// The network namespace is named `name`, too.
    pub fn start(place: &Path, name: &str, fill: impl FnOnce(&Path) -> std::io::Result<()>) -> Result<Self> {
        let export = place.join(name);
        std::fs::create_dir(&export)?;
        fill(&export)?;
        let netns = Netns::new(name);
        let ours = Serve::openly(&export).inside(&netns).start();
        let ganesha = Ganesha::start(&netns, &export);
        Ok(Self { ours, ganesha, netns, export })
    }

    /// The server's process.
    pub fn daemon(&self, target: Target) -> &Daemon {
        match target {
            Target::Ours => self.ours.daemon(),
            Target::Ganesha => self.ganesha.daemon(),
        }
    }

    /// The port of its NFS service.
    pub fn port(&self, target: Target) -> u16 {
        match target {
            Target::Ours => self.ours.port(),
            Target::Ganesha => Ganesha::NFS_PORT,
        }
    }
}
