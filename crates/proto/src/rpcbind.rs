//! The binding protocol (RFC 1833), which maps programs to ports. Version 2 is the port mapper, with IPv4
//! ports only; versions 3 and 4 have universal addresses.

mod address;

use crate::numbered::numbered;
use xdr::{Decode, Encode, List, Opaque};

pub use address::{from_universal, to_universal};

/// The program's number, `RPCB_PROG` and `PMAP_PROG`.
pub const PROGRAM: u32 = 100_000;
/// The port mapper (RFC 1833 section 3).
pub const PMAP_VERSION: u32 = 2;
/// RPCBIND version 3 (section 2.1).
pub const RPCB_VERSION_3: u32 = 3;
/// RPCBIND version 4 (section 2.1), with the same types in the procedures used here.
pub const RPCB_VERSION_4: u32 = 4;
/// The port it listens on (section 1).
pub const PORT: u16 = 111;
/// `IPPROTO_TCP`, in a [`Mapping`].
pub const IPPROTO_TCP: u32 = 6;
/// `IPPROTO_UDP`, in a [`Mapping`].
pub const IPPROTO_UDP: u32 = 17;
/// The network identifier of TCP over IPv4.
pub const NETID_TCP: &[u8] = b"tcp";
/// The network identifier of TCP over IPv6.
pub const NETID_TCP6: &[u8] = b"tcp6";
/// Bytes in a string of [`Rpcb`]. The RFC has no bound; an address or an owner's name is far below.
pub const MAX_STRING: usize = 1024;
/// Entries in a list. The RFC has no bound; a real table has tens.
pub const MAX_ENTRIES: usize = 65_536;

numbered!(
    "The procedures of versions 2, 3 and 4. Version 2 calls `Getaddr` GETPORT and ends with `Callit`; \
     version 3 ends with `Taddr2uaddr` (RFC 1833 sections 2.1 and 3.1).",
    Procedure,
    Null = 0 "NULL",
    Set = 1 "SET",
    Unset = 2 "UNSET",
    Getaddr = 3 "GETADDR",
    Dump = 4 "DUMP",
    Callit = 5 "CALLIT",
    Gettime = 6 "GETTIME",
    Uaddr2taddr = 7 "UADDR2TADDR",
    Taddr2uaddr = 8 "TADDR2UADDR",
    Getversaddr = 9 "GETVERSADDR",
    Indirect = 10 "INDIRECT",
    Getaddrlist = 11 "GETADDRLIST",
    Getstat = 12 "GETSTAT",
);

/// `mapping` (section 3.1): the argument of version 2's SET, UNSET and GETPORT. SET and UNSET answer a
/// boolean, GETPORT a port as `u32`, 0 if the program isn't registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Mapping {
    /// The program's number.
    pub prog: u32,
    /// Its version.
    pub vers: u32,
    /// [`IPPROTO_TCP`] or [`IPPROTO_UDP`].
    pub prot: u32,
    /// The port; ignored by UNSET and GETPORT.
    pub port: u32,
}

/// `pmaplist` (section 3.1), the result of version 2's DUMP.
pub type Pmaplist = List<Mapping, MAX_ENTRIES>;

/// A string of the protocol.
pub type Text<'a> = Opaque<'a, MAX_STRING>;

/// `rpcb` (section 2.1): the argument of SET, UNSET and GETADDR in versions 3 and 4. SET and UNSET answer a
/// boolean, GETADDR a universal address as [`Text`], empty if the program isn't registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Rpcb<'a> {
    /// The program's number.
    pub prog: u32,
    /// Its version.
    pub vers: u32,
    /// The transport, such as [`NETID_TCP`].
    pub netid: Text<'a>,
    /// The universal address.
    pub addr: Text<'a>,
    /// The owner of the registration.
    pub owner: Text<'a>,
}

/// `rpcblist` (section 2.1), the result of DUMP in versions 3 and 4.
pub type Rpcblist<'a> = List<Rpcb<'a>, MAX_ENTRIES>;
