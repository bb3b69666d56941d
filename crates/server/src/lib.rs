//! The NFS server: programs over store, exports and lane.
//!
//! One port serves NFSv3, MOUNT v3 and the LOCALIO program. A call's way: `rpc` (framing, credential) ->
//! `nfs3` or `mount3` (arguments, results) -> `access` (which export, this client, squashed to whom) ->
//! `store` (the file). The lane's way joins at `access`: both roads ask the same function, so neither can
//! allow what the other refuses.
//!
//! [`Server::start`] brings up everything that a [`Config`] names and [`Server::stop`] takes it down again in
//! the order that loses nothing; several servers can live in one process.

mod authorization;
mod export_table;
mod lifecycle;
mod programs;
mod service;
pub mod status;

pub use export_table::io_modes::Direction;
pub use exports::IoMode;
pub use lifecycle::Server;
pub use lifecycle::change::Change;
pub use lifecycle::config::{self, Config};
pub use lifecycle::descriptors::TooFew;
pub use lifecycle::errors::{ReloadError, StartError};
pub use lifecycle::lock_store::{LockStore, is_lock};
pub use lifecycle::running::Reloaded;
pub use lifecycle::stale_sockets::StaleSockets;
use programs::nfs4;
pub use programs::nfs4::{MaxResult, OPERATIONS, OperationSpec, Position};
pub use status::Status;
