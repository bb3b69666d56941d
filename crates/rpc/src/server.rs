//! The answering side: an engine that runs [`Program`]s for calls that come in over TCP.
//!
//! Worker threads share one epoll. A worker that finds a connection readable becomes its driver: it receives
//! what is there, runs the calls one after another on its own stack, collects the replies and sends them at
//! once. Nothing is handed from thread to thread while calls are fast. When one takes long, another worker
//! becomes the driver, and replies go out in the order in which calls finish.
//!
//! Everything a peer can make us hold is bounded by [`Limits`].

mod admission;
mod back;
mod budget;
mod builder;
mod connection;
mod context;
mod credentials;
mod dispatch;
mod displacing;
mod engine;
mod limits;
mod listener;
mod memory;
mod pieces;
mod placing;
mod program;
mod receive;
mod registry;
mod reply;
mod send;
mod spare;
mod supervisor;
mod turn;
mod unread;
mod worker;
mod workers_share;

pub use admission::{Admission, Verdict};
pub use back::{Answer, BackChannel, BackError};
pub use builder::{Builder, ConnectionInfo, Server, StartError, Totals};
pub use context::{CallContext, Peer};
pub use limits::Limits;
pub use program::{CallError, Placement, Program};
pub use reply::{Attachment, FilePart, Payload, Reply};
pub use sys::TcpOwner;
