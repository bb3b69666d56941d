//! The basic types of most operations (RFC 8881 section 3.3).

use super::{FHSIZE, MAX_COMPONENT, MAX_LINKTEXT, OPAQUE_LIMIT, SESSIONID_SIZE, VERIFIER_SIZE};
use crate::rpcbind::from_universal;
use std::net::SocketAddr;
use xdr::{Decode, Encode, Opaque};

/// `nfs_fh4`: a file handle.
pub type NfsFh4<'a> = Opaque<'a, FHSIZE>;
/// `component4`: one name, as bytes. It may be longer than any filesystem accepts, so that the server can
/// answer it.
pub type Component4<'a> = Opaque<'a, MAX_COMPONENT>;
/// `linktext4`: a symbolic link's text.
pub type Linktext4<'a> = Opaque<'a, MAX_LINKTEXT>;
/// `verifier4`.
pub type Verifier4 = [u8; VERIFIER_SIZE];
/// `sessionid4`.
pub type Sessionid4 = [u8; SESSIONID_SIZE];

/// The minor versions of NFSv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum MinorVersion {
    /// NFSv4.0 (RFC 7530).
    V0 = 0,
    /// NFSv4.1 (RFC 8881).
    V1 = 1,
    /// NFSv4.2 (RFC 7862).
    V2 = 2,
}

impl MinorVersion {
    /// The minor version with this number.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::V0),
            1 => Some(Self::V1),
            2 => Some(Self::V2),
            _ => None,
        }
    }
}

/// `stateid4`: a share reservation, a lock, a delegation, or one of the special ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Encode, Decode)]
pub struct Stateid4 {
    /// Incremented with every change of the state; 0 stands for the newest (4.1).
    pub seqid: u32,
    /// Identifies the state.
    pub other: [u8; 12],
}

/// `nfstime4`: since 1970-01-01 00:00 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Encode, Decode)]
pub struct Nfstime4 {
    /// Seconds; negative before 1970.
    pub seconds: i64,
    /// Nanoseconds within the second; a peer may send any 32 bits.
    pub nseconds: u32,
}

/// `settime4`: how a time is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
pub enum Settime4 {
    /// To the server's clock.
    #[xdr(0)]
    SetToServerTime,
    /// To a time given by the client.
    #[xdr(1)]
    SetToClientTime(Nfstime4),
}

/// `fsid4`: a filesystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Encode, Decode)]
pub struct Fsid4 {
    /// Its first half.
    pub major: u64,
    /// Its second half.
    pub minor: u64,
}

/// `specdata4`: a device's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Encode, Decode)]
pub struct Specdata4 {
    /// The major number.
    pub specdata1: u32,
    /// The minor number.
    pub specdata2: u32,
}

/// `change_info4`: a directory's change attribute before and after an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Encode, Decode)]
pub struct ChangeInfo4 {
    /// Whether no other change came between.
    pub atomic: bool,
    /// Before.
    pub before: u64,
    /// After.
    pub after: u64,
}

/// `nfs_ftype4`: what kind of object it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
pub enum NfsFtype4 {
    /// A regular file.
    Reg = 1,
    /// A directory.
    Dir = 2,
    /// A block special device.
    Blk = 3,
    /// A character special device.
    Chr = 4,
    /// A symbolic link.
    Lnk = 5,
    /// A socket.
    Sock = 6,
    /// A named pipe.
    Fifo = 7,
    /// A named attribute directory.
    Attrdir = 8,
    /// A named attribute.
    Namedattr = 9,
}

/// `stable_how4`: how durable a WRITE must be, and was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
pub enum StableHow4 {
    /// Until a COMMIT, a crash may lose it.
    Unstable = 0,
    /// The data and what is needed to read it are on stable storage.
    DataSync = 1,
    /// The data and all metadata are.
    FileSync = 2,
}

/// `open_owner4`, `lock_owner4`, `state_owner4`: the owner of a state, within a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
pub struct StateOwner4<'a> {
    /// The client.
    pub clientid: u64,
    /// The client's name for the owner.
    pub owner: Opaque<'a, OPAQUE_LIMIT>,
}

/// `netaddr4`: the address of a server or a client (RFC 5665).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Netaddr4<'a> {
    /// `r_netid`.
    pub netid: Opaque<'a, OPAQUE_LIMIT>,
    /// `r_addr`.
    pub addr: Opaque<'a, OPAQUE_LIMIT>,
}

impl Netaddr4<'_> {
    /// The address of a TCP netid (`tcp`, `tcp6`; RFC 5665 section 5.2), if it is one.
    #[must_use]
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        from_universal(self.addr.0).filter(|_| self.netid.0.starts_with(b"tcp"))
    }
}
