//! Attributes as a client sets them, and SETATTR (RFC 1813 sections 2.6 and 3.3.2).

use super::{NfsFh3, Nfstime3, Outcome, WccData};
use xdr::{Decode, Encode};

/// `set_atime` and `set_mtime`, with the values of `time_how`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Encode, Decode)]
pub enum SetTime {
    /// `DONT_CHANGE`.
    #[default]
    #[xdr(0)]
    DontChange,
    /// `SET_TO_SERVER_TIME`.
    #[xdr(1)]
    SetToServerTime,
    /// `SET_TO_CLIENT_TIME`.
    #[xdr(2)]
    SetToClientTime(Nfstime3),
}

/// `sattr3`: attributes to set; `None` leaves one as it is. The `set_*` unions are `Option`s on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Encode, Decode)]
pub struct Sattr3 {
    /// `set_mode3`: the permission bits.
    pub mode: Option<u32>,
    /// `set_uid3`: the owner.
    pub uid: Option<u32>,
    /// `set_gid3`: the owner's group.
    pub gid: Option<u32>,
    /// `set_size3`: bytes of data.
    pub size: Option<u64>,
    /// `set_atime`: last access.
    pub atime: SetTime,
    /// `set_mtime`: last change of the data.
    pub mtime: SetTime,
}

/// `sattrguard3`: the object's ctime must be this, or the call ends with `NFS3ERR_NOT_SYNC`.
pub type Sattrguard3 = Option<Nfstime3>;

/// Arguments of SETATTR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Setattr3Args<'a> {
    /// The object.
    pub object: NfsFh3<'a>,
    /// What to set.
    pub new_attributes: Sattr3,
    /// The condition.
    pub guard: Sattrguard3,
}

/// Result of SETATTR: `obj_wcc` either way.
pub type Setattr3Res = Outcome<WccData, WccData>;
