//! The RPC programs and the lane's grants: each translates requests into operations of `store`.
//!
//! No program decides by itself whether a request is allowed: all of them ask
//! [`authorization`](crate::authorization).

pub(crate) mod lane_grants;
pub(crate) mod localio;
pub(crate) mod mount3;
pub(crate) mod nfs3;
pub(crate) mod nfs4;
pub(crate) mod request;
#[cfg(test)]
mod retransmissions;
pub(crate) mod rpcbind;
mod sent_file;
mod tree_grants;
