//! Calls to one server, many at a time on each connection (tokio).

mod error;

pub use error::Error;
