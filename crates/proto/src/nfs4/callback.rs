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
    /// Free text for diagnosis.
    pub tag: Opaque<'a, MAX_TAG>,
    /// `minorversion`.
    pub minor: u32,
    /// The `callback_ident` of SETCLIENTID (4.0).
    pub callback_ident: u32,
    /// The number of operations that follow.
    pub operations: u32,
}

/// Results of CB_COMPOUND, without those of the operations: those follow, behind their number and status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct CbCompound4ResHead<'a> {
    /// The status of the last operation, an `nfsstat4`.
    pub status: u32,
    /// The tag of the request.
    pub tag: Opaque<'a, MAX_TAG>,
    /// The number of results that follow.
    pub results: u32,
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
    /// Whether the reply is to be cached for a retry.
    pub cachethis: bool,
    /// The client's requests that the callback refers to.
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
    /// The file.
    pub fh: NfsFh4<'a>,
    /// The requested attributes.
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
    /// Whether the file is about to be truncated to zero, so that its data needn't be written back.
    pub truncate: bool,
    /// The file.
    pub fh: NfsFh4<'a>,
}

/// `RCA4_TYPE_MASK_RDATA_DLG`.
pub const RCA4_RDATA_DLG: u32 = 0;
/// `RCA4_TYPE_MASK_WDATA_DLG`.
pub const RCA4_WDATA_DLG: u32 = 1;
/// The defined kinds of objects: besides delegations of files those of directories (2), and layouts: of files
/// (3), blocks (4), objects (8 and 9), of other types (12 to 15; RFC 8881 section 20.6.1), and flexible files
/// (16 and 17; RFC 8435 section 13.1).
pub const RCA4_DEFINED: Bitmap4 =
    Bitmap4::of(&[RCA4_RDATA_DLG, RCA4_WDATA_DLG, 2, 3, 4, 8, 9, 12, 13, 14, 15, 16, 17]);

/// Arguments of CB_RECALL_ANY.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct CbRecallAny4Args {
    /// The number of objects that the client may keep.
    pub objects_to_keep: u32,
    /// The kinds of objects (`RCA4_TYPE_MASK_`).
    pub type_mask: Bitmap4,
}

/// Arguments of CB_NOTIFY_LOCK.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct CbNotifyLock4Args<'a> {
    /// The file.
    pub fh: NfsFh4<'a>,
    /// The owner that may now get the lock.
    pub lock_owner: StateOwner4<'a>,
}

/// Arguments of CB_OFFLOAD.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CbOffload4Args<'a> {
    /// The destination file.
    pub fh: NfsFh4<'a>,
    /// The copy.
    pub stateid: Stateid4,
    /// The outcome.
    pub info: OffloadInfo4,
}

/// `offload_info4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum OffloadInfo4 {
    /// The copy is complete.
    #[xdr(0)]
    Done(WriteResponse4),
    /// The copy failed, with this status after this many bytes.
    #[xdr(default)]
    Failed(u32, u64),
}
