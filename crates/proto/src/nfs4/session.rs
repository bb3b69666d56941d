//! Sessions of NFSv4.1: CREATE_SESSION, SEQUENCE and their like (RFC 8881 sections 18.33 to 18.51).

use super::{MAX_FLAVORS, MAX_STATEIDS, OPAQUE_LIMIT, Sessionid4, Stateid4};
use xdr::{Array, Decode, Encode, Opaque};

/// `CREATE_SESSION4_FLAG_PERSIST`.
pub const CREATE_SESSION_PERSIST: u32 = 1;
/// `CREATE_SESSION4_FLAG_CONN_BACK_CHAN`.
pub const CREATE_SESSION_CONN_BACK_CHAN: u32 = 2;
/// `CREATE_SESSION4_FLAG_CONN_RDMA`.
pub const CREATE_SESSION_CONN_RDMA: u32 = 4;

/// `channel_attrs4`: the bounds of a session's channel.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
pub struct ChannelAttrs4 {
    /// Header padding (RDMA).
    pub headerpadsize: u32,
    /// The largest request, RPC header included.
    pub maxrequestsize: u32,
    /// The largest reply, RPC header included.
    pub maxresponsesize: u32,
    /// The largest reply that is kept for a retry.
    pub maxresponsesize_cached: u32,
    /// Operations in a COMPOUND.
    pub maxoperations: u32,
    /// The number of slots.
    pub maxrequests: u32,
    /// The RDMA read limit, if RDMA is used.
    pub rdma_ird: Array<u32, 1>,
}

/// `authsys_parms` of a callback's credential.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct AuthsysParms<'a> {
    /// An arbitrary number.
    pub stamp: u32,
    /// The name of the server.
    pub machinename: Opaque<'a, 255>,
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Further groups.
    pub gids: Array<u32, 16>,
}

/// `gss_cb_handles4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct GssCbHandles4<'a> {
    /// Service.
    pub service: u32,
    /// Handle.
    pub handle_from_server: Opaque<'a, OPAQUE_LIMIT>,
    /// Handle.
    pub handle_from_client: Opaque<'a, OPAQUE_LIMIT>,
}

/// `callback_sec_parms4`: the credential of callbacks.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum CallbackSecParms4<'a> {
    /// AUTH_NONE.
    #[xdr(0)]
    None,
    /// AUTH_SYS.
    #[xdr(1)]
    Sys(AuthsysParms<'a>),
    /// RPCSEC_GSS.
    #[xdr(6)]
    Gss(GssCbHandles4<'a>),
}

/// Arguments of CREATE_SESSION.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CreateSession4Args<'a> {
    /// The client.
    pub clientid: u64,
    /// Its sequence number (`csa_sequence`).
    pub sequence: u32,
    /// `CREATE_SESSION4_FLAG_` flags.
    pub flags: u32,
    /// The requested attributes of the fore channel.
    pub fore_chan_attrs: ChannelAttrs4,
    /// The requested attributes of the back channel.
    pub back_chan_attrs: ChannelAttrs4,
    /// The callbacks' program number.
    pub cb_program: u32,
    /// Their credentials.
    pub sec_parms: Array<CallbackSecParms4<'a>, MAX_FLAVORS>,
}

/// `CREATE_SESSION4resok`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CreateSession4ResOk {
    /// The session.
    pub sessionid: Sessionid4,
    /// The sequence number of the request.
    pub sequence: u32,
    /// `CREATE_SESSION4_FLAG_` flags.
    pub flags: u32,
    /// The attributes of the fore channel.
    pub fore_chan_attrs: ChannelAttrs4,
    /// The attributes of the back channel.
    pub back_chan_attrs: ChannelAttrs4,
}

/// Arguments of DESTROY_SESSION.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct DestroySession4Args {
    /// The session.
    pub sessionid: Sessionid4,
}

/// Arguments of the operations that take a client id: DESTROY_CLIENTID, RENEW, DELEGPURGE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Clientid4Args {
    /// The client.
    pub clientid: u64,
}

