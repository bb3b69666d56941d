//! exports(5): parsing, and which client may access what and how. Pure functions.
//!
//! The crate opens no files or sockets. The text is passed as a string, the client as an address, and host
//! names are looked up through the caller's [`Names`]. Unsupported options are errors with the option, its
//! line and column, and a remedy; none is ignored.

mod client;
mod edit;
mod error;
mod identity;
mod lexer;
mod options;
mod parse;
mod pattern;
mod table;

pub use client::{ClientSpec, ExportClient, Names, NoNames, NotKnownYet};
pub use edit::EditError;
pub use error::ParseError;
pub use identity::{Claim, Squashed};
pub use options::{ExportOptions, Fsid, LocalPeers, Squash};
pub use sys::IoMode;
pub use table::{Export, Exports};
