//! Several servers of one clustered filesystem: who may give NFSv4 state, and whose clients may reclaim it.
//!
//! Everything here is deterministic: the clock is an argument, and there are no sockets and no RADOS. The
//! clocks of two nodes are never compared. [`Database`] is the content of the object that all nodes share, in
//! the layout of nfs-ganesha's `rados_cluster` recovery backend. Its methods are the permitted changes: pure
//! functions from old to new contents, written with compare-and-set. [`Member`] is one server of the cluster:
//! its caller reports [`Event`]s, executes [`Effect`]s, and asks [`Member::service`] what the server may
//! answer now.
//!
//! The rules:
//!
//! 1. A node that starts with clients that may reclaim sets its flag N, which begins a grace period and an
//!    epoch.
//! 2. The other nodes stop giving state, record their clients for the new epoch, and only then set their flag
//!    E.
//! 3. The state of a node's former run, which the filesystem holds, is released when all nodes have set E.
//!    If it was lost before, the client records are removed: no client reclaims.
//! 4. A node clears N when it accepts no reclaims any more. The last N ends the grace period.
//! 5. A node clears E after the grace period, before it gives state.
//! 6. A node that has heard nothing from RADOS or from the filesystem for longer than
//!    [`MemberConfig::vouch`] falls silent, and comes back as a new run.
//! 7. A drained node falls silent before its successor accepts reclaims of its clients. A successor that
//!    can't know that waits for longer than `vouch`.

mod changes;
mod database;
mod event;
mod member;
mod records;

pub use changes::ChangeRefused;
pub use database::{Damage, Database, Difference, Flags, Notes, Versioned};
pub use event::{Carry, Effect, Event, Fate, RestartReason, Service};
pub use member::{Member, MemberConfig};
pub use records::object_name;

/// The name of the object with the grace database, as nfs-ganesha has it.
pub const GRACE_OBJECT: &str = "grace";
