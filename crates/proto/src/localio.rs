//! The LOCALIO program (400122 version 1) of the Linux kernel: carries a client's nonce to its server.
//!
//! It runs on the NFS port and isn't registered with rpcbind. The reply is void whether or not the server
//! knows the nonce: the wire proves nothing, the lane does.

use crate::numbered::numbered;
use xdr::{Decode, Encode};

/// The program's number.
pub const PROGRAM: u32 = 400_122;
/// The only version.
pub const VERSION: u32 = 1;
/// Bytes in a nonce.
pub const UUID_SIZE: usize = 16;

numbered!(
    "The procedures of LOCALIO version 1.",
    Procedure,
    Null = 0 "NULL",
    UuidIsLocal = 1 "UUID_IS_LOCAL",
);

/// Arguments of `UUID_IS_LOCAL`: 16 raw bytes, fixed-length opaque without a length word. The result is void.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
pub struct UuidIsLocalArgs {
    /// The nonce.
    pub uuid: [u8; UUID_SIZE],
}
