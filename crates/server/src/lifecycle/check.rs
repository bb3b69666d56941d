//! What a start would refuse, found without starting a server.
//!
//! Each check is the one that the start makes, so that both say the same. Nothing is changed, and a server
//! that runs isn't disturbed: that an address or the state directory is in use is no finding, since a running
//! server of this configuration has them.

use std::io;

use crate::lifecycle::cluster::{CephSession, JoinedCluster};
use crate::lifecycle::config::Config;
use crate::lifecycle::descriptors::Descriptors;
use crate::lifecycle::errors::StartError;
use crate::lifecycle::start::{
    cannot_listen, open_table, read_exports, require_proc, state_path, store_settings, unusable,
};
use crate::lifecycle::{listen, process};

impl Config {
    /// Finds what [`Server::start`](crate::Server::start) would refuse on this host, as this process's user.
    /// Of a cluster it finds whether it can be reached and has this node, and not whether the file of the
    /// servers' sessions can be created.
    #[must_use]
    pub fn check(&self) -> Vec<StartError> {
        let mut refused = Vec::new();
        refused.extend(self.check_exports().err());
        refused.extend(require_proc().err());
        match &self.cluster {
            Some(cluster) => refused.extend(JoinedCluster::check(cluster).err().map(StartError::from)),
            None => refused.extend(self.check_state_directory().err()),
        }
        for address in &self.listen {
            let in_use = |error: &io::Error| error.kind() == io::ErrorKind::AddrInUse;
            let error = listen::is_free(*address).err().filter(|error| !in_use(error));
            refused.extend(error.map(|source| cannot_listen(&[*address], source)));
        }
        if let Some(address) = &self.metrics
            && let Err(source) = address.check()
        {
            refused.push(StartError::Metrics { address: address.clone(), source });
        }
        refused
    }

    fn check_exports(&self) -> Result<(), StartError> {
        let exports = read_exports(self)?;
        let divided = Descriptors::divide(process::most_descriptors(), self.demands(&exports))?;
        let table = open_table(&exports, &store_settings(self, [0; 16], &divided))?;
        if self.cluster.is_some() {
            let served = table.entries().iter().filter(|entry| entry.store.is_ok());
            let paths: Vec<_> = served.map(|entry| entry.export.path().to_owned()).collect();
            CephSession::name_of(&paths)?;
        }
        Ok(())
    }

    fn check_state_directory(&self) -> Result<(), StartError> {
        recovery::StateDirectory::check(&state_path(self)?).map_err(unusable)
    }
}
