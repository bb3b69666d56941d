//! What Samehost says on the wire: the types and constants of each RPC program, one module a program, as its
//! RFC writes them and under its RFC's names (in Rust's case).
//!
//! Types only, no behaviour: the same type is encoded by one side and decoded by the other, so neither can
//! drift from the protocol alone. Variable-length data borrows from the received record; every length has a
//! bound.
//!
//! | module | program | from |
//! |---|---|---|
//! | [`nfs3`] | 100003 version 3 | RFC 1813 |
//! | [`nfs4`] | 100003 version 4 | RFC 8881, 7862, 7530 |
//! | [`mount3`] | 100005 version 3 | RFC 1813 appendix I |
//! | [`nfsacl`] | 100227 version 3 | the Linux kernel's NFSACL |
//! | [`localio`] | 400122 version 1 | the Linux kernel's LOCALIO |
//! | [`rpcbind`] | 100000 versions 2, 3, 4 | RFC 1833 |

mod numbered;
mod status;

pub mod localio;
pub mod mount3;
pub mod nfs3;
pub mod nfs4;
pub mod nfsacl;
pub mod rpcbind;
