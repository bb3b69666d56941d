//! Clients of NFSv4.0: SETCLIENTID, SETCLIENTID_CONFIRM, RELEASE_LOCKOWNER (RFC 7530 sections 16.33, 16.34,
//! 16.37).

use super::{Netaddr4, OPAQUE_LIMIT, StateOwner4, Verifier4};
use xdr::{Decode, Encode, Opaque};

/// `nfs_client_id4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct NfsClientId4<'a> {
    /// Changes when the client restarts.
    pub verifier: Verifier4,
    /// The same when the client restarts.
    pub id: Opaque<'a, OPAQUE_LIMIT>,
}

/// Arguments of SETCLIENTID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Setclientid4Args<'a> {
    /// The client.
    pub client: NfsClientId4<'a>,
    /// The RPC program number of callbacks.
    pub cb_program: u32,
    /// The address of the callback program.
    pub cb_location: Netaddr4<'a>,
    /// The identifier that callbacks carry.
    pub callback_ident: u32,
}

/// `SETCLIENTID4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Setclientid4ResOk {
    /// The client's id.
    pub clientid: u64,
    /// The verifier for SETCLIENTID_CONFIRM.
    pub setclientid_confirm: Verifier4,
}

/// Arguments of SETCLIENTID_CONFIRM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct SetclientidConfirm4Args {
    /// The client's id.
    pub clientid: u64,
    /// The verifier from SETCLIENTID.
    pub setclientid_confirm: Verifier4,
}

/// Arguments of RELEASE_LOCKOWNER.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct ReleaseLockowner4Args<'a> {
    /// The lock owner.
    pub lock_owner: StateOwner4<'a>,
}
