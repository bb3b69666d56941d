//! The directories that are compared: over each data path, and through the peer.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};

use super::data_path::{Calls, LeftOut, MOUNTED, Site, open_all};
use super::passthrough_ll::{PassthroughLl, VARIANTS};
use crate::Effort;

/// An empty directory to work in.
pub enum Subject {
    /// Over a data path.
    Site(Box<Site>),
    /// Through the peer.
    Peer(Box<PassthroughLl>),
}

impl Subject {
    /// The directories over all data paths and the peer's, and what is left out. Servers, clients and peer
    /// run through the command `prefix`.
    pub fn open_all(
        effort: &Effort,
        place: &Path,
        prefix: &'static [&'static str],
    ) -> Result<(Vec<Self>, Vec<LeftOut>)> {
        let (sites, mut left_out) = open_all(&MOUNTED, &effort.paths, place, prefix)?;
        let mut subjects: Vec<Self> = sites.into_iter().map(|site| Self::Site(Box::new(site))).collect();
        for variant in &VARIANTS {
            if !effort.paths.is_empty() && !effort.paths.iter().any(|wanted| wanted == variant.name) {
                continue;
            }
            match PassthroughLl::mount(&effort.passthrough_ll, variant, place, prefix)? {
                Ok(peer) => subjects.push(Self::Peer(Box::new(peer))),
                Err(reason) => left_out.push(LeftOut::new(variant.heading, reason)),
            }
        }
        Ok((subjects, left_out))
    }

    /// The column's heading.
    pub fn heading(&self) -> &'static str {
        match self {
            Self::Site(site) => site.data_path.heading,
            Self::Peer(peer) => peer.variant().heading,
        }
    }

    /// The directory, as applications reach it.
    pub fn work(&self) -> PathBuf {
        match self {
            Self::Site(site) => site.work(),
            Self::Peer(peer) => peer.path().to_owned(),
        }
    }

    /// The calls to the server so far; the peer has none.
    pub fn calls(&self) -> Calls {
        match self {
            Self::Site(site) => site.calls(),
            Self::Peer(_) => Calls::default(),
        }
    }

    /// As [`Site::wait_until_quiet`].
    pub fn wait_until_quiet(&self) -> Result<()> {
        match self {
            Self::Site(site) => site.wait_until_quiet(),
            Self::Peer(_) => Ok(()),
        }
    }

    /// Empties the caches of the kernel, the server and the client.
    pub fn restart_cold(&mut self) -> Result<()> {
        match self {
            Self::Site(site) => site.restart_cold(),
            Self::Peer(peer) => peer.restart_cold(),
        }
    }

    /// The same directory, empty again.
    pub fn reopen(self, effort: &Effort, place: &Path) -> Result<Self> {
        let heading = self.heading();
        let reopened = match self {
            Self::Site(site) => {
                let data_path = site.data_path;
                site.clear()?;
                Site::open(data_path, place, &[])?.map(|site| Self::Site(Box::new(site)))
            }
            Self::Peer(peer) => {
                let variant = peer.variant();
                peer.clear()?;
                PassthroughLl::mount(&effort.passthrough_ll, variant, place, &[])?
                    .map(|peer| Self::Peer(Box::new(peer)))
            }
        };
        reopened.map_err(|reason| anyhow!("{heading} is there no more: {reason}"))
    }

    /// Removes all files.
    pub fn clear(self) -> Result<()> {
        match self {
            Self::Site(site) => site.clear(),
            Self::Peer(peer) => peer.clear(),
        }
    }
}
