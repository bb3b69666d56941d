//! exports(5): parsing, and which client may access what and how. Pure functions.
//!
//! The crate opens no files or sockets. The text is passed as a string, the client as an address, and host
//! names are looked up through the caller's [`Names`]. Options that would have clients served less safely
//! than they say are errors with the option, its line and column, and a remedy. Other options without effect
//! are recorded with the reason ([`IneffectiveOptions`]).

mod client;
mod edit;
mod error;
mod identity;
mod ineffective;
mod lexer;
mod locations;
mod options;
mod parse;
mod pattern;
pub mod reference;
mod security;
mod table;

pub use client::{ClientSpec, ExportClient, Names, NoNames, NotKnownYet};
pub use edit::EditError;
pub use error::ParseError;
pub use identity::{Claim, Squashed};
pub use ineffective::{Ineffective, IneffectiveOptions};
pub use locations::{FsLocation, FsLocations};
pub use options::{ExportOptions, Fsid, LocalPeers, MountPoint, Squash};
pub use sys::IoMode;
pub use table::{Export, Exports};
