//! Which client may use which export, and as which user.
//!
//! [`admission`] decides about a connection, [`access`] about each call that names a file. Both decide by the
//! export table, the host's names and users ([`resolver`], [`local_users`], [`lookups`]), and log what they
//! refuse to local users ([`refusal_log`]), what an administrator asks later ([`audit`]), and which names of
//! clients aren't found ([`client_hosts`]).

pub(crate) mod access;
pub(crate) mod admission;
pub mod audit;
pub(crate) mod client_hosts;
pub(crate) mod local_users;
pub(crate) mod lookups;
pub(crate) mod refusal_log;
pub(crate) mod requester;
pub(crate) mod resolver;
pub(crate) mod tree_rules;
