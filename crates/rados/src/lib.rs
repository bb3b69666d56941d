//! Objects in a namespace of a RADOS pool.
//!
//! [`ObjectNamespace`] reads and changes objects, and [`ObjectWatch`] hears of changes that other processes
//! announce. Each operation waits for the cluster for [`Settings::timeout`] at most, and leaves the rest to
//! librados: a change that [timed out](Reason::TimedOut) may take effect later, unless it is guarded by a
//! version that has changed since ([`Guard::Version`]).

mod address;
mod error;
mod namespace;
mod object_watch;

pub use address::{AddressError, ClusterAddress};
pub use error::{Error, ObjectError, Reason};
pub use namespace::{Guard, MAX_DATA, Object, ObjectChange, ObjectNamespace, Settings};
pub use object_watch::{ObjectWatch, Waker};
