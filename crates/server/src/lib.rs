//! The NFS server: programs over store, exports and lane.
//!
//! One port serves NFSv3, MOUNT v3 and the LOCALIO program. A call's way: `rpc` (framing, credential) ->
//! `nfs3` or `mount3` (arguments, results) -> `access` (which export, this client, squashed to whom) ->
//! `store` (the file). The lane's way joins at `access`: both roads ask the same function, so neither can
//! allow what the other refuses.
//!
//! [`Server::start`] brings up everything that a [`Config`] names and [`Server::stop`] takes it down again in
//! the order that loses nothing; several servers can live in one process.

mod access;
mod admission;
mod change;
pub mod config;
mod counters;
mod descriptors;
mod drc;
mod errors;
mod granter;
mod io_modes;
mod leftovers;
mod lifecycle;
mod listen;
mod local_users;
mod localio;
mod lock_store;
mod lookups;
mod mount3;
mod mounts;
mod nfs3;
mod nfs4;
mod process;
mod refused;
mod reloads;
mod resolver;
mod rpcbind;
mod running;
mod service;
mod sources;
mod start;
mod state_dir;
pub mod status;
mod table;
mod writes;

pub use change::Change;
pub use config::Config;
pub use descriptors::TooFew;
pub use errors::{ReloadError, StartError};
pub use exports::IoMode;
pub use io_modes::Direction;
pub use leftovers::Leftovers;
pub use lifecycle::Server;
pub use lock_store::{LockStore, is_lock};
pub use running::Reloaded;
pub use status::Status;