/// Arguments of the operations that take a state id: FREE_STATEID, DELEGRETURN, OFFLOAD_CANCEL,
/// OFFLOAD_STATUS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Stateid4Args {
    /// The state.
    pub stateid: Stateid4,
}

/// Arguments of SEQUENCE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Sequence4Args {
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
}

/// `SEQUENCE4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Sequence4ResOk {
    /// The session.
    pub sessionid: Sessionid4,
    /// The slot's sequence number.
    pub sequenceid: u32,
    /// The slot.
    pub slotid: u32,
    /// The highest slot there is.
    pub highest_slotid: u32,
    /// The highest slot that the client should use.
    pub target_highest_slotid: u32,
    /// `SEQ4_STATUS_` flags.
    pub status_flags: u32,
}

/// `SEQ4_STATUS_CB_PATH_DOWN`.
pub const SEQ4_CB_PATH_DOWN: u32 = 0x0000_0001;
/// `SEQ4_STATUS_EXPIRED_ALL_STATE_REVOKED`.
pub const SEQ4_EXPIRED_ALL_STATE_REVOKED: u32 = 0x0000_0008;
/// `SEQ4_STATUS_ADMIN_STATE_REVOKED`.
pub const SEQ4_ADMIN_STATE_REVOKED: u32 = 0x0000_0020;
/// `SEQ4_STATUS_RECALLABLE_STATE_REVOKED`.
pub const SEQ4_RECALLABLE_STATE_REVOKED: u32 = 0x0000_0040;
/// `SEQ4_STATUS_LEASE_MOVED`.
pub const SEQ4_LEASE_MOVED: u32 = 0x0000_0080;
/// `SEQ4_STATUS_RESTART_RECLAIM_NEEDED`.
pub const SEQ4_RESTART_RECLAIM_NEEDED: u32 = 0x0000_0100;
/// `SEQ4_STATUS_CB_PATH_DOWN_SESSION`.
pub const SEQ4_CB_PATH_DOWN_SESSION: u32 = 0x0000_0200;
/// `SEQ4_STATUS_BACKCHANNEL_FAULT`.
pub const SEQ4_BACKCHANNEL_FAULT: u32 = 0x0000_0400;

/// Arguments of TEST_STATEID.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct TestStateid4Args {
    /// The state ids.
    pub stateids: Array<Stateid4, MAX_STATEIDS>,
}

/// Arguments of RECLAIM_COMPLETE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct ReclaimComplete4Args {
    /// Whether it concerns the current filesystem only.
    pub one_fs: bool,
}

/// Arguments of BIND_CONN_TO_SESSION.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct BindConnToSession4Args {
    /// The session.
    pub sessionid: Sessionid4,
    /// The channels (`CDFC4_`).
    pub dir: ChannelDirFromClient4,
    /// RDMA.
    pub use_conn_in_rdma_mode: bool,
}

/// `channel_dir_from_client4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum ChannelDirFromClient4 {
    /// The fore channel.
    Fore = 1,
    /// The back channel.
    Back = 2,
    /// The fore channel, or both.
    ForeOrBoth = 3,
    /// The back channel, or both.
    BackOrBoth = 7,
}

/// `BIND_CONN_TO_SESSION4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct BindConnToSession4ResOk {
    /// The session.
    pub sessionid: Sessionid4,
    /// The channels (`CDFS4_`): 1 fore, 2 back, 3 both.
    pub dir: u32,
    /// RDMA.
    pub use_conn_in_rdma_mode: bool,
}

/// Arguments of BACKCHANNEL_CTL.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct BackchannelCtl4Args<'a> {
    /// The callbacks' program number.
    pub cb_program: u32,
    /// Their credentials.
    pub sec_parms: Array<CallbackSecParms4<'a>, MAX_FLAVORS>,
}

/// Arguments of SECINFO_NO_NAME.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum SecinfoStyle4 {
    /// The current file handle.
    CurrentFh = 0,
    /// Its parent directory.
    Parent = 1,
}
