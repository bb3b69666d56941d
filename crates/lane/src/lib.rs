//! The local lane, both ends: rendezvous, handshake, grants, interlock.
//!
//! When an NFS client and its server share a kernel, the server can pass the client an open file and take no
//! further part in its I/O. This crate implements how the two find each other ([`rendezvous`]), how they
//! prove that they are the two ends of one NFS connection ([`nonce`], [`registry`]), what the server grants
//! and takes back ([`grant_table`], [`request`]), and how a server's shutdown is ordered with a client's
//! local I/O ([`interlock`]). It knows files and credentials, not NFS: the server's [`GrantService`] decides
//! whether a user may open a file.
//!
//! `docs/lane.md` specifies the protocol, to the byte, and its threat model.
//!
//! The modules that decide ([`registry`], [`grant_table`], [`interlock`], [`peer`], [`message`]) take their
//! clock and their inputs as arguments and touch no socket. The modules that act ([`server`], [`client`],
//! [`rendezvous`]) are thin.

mod attributes;
pub mod client;
pub mod grant_table;
pub mod interlock;
mod memory;
pub mod message;
mod namespaces;
pub mod nonce;
pub mod peer;
pub mod registry;
pub mod rendezvous;
pub mod request;
mod round_robin;
pub mod run_dir;
pub mod server;
mod socket;

pub use attributes::{DirectoryChange, GrantAttributes, PreOpAttributes};
pub use client::{Grant, GrantWithoutFile, InFlight, Lane, LaneState, OpenError, OpenedGrant, PrefetchSink};
pub use nonce::{Commitment, Instance, Nonce};
pub use peer::{PeerCredentials, SharedNamespaces};
pub use rendezvous::{Candidates, NotLocal, Reason, Rendezvous, RendezvousOptions};
pub use request::{
    Access, CreateMode, LaneCredential, NewFile, OpenRequest, OpenStatus, PrefetchTargets, Target,
};
pub use server::{
    Bound, GrantService, LaneInfo, LaneLimits, LaneOptions, LaneServer, LaneStartError, NfsConnection,
    NonceOutcome, OpenGrant,
};
