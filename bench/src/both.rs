//! Our server and Debian's nfs-ganesha, side by side.

use std::path::{Path, PathBuf};

use anyhow::Result;
use samehost_tests::ganesha::Ganesha;
use samehost_tests::process::Daemon;
use samehost_tests::{Netns, Serve, Server};

/// Both servers, each with the same directory, in one network.
pub struct Both {
    pub ours: Server,
    pub ganesha: Ganesha,
    pub netns: Netns,
    pub export: PathBuf,
}

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    Ours,
    Ganesha,
}

impl Who {
    /// Ours first.
    pub const ALL: [Self; 2] = [Self::Ours, Self::Ganesha];
}

impl Both {
    /// Starts them on a directory of that name in `place`, which `fill` puts files into; the network has the
    /// same name.
    pub fn start(place: &Path, name: &str, fill: impl FnOnce(&Path) -> std::io::Result<()>) -> Result<Self> {
        let export = place.join(name);
        std::fs::create_dir(&export)?;
        fill(&export)?;
        let netns = Netns::new(name);
        let ours = Serve::openly(&export).inside(&netns).start();
        let ganesha = Ganesha::start(&netns, &export);
        Ok(Self { ours, ganesha, netns, export })
    }

    /// The process.
    pub fn daemon(&self, who: Who) -> &Daemon {
        match who {
            Who::Ours => self.ours.daemon(),
            Who::Ganesha => self.ganesha.daemon(),
        }
    }

    /// Where it listens.
    pub fn port(&self, who: Who) -> u16 {
        match who {
            Who::Ours => self.ours.port(),
            Who::Ganesha => Ganesha::NFS_PORT,
        }
    }
}
