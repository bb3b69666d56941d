//! exports(5): parsing, and which client may reach what and how; pure functions.
//!
//! Nothing here touches a file, a socket or a resolver: the text comes in as a string, the client as an
//! address, and host names through the [`Names`] that the caller brings. What we don't support is an error
//! that names the option, its line and column, and what to do instead; nothing is silently ignored.

mod client;
mod error;
mod identity;
mod lexer;
mod options;
mod parse;
mod pattern;
mod table;

pub use client::{Client, ClientSpec, Names, NoNames, NotKnownYet};
pub use error::ParseError;
pub use identity::{Claim, Squashed};
pub use options::{Fsid, LocalPeers, Options, Squash};
pub use sys::IoMode;
pub use table::{Export, Exports};
