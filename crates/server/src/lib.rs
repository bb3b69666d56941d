//! The NFS server: RPC programs over store, exports and lane.
//!
//! One port serves NFS versions 3 and 4 (minor versions 0 to 2), NFSACL, MOUNT version 3 and LOCALIO. A call
//! passes `rpc` (framing, credential), its program in `programs` (arguments, results),
//! `authorization::access` (the export, the client, the user after squashing) and `store` (the file). Opens
//! over the lane use the same `authorization::access`, so that neither transport allows what the other
//! refuses.
//!
//! [`Server::start`] starts everything that a [`Config`] names, and [`Server::stop`] stops it in the order
//! that loses nothing. Several servers can run in one process.

mod authorization;
mod export_table;
mod lifecycle;
mod programs;
mod service;
pub mod status;

pub use authorization::audit::{TARGET as AUDIT_TARGET, message_id};
pub use control::exposition::MetricsAddress;
pub use export_table::io_modes::Direction;
pub use export_table::resolved::{PathObstacle, path_obstacles};
pub use exports::IoMode;
pub use lifecycle::Server;
pub use lifecycle::change::Change;
pub use lifecycle::cluster::{AddressHook, ClusterError, NodeAddress, NodeAddressError};
pub use lifecycle::config::{self, ClusterConfig, Config, LaneOffer};
pub use lifecycle::descriptors::TooFew;
pub use lifecycle::errors::{ReloadError, StartError};
pub use lifecycle::monitor::StartMonitor;
pub use lifecycle::running::Reloaded;
pub use lifecycle::stale_sockets::StaleSockets;

pub use recovery::DirectoryHolder;

pub use programs::nfs4::{MaxResult, OPERATIONS, OperationSpec, Position};
pub use service::nfs4_state::{LockStore, is_lock};
pub use status::Status;
