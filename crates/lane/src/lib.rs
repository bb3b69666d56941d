//! The local lane, both ends: rendezvous, handshake, grants, interlock.
//!
//! When an NFS client and its server share a kernel, the server can hand the client an open file and get out
//! of the way. This crate is everything that takes: how the two find each other ([`rendezvous`]), how they
//! prove that they are the two ends of one NFS connection ([`nonce`], [`registry`]), what the server gives
//! and takes back ([`grants`], [`request`]), and what keeps a server's shutdown and a client's local I/O from
//! meeting in the wrong order ([`interlock`]). It knows files and credentials, not NFS: whether a user may
//! open a file is asked of the [`Granter`] that the server brings along.
//!
//! The protocol, to the byte, and its threat model stand in `docs/lane.md`.
//!
//! What decides ([`registry`], [`grants`], [`interlock`], [`peer`], [`message`]) takes its clock and its
//! inputs as arguments and touches no socket; what does ([`server`], [`client`], [`rendezvous`]) is thin.

mod about;
pub mod client;
pub mod grants;
pub mod interlock;
mod memory;
pub mod message;
mod namespaces;
pub mod nonce;
pub mod peer;
pub mod registry;
pub mod rendezvous;
pub mod request;
pub mod run_dir;
pub mod server;
mod socket;
mod turns;

pub use about::{About, Before, Changed};
pub use client::{Grant, InFlight, Lane, LaneState, OpenError, Opened, Then};
pub use nonce::{Commitment, Instance, Nonce};
pub use peer::PeerCredentials;
pub use rendezvous::{Candidates, NotLocal, Reason, Rendezvous, RendezvousOptions};
pub use request::{Access, Credential, How, New, OpenRequest, Soon, Status, Target};
pub use server::{
    Answer, Bound, Granted, Granter, LaneInfo, LaneOptions, LaneServer, Limits, NfsConnection, StartError,
};
