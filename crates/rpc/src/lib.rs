//! ONC RPC version 2 (RFC 5531) over TCP: what every program of the house is carried by.
//!
//! - [`message`] says what a call and a reply look like, with AUTH_NONE and AUTH_SYS; both ends use it.
//! - [`record`] finds the records in a byte stream (section 11) without doing any I/O.
//! - [`server`] runs programs: an event loop, worker threads, bounded memory.
//! - [`client`] makes calls, many at a time on each connection.
//!
//! Nothing here knows NFS.

pub mod client;
pub mod message;
pub mod record;
pub mod server;
