//! The callback program, by which a server calls its clients: CB_COMPOUND and its operations (RFC 8881
//! section 20, RFC 7530 section 15, RFC 7862 section 16).

use super::{
    Bitmap4, Fattr4, MAX_REFERRING_CALLS, MAX_TAG, NfsFh4, Sessionid4, StateOwner4, Stateid4, WriteResponse4,
};
use xdr::{Array, Decode, Encode, Opaque};

/// The version of the callback program; its number is the client's to choose.
pub const CB_VERSION: u32 = 1;
/// CB_COMPOUND, the only procedure but NULL.
pub const CB_COMPOUND: u32 = 1;

/// CB_GETATTR.
pub const CB_GETATTR: u32 = 3;
/// CB_RECALL.
pub const CB_RECALL: u32 = 4;
/// CB_RECALL_ANY (4.1).
pub const CB_RECALL_ANY: u32 = 8;
/// CB_SEQUENCE (4.1).
pub const CB_SEQUENCE: u32 = 11;
/// CB_NOTIFY_LOCK (4.1).
pub const CB_NOTIFY_LOCK: u32 = 13;
/// CB_OFFLOAD (4.2).
pub const CB_OFFLOAD: u32 = 15;

/// Arguments of CB_COMPOUND, without the operations: those follow, behind their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct CbCompound4Head<'a> {
    /// For whoever reads along.
    pub tag: Opaque<'a, MAX_TAG>,
    /// `minorversion`.
    pub minor: u32,
    /// What SETCLIENTID gave (4.0).
    pub callback_ident: u32,
    /// How many operations follow.
    pub operations: u32,
}

/// Arguments of CB_SEQUENCE.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CbSequence4Args {
    /// The session.
    pub sessionid: Sessionid4,
    /// The slot's sequence number.
    pub sequenceid: u32,
    /// The slot.
    pub slotid: u32,
    /// The highest slot in use.
    pub highest_slotid: u32,
    /// Keep the reply for a retry.
    pub cachethis: bool,
    /// The client's requests that this is about.
    pub referring_call_lists: Array<ReferringCallList4, MAX_REFERRING_CALLS>,
}

/// `referring_call_list4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ReferringCallList4 {
    /// The session.
    pub sessionid: Sessionid4,
    /// The requests.
    pub calls: Array<ReferringCall4, MAX_REFERRING_CALLS>,
}

/// `referring_call4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct ReferringCall4 {
    /// Its sequence number.
    pub sequenceid: u32,
    /// Its slot.
    pub slotid: u32,
}

/// `CB_SEQUENCE4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct CbSequence4ResOk {
    /// The session.
    pub sessionid: Sessionid4,
    /// The slot's sequence number.
    pub sequenceid: u32,
    /// The slot.
    pub slotid: u32,
    /// The highest slot there is.
    pub highest_slotid: u32,
    /// The highest slot that the server should use.
    pub target_highest_slotid: u32,
}

/// Arguments of CB_GETATTR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct CbGetattr4Args<'a> {
    /// Of which file.
    pub fh: NfsFh4<'a>,
    /// Which.
    pub attr_request: Bitmap4,
}

/// `CB_GETATTR4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct CbGetattr4ResOk<'a> {
    /// The attributes.
    pub obj_attributes: Fattr4<'a>,
}

/// Arguments of CB_RECALL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct CbRecall4Args<'a> {
    /// The delegation.
    pub stateid: Stateid4,
    /// The file is going to be cut to nothing: its data needn't be written back.
    pub truncate: bool,
    /// Of which file.
    pub fh: NfsFh4<'a>,
}

/// `RCA4_TYPE_MASK_RDATA_DLG`.
pub const RCA4_RDATA_DLG: u32 = 0;
/// `RCA4_TYPE_MASK_WDATA_DLG`.
pub const RCA4_WDATA_DLG: u32 = 1;

/// Arguments of CB_RECALL_ANY.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct CbRecallAny4Args {
    /// How many the client may keep.
    pub objects_to_keep: u32,
    /// Of which kinds.
    pub type_mask: Bitmap4,
}

/// Arguments of CB_NOTIFY_LOCK.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct CbNotifyLock4Args<'a> {
    /// Of which file.
    pub fh: NfsFh4<'a>,
    /// Who may have the lock it asked for.
    pub lock_owner: StateOwner4<'a>,
}

/// Arguments of CB_OFFLOAD.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CbOffload4Args<'a> {
    /// The file that is copied to.
    pub fh: NfsFh4<'a>,
    /// The copy.
    pub stateid: Stateid4,
    /// What came of it.
    pub info: OffloadInfo4,
}

/// `offload_info4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum OffloadInfo4 {
    /// It is done.
    #[xdr(0)]
    Done(WriteResponse4),
    /// It has failed, with this status and after so many bytes.
    #[xdr(default)]
    Failed(u32, u64),
}
