//! This server as a node of a cluster: what it shares with the others, and the thread that keeps their rules.
//!
//! [`JoinedCluster`] is made when the server starts, before any client is answered. [`ClusterNode`] runs the
//! machine in crate `cluster`: it executes the effects, and tells the service's gate and the NFSv4 engine
//! what is permitted.

mod commands;
mod node;
mod session;
mod workers;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rados::{ObjectError, ObjectNamespace, Settings};
use recovery::{ClusterRecords, GraceDatabase, GraceError, cluster_handle_key};

use crate::lifecycle::config::ClusterConfig;

pub use commands::{AddressHook, NodeAddress, NodeAddressError};
pub(crate) use node::{ClusterNode, STOP_TIMEOUT};
pub(crate) use session::{CephSession, MARKS};

/// Why a server can't be a node of its cluster.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// RADOS can't be used.
    #[error(transparent)]
    Connect(Box<rados::Error>),
    /// The key of the file handles can't be read.
    #[error(transparent)]
    Object(Box<ObjectError>),
    /// The grace database can't be read.
    #[error("{0}; `samehost cluster add {1}` adds this server, and creates the cluster if there is none")]
    Grace(Box<GraceError>, String),
    /// The server isn't a node.
    #[error("{0} is not a node of the cluster; `samehost cluster add {0}` adds it")]
    NotMember(String),
    /// An exported directory isn't on CephFS.
    #[error("{path}: not on CephFS ({source}); all exports of a cluster's server are on one CephFS mount")]
    NotCephFs {
        /// The directory.
        path: PathBuf,
        /// Why its session isn't known.
        source: std::io::Error,
    },
    /// Two exported directories are on different mounts.
    #[error("{0} and {1} are on different CephFS mounts; all exports of a cluster's server are on one")]
    TwoMounts(PathBuf, PathBuf),
    /// The file by which the servers see whose locks are held can't be opened.
    #[error("{path}: {source}; a server of a cluster needs to create and lock this file")]
    Marks {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
}

/// What this server shares with the others of its cluster.
#[derive(Debug)]
pub(crate) struct JoinedCluster {
    pub node: String,
    pub grace: GraceDatabase,
    pub records: Arc<ClusterRecords>,
    /// The key of the file handles.
    pub key: [u8; 16],
    /// How addresses are moved.
    pub hook: AddressHook,
    /// How Ceph is reached.
    pub ceph: Settings,
}

/// The most waits for the cluster in [`JoinedCluster::connect`].
const WAITS: u32 = 5;

impl JoinedCluster {
    /// The longest time that [`JoinedCluster::connect`] takes.
    pub fn longest_connect(config: &ClusterConfig) -> Duration {
        config.settings.timeout * WAITS
    }

    /// Finds what [`JoinedCluster::connect`] would refuse, except for the key. Changes nothing.
    pub fn check(config: &ClusterConfig) -> Result<(), ClusterError> {
        member(config).map(drop)
    }

    /// Connects to RADOS, and checks that this server is a node.
    pub fn connect(config: &ClusterConfig) -> Result<Self, ClusterError> {
        let (objects, grace) = member(config)?;
        let key = cluster_handle_key(&objects).map_err(|error| ClusterError::Object(Box::new(error)))?;
        Ok(Self {
            records: ClusterRecords::new(objects, &config.node),
            node: config.node.clone(),
            grace,
            key,
            hook: config.address_hook.clone(),
            ceph: config.settings.clone(),
        })
    }
}

/// Connects to RADOS as a node of the cluster.
fn member(config: &ClusterConfig) -> Result<(ObjectNamespace, GraceDatabase), ClusterError> {
    let objects = ObjectNamespace::connect(&config.settings);
    let objects = objects.map_err(|error| ClusterError::Connect(Box::new(error)))?;
    let grace = GraceDatabase::new(objects.clone());
    let node = config.node.clone();
    match grace.read() {
        Err(error) => Err(ClusterError::Grace(Box::new(error), node)),
        Ok(found) if found.database.flags(&node).is_none() => Err(ClusterError::NotMember(node)),
        Ok(_) => Ok((objects, grace)),
    }
}
