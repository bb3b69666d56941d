//! The MOUNT protocol, version 3 (RFC 1813 appendix I): from the path of an export to its root's file handle.

use crate::numbered::numbered;
use xdr::{Array, Decode, Encode, List, Opaque};

/// The program's number (section 5.1).
pub const PROGRAM: u32 = 100_005;
/// The version that goes with NFS version 3.
pub const VERSION: u32 = 3;
/// `MNTPATHLEN`: bytes in a path (section 5.1.3).
pub const MNTPATHLEN: usize = 1024;
/// `MNTNAMLEN`: bytes in a name (section 5.1.3).
pub const MNTNAMLEN: usize = 255;
/// `FHSIZE3`: bytes in a file handle (section 5.1.3).
pub const FHSIZE3: usize = 64;
/// Flavours in a MNT result. The RFC has no bound; about a dozen flavours exist.
pub const MAX_AUTH_FLAVORS: usize = 64;
/// Entries in a list of mounts, exports or groups. The RFC has no bound; a record of ours holds no more.
pub const MAX_ENTRIES: usize = 65_536;

numbered!(
    "The procedures of MOUNT version 3 (RFC 1813 section 5.2).",
    Procedure,
    Null = 0 "NULL",
    Mnt = 1 "MNT",
    Dump = 2 "DUMP",
    Umnt = 3 "UMNT",
    Umntall = 4 "UMNTALL",
    Export = 5 "EXPORT",
);

/// `mountstat3` (section 5.1.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
pub enum Mountstat3 {
    /// `MNT3_OK`: no error.
    Ok = 0,
    /// `MNT3ERR_PERM`: not owner.
    Perm = 1,
    /// `MNT3ERR_NOENT`: no such file or directory.
    Noent = 2,
    /// `MNT3ERR_IO`: I/O error.
    Io = 5,
    /// `MNT3ERR_ACCES`: permission denied.
    Acces = 13,
    /// `MNT3ERR_NOTDIR`: not a directory.
    Notdir = 20,
    /// `MNT3ERR_INVAL`: invalid argument.
    Inval = 22,
    /// `MNT3ERR_NAMETOOLONG`: file name too long.
    Nametoolong = 63,
    /// `MNT3ERR_NOTSUPP`: operation not supported.
    Notsupp = 10_004,
    /// `MNT3ERR_SERVERFAULT`: a failure on the server.
    Serverfault = 10_006,
}

/// `fhandle3` (section 5.1.4): the root's file handle, as NFS version 3 takes it.
pub type Fhandle3<'a> = Opaque<'a, FHSIZE3>;
/// `dirpath` (section 5.1.4): a path on the server.
pub type Dirpath<'a> = Opaque<'a, MNTPATHLEN>;
/// `name` (section 5.1.4): of a host or a group of hosts.
pub type Name<'a> = Opaque<'a, MNTNAMLEN>;

/// `mountres3`, the result of MNT (section 5.2.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mountres3<'a> {
    /// `MNT3_OK`.
    Ok(Mountres3Ok<'a>),
    /// Any other status, never [`Mountstat3::Ok`].
    Fail(Mountstat3),
}

/// `mountres3_ok` (section 5.2.1).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Mountres3Ok<'a> {
    /// The root of what was mounted.
    pub fhandle: Fhandle3<'a>,
    /// RPC authentication flavours that the server accepts there, the preferred first.
    pub auth_flavors: Array<u32, MAX_AUTH_FLAVORS>,
}

/// `mountbody` (section 5.2.2): a client and what it has mounted, as far as the server remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Mountbody<'a> {
    /// The client.
    pub hostname: Name<'a>,
    /// What it mounted.
    pub directory: Dirpath<'a>,
}

/// `exportnode` (section 5.2.5): an export and the clients that may mount it.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Exportnode<'a> {
    /// The export's path.
    pub dir: Dirpath<'a>,
    /// Clients that may mount it; none for all.
    pub groups: Groups<'a>,
}

/// `groups` (section 5.2.5).
pub type Groups<'a> = List<Name<'a>, MAX_ENTRIES>;
/// `mountlist`, the result of DUMP.
pub type Mountlist<'a> = List<Mountbody<'a>, MAX_ENTRIES>;
/// `exports`, the result of EXPORT.
pub type Exports<'a> = List<Exportnode<'a>, MAX_ENTRIES>;

impl Encode for Mountres3<'_> {
    fn encode(&self, to: &mut xdr::Encoder) {
        match self {
            Self::Ok(body) => {
                to.put(&Mountstat3::Ok);
                to.put(body);
            }
            Self::Fail(status) => to.put(status),
        }
    }
}

impl<'a> Decode<'a> for Mountres3<'a> {
    fn decode(from: &mut xdr::Decoder<'a>) -> Result<Self, xdr::Error> {
        match from.get()? {
            Mountstat3::Ok => from.get().map(Self::Ok),
            status => Ok(Self::Fail(status)),
        }
    }
}
