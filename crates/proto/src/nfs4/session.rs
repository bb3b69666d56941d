//! Clients and sessions of NFSv4.1: EXCHANGE_ID, CREATE_SESSION, SEQUENCE and their like (RFC 8881 sections 18.33 to 18.51).

use super::{
    Bitmap4, MAX_FLAVORS, MAX_OIDS, MAX_STATEIDS, Nfstime4, OPAQUE_LIMIT, Sessionid4, Stateid4, Verifier4,
};
use xdr::{Array, Decode, Encode, Opaque};

/// `EXCHGID4_FLAG_SUPP_MOVED_REFER`.
pub const EXCHGID_SUPP_MOVED_REFER: u32 = 0x0000_0001;
/// `EXCHGID4_FLAG_BIND_PRINC_STATEID`.
pub const EXCHGID_BIND_PRINC_STATEID: u32 = 0x0000_0100;
/// `EXCHGID4_FLAG_USE_NON_PNFS`.
pub const EXCHGID_USE_NON_PNFS: u32 = 0x0001_0000;
/// `EXCHGID4_FLAG_UPD_CONFIRMED_REC_A`.
pub const EXCHGID_UPD_CONFIRMED_REC_A: u32 = 0x4000_0000;
/// `EXCHGID4_FLAG_CONFIRMED_R`.
pub const EXCHGID_CONFIRMED_R: u32 = 0x8000_0000;
/// The flags that a client may set in 4.1 (`EXCHGID4_FLAG_MASK_A`).
pub const EXCHGID_MASK_A: u32 = 0x4007_0103;
/// `EXCHGID4_FLAG_SUPP_FENCE_OPS` (4.2).
pub const EXCHGID_SUPP_FENCE_OPS: u32 = 0x0000_0004;

/// `CREATE_SESSION4_FLAG_PERSIST`.
pub const CREATE_SESSION_PERSIST: u32 = 1;
/// `CREATE_SESSION4_FLAG_CONN_BACK_CHAN`.
pub const CREATE_SESSION_CONN_BACK_CHAN: u32 = 2;
/// `CREATE_SESSION4_FLAG_CONN_RDMA`.
pub const CREATE_SESSION_CONN_RDMA: u32 = 4;

/// `client_owner4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct ClientOwner4<'a> {
    /// Changes when the client restarts.
    pub verifier: Verifier4,
    /// The same when the client restarts.
    pub ownerid: Opaque<'a, OPAQUE_LIMIT>,
}

/// `state_protect_ops4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct StateProtectOps4 {
    /// Operations that need the machine's credential.
    pub must_enforce: Bitmap4,
    /// Operations that may be done with it.
    pub must_allow: Bitmap4,
}

/// `ssv_sp_parms4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct SsvSpParms4<'a> {
    /// The operations.
    pub ops: StateProtectOps4,
    /// Hash algorithms.
    pub hash_algs: Array<Opaque<'a, OPAQUE_LIMIT>, MAX_OIDS>,
    /// Encryption algorithms.
    pub encr_algs: Array<Opaque<'a, OPAQUE_LIMIT>, MAX_OIDS>,
    /// Window.
    pub window: u32,
    /// Handles.
    pub num_gss_handles: u32,
}

/// `state_protect4_a`: who may change the client's state.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum StateProtect4A<'a> {
    /// `SP4_NONE`.
    #[xdr(0)]
    None,
    /// `SP4_MACH_CRED`.
    #[xdr(1)]
    MachCred(StateProtectOps4),
    /// `SP4_SSV`.
    #[xdr(2)]
    Ssv(SsvSpParms4<'a>),
}

/// `nfs_impl_id4`: whose implementation it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct NfsImplId4<'a> {
    /// Domain.
    pub domain: Opaque<'a, OPAQUE_LIMIT>,
    /// Name.
    pub name: Opaque<'a, OPAQUE_LIMIT>,
    /// Date.
    pub date: Nfstime4,
}

/// Arguments of EXCHANGE_ID.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ExchangeId4Args<'a> {
    /// Who.
    pub clientowner: ClientOwner4<'a>,
    /// `EXCHGID4_FLAG_` flags.
    pub flags: u32,
    /// Protection.
    pub state_protect: StateProtect4A<'a>,
    /// Implementation.
    pub client_impl_id: Array<NfsImplId4<'a>, 1>,
}

/// `server_owner4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct ServerOwner4<'a> {
    /// Which of the owner's servers.
    pub minor_id: u64,
    /// The owner.
    pub major_id: Opaque<'a, OPAQUE_LIMIT>,
}

/// `state_protect4_r`, without `SP4_SSV`, which we don't offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum StateProtect4R {
    /// `SP4_NONE`.
    #[xdr(0)]
    None,
    /// `SP4_MACH_CRED`.
    #[xdr(1)]
    MachCred(StateProtectOps4),
}

/// `EXCHANGE_ID4resok`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ExchangeId4ResOk<'a> {
    /// The client's id.
    pub clientid: u64,
    /// What CREATE_SESSION must begin with.
    pub sequenceid: u32,
    /// `EXCHGID4_FLAG_` flags.
    pub flags: u32,
    /// Protection.
    pub state_protect: StateProtect4R,
    /// Who the server is.
    pub server_owner: ServerOwner4<'a>,
    /// Where its ids mean something.
    pub server_scope: Opaque<'a, OPAQUE_LIMIT>,
    /// Implementation.
    pub server_impl_id: Array<NfsImplId4<'a>, 1>,
}

/// `channel_attrs4`: the bounds of a session's channel.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
pub struct ChannelAttrs4 {
    /// Padding (RDMA).
    pub headerpadsize: u32,
    /// The largest request, RPC header included.
    pub maxrequestsize: u32,
    /// The largest reply, RPC header included.
    pub maxresponsesize: u32,
    /// The largest reply that is kept for a retry.
    pub maxresponsesize_cached: u32,
    /// Operations in a COMPOUND.
    pub maxoperations: u32,
    /// Slots.
    pub maxrequests: u32,
    /// RDMA.
    pub rdma_ird: Array<u32, 1>,
}

/// `authsys_parms` of a callback's credential.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct AuthsysParms<'a> {
    /// A number.
    pub stamp: u32,
    /// The machine.
    pub machinename: Opaque<'a, 255>,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Groups.
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

/// `callback_sec_parms4`: how callbacks say who calls.
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
    /// Its sequence number.
    pub sequence: u32,
    /// `CREATE_SESSION4_FLAG_` flags.
    pub flags: u32,
    /// Bounds wanted.
    pub fore_chan_attrs: ChannelAttrs4,
    /// Bounds wanted for callbacks.
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
    /// The sequence number as it was asked.
    pub sequence: u32,
    /// `CREATE_SESSION4_FLAG_` flags.
    pub flags: u32,
    /// Bounds.
    pub fore_chan_attrs: ChannelAttrs4,
    /// Bounds for callbacks.
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

/// Arguments of the operations that take a state id: FREE_STATEID, DELEGRETURN, OFFLOAD_CANCEL, OFFLOAD_STATUS.
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
    /// Keep the reply for a retry.
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
    /// On the current filesystem only.
    pub one_fs: bool,
}

/// Arguments of BIND_CONN_TO_SESSION.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct BindConnToSession4Args {
    /// The session.
    pub sessionid: Sessionid4,
    /// For which channels (`CDFC4_`).
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
    /// For which channels (`CDFS4_`): 1 fore, 2 back, 3 both.
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
    /// Of the current handle.
    CurrentFh = 0,
    /// Of the directory above it.
    Parent = 1,
}
