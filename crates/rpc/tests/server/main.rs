//! The server engine as a peer on a raw TCP connection sees it.

mod admission;
mod fairness;
mod hostile;
mod limits;
mod ordering;
mod payload;
mod placing;
mod rig;
mod stopping;
