//! The server engine, tested over raw TCP connections.

mod admission;
mod call_sockets;
mod fairness;
mod hostile;
mod limits;
mod ordering;
mod payload;
mod payload_alignment;
mod rig;
mod slow_file;
mod stopping;
