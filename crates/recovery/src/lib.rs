//! What a server keeps on stable storage for its next run: the records of the clients that may reclaim their
//! state (RFC 8881 section 8.4.3), and the key that seals file handles. [`StateDirectory`] makes sure that
//! one server uses it.
//!
//! [`RecoveryStore`] is all that the server needs for the records. [`RecoveryDirectory`] keeps them as files
//! of the server's state directory, [`ClusterRecords`] in RADOS. The servers of a cluster share the
//! [`GraceDatabase`] and [`cluster_handle_key`].

mod client_records;
mod cluster_records;
mod grace_database;
mod handle_key;
mod recovered;
mod state_dir;

use std::io;
use std::time::Duration;

pub use client_records::{RecoveryDirectory, open_client_records};
pub use cluster_records::{ClusterRecords, FoundRecords};
pub use grace_database::{GraceDatabase, GraceError};
pub use handle_key::cluster_handle_key;
pub use recovered::{ClientRecord, RecordHolder, Recovered};
pub use state_dir::{AcquireError, DirectoryHolder, StateDirError, StateDirectory};

/// Stable storage for the records of clients that may reclaim after a restart.
///
/// An instance has one record. A client's record is durably changed when [`RecoveryStore::sync`] has returned
/// after the change: several changes cost one.
pub trait RecoveryStore: Send + Sync {
    /// The records of earlier runs, with which a grace period begins.
    fn load(&self) -> Recovered;

    /// Records the longest lease that clients may have been promised: the length of the grace period after
    /// the next restart. It is durable when this returns.
    ///
    /// # Errors
    /// If it can't be recorded: after a restart clients may be too late to reclaim.
    fn set_lease(&self, lease: Duration) -> io::Result<()>;

    /// Records that a client may reclaim, in the place of an existing record of the same instance.
    ///
    /// # Errors
    /// If it can't be recorded: the client won't be able to reclaim.
    fn add_client(&self, client: &ClientRecord) -> io::Result<()>;

    /// Removes the record of a client's instance, if there is one.
    ///
    /// # Errors
    /// If it can't be removed: the client might reclaim what another client has been given.
    fn remove_client(&self, instance: &[u8]) -> io::Result<()>;

    /// Makes all changes before this durable.
    ///
    /// # Errors
    /// If that isn't certain: any of the changes since the last call may be undone by a power failure.
    fn sync(&self) -> io::Result<()>;
}
