//! EXCHANGE_ID (RFC 8881 section 18.35): the identities of client and server.

use super::{Bitmap4, MAX_OIDS, Nfstime4, OPAQUE_LIMIT, Verifier4};
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

/// `state_protect4_a`: the requested protection of the client's state.
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

/// `nfs_impl_id4`: the implementation.
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
    /// The client.
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
    /// The server among those of the owner.
    pub minor_id: u64,
    /// The owner.
    pub major_id: Opaque<'a, OPAQUE_LIMIT>,
}

/// `state_protect4_r`, without `SP4_SSV`, which the server doesn't support.
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
    /// The first sequence number for CREATE_SESSION.
    pub sequenceid: u32,
    /// `EXCHGID4_FLAG_` flags.
    pub flags: u32,
    /// Protection.
    pub state_protect: StateProtect4R,
    /// The server.
    pub server_owner: ServerOwner4<'a>,
    /// The scope in which the server's ids are valid.
    pub server_scope: Opaque<'a, OPAQUE_LIMIT>,
    /// Implementation.
    pub server_impl_id: Array<NfsImplId4<'a>, 1>,
}
