//! The state of all NFSv4 clients: what they have open, locked and delegated, and calls to them.
//!
//! [`StateManager`] is the engine behind its lock. Everything that touches a file asks it, whether it is
//! NFSv4, NFSv3 or a grant. No module here knows a program or an operation.

pub(crate) mod callbacks;
mod clock;
pub(crate) mod copies;
mod granted_attributes;
mod inherited;
pub(crate) mod lock_file;
mod lock_store;
mod state_effects;
mod state_manager;
mod state_resources;

pub(crate) use granted_attributes::GrantedAttributes;
pub use lock_store::{LockStore, is_lock};
pub(crate) use state_effects::RequiredRecords;
pub(crate) use state_manager::{COURTESY, StateManager};
pub(crate) use state_resources::StateResources;
