//! Shares of a bounded resource by peer.
//!
//! A server bounds what its peers can make it hold: connections, memory, state, descriptors. A bound alone
//! protects the server and not its clients, because the first peer to take everything shuts out the others.
//! [`Shares`] divides such a bound among [`Peer`]s without knowing in advance how many there are.
//! [`LogLimit`] bounds the log lines that peers can cause.

mod log_limit;
mod peer;
mod shares;

pub use log_limit::LogLimit;
pub use peer::{Peer, UnknownPeer};
pub use shares::{Shares, Standing};
