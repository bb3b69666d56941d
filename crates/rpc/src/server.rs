//! The server: an engine that runs [`Program`]s for calls that arrive over TCP.
//!
//! Worker threads share one epoll instance. A worker that finds a connection readable becomes its driver. It
//! receives what has arrived, runs the calls one after another on its own stack, collects the replies and
//! sends them together. While calls are fast, no work moves between threads. When a call takes long, another
//! worker becomes the driver, and replies go out in the order in which calls finish.
//!
//! A peer on this host can also be given a Unix socket on which it makes the calls of a TCP connection
//! ([`CallSockets`]).
//!
//! [`Limits`] bounds everything that a peer can make the engine hold.

mod accepting;
mod admission;
mod back_channel;
mod budget;
mod builder;
mod call_socket;
mod callbacks;
mod connection;
mod context;
mod credentials;
mod dispatch;
mod displacing;
mod engine;
mod info;
mod limits;
mod listener;
mod memory;
mod payload_alignment;
mod pieces;
mod program;
mod receive;
mod registry;
mod reply;
mod reserved_descriptors;
mod send;
mod sender_turn;
mod supervisor;
mod turn;
mod unread_replies;
mod worker;
mod workers_share;

pub use admission::{Admission, Verdict};
pub use back_channel::BackChannel;
pub use builder::{Builder, Server, StartError};
pub use call_socket::{CallSocketError, CallSocketRules, CallSockets};
pub use callbacks::{BackChannelError, CallbackReply};
pub use context::{CallContext, Peer};
pub use info::{ConnectionInfo, Totals};
pub use limits::Limits;
pub use program::{CallError, PayloadAlignment, Program, ProgramFn};
pub use reply::{Attachment, CallTimer, FilePart, Payload, PayloadFile, Reply};
pub use sys::TcpOwner;
