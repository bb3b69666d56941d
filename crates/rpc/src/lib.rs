//! ONC RPC version 2 (RFC 5531) over TCP, for the server and the client of every RPC program in the
//! workspace.
//!
//! - [`message`]: headers of calls and replies, with AUTH_NONE and AUTH_SYS, for both ends.
//! - [`record`]: record marking in a byte stream (section 11), without I/O.
//! - [`server`]: runs programs, with an event loop, worker threads and bounded memory.
//! - [`client`]: makes calls, many at a time on each connection.
//!
//! The crate contains no NFS.

pub mod client;
pub mod message;
pub mod record;
pub mod server;
mod transport;
