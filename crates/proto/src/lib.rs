//! The wire format: the types and constants of each RPC program, one module a program, as its RFC defines
//! them and under its RFC's names (in Rust's case).
//!
//! Both sides use the same types, one to encode and the other to decode, so neither can drift from the
//! protocol alone. Variable-length data borrows from the received record, and every length has a bound. There
//! is no behaviour except for rules that both ends of a protocol follow ([`nfs4::SessionSlots`]).
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
