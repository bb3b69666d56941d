//! COPY and CLONE, and what became of a copy (RFC 7862 sections 15.2, 15.9, 15.13).

use super::{MAX_SERVERS, Netaddr4, Nfsstat4, OPAQUE_LIMIT, StableHow4, Stateid4, Verifier4};
use xdr::{Array, Decode, Encode, Opaque};

/// `netloc4`: a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum Netloc4<'a> {
    /// By name.
    #[xdr(1)]
    Name(Opaque<'a, OPAQUE_LIMIT>),
    /// By URL.
    #[xdr(2)]
    Url(Opaque<'a, OPAQUE_LIMIT>),
    /// By address.
    #[xdr(3)]
    Netaddr(Netaddr4<'a>),
}

/// Arguments of COPY.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Copy4Args<'a> {
    /// By which right the source is read.
    pub src_stateid: Stateid4,
    /// By which right the destination is written.
    pub dst_stateid: Stateid4,
    /// From where.
    pub src_offset: u64,
    /// To where.
    pub dst_offset: u64,
    /// How many bytes; 0 to the end.
    pub count: u64,
    /// From the front to the back.
    pub consecutive: bool,
    /// The reply comes when it is done.
    pub synchronous: bool,
    /// Another server to copy from; none: this one.
    pub source_server: Array<Netloc4<'a>, MAX_SERVERS>,
}

/// `write_response4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct WriteResponse4 {
    /// A copy under way.
    pub callback_id: Array<Stateid4, 1>,
    /// Bytes.
    pub count: u64,
    /// How durable.
    pub committed: StableHow4,
    /// Changes when unstable data may have been lost.
    pub writeverf: Verifier4,
}

/// `COPY4resok`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Copy4ResOk {
    /// What was copied.
    pub response: WriteResponse4,
    /// From the front to the back.
    pub consecutive: bool,
    /// It is done.
    pub synchronous: bool,
}

/// Arguments of CLONE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Clone4Args {
    /// By which right the source is read.
    pub src_stateid: Stateid4,
    /// By which right the destination is written.
    pub dst_stateid: Stateid4,
    /// From where.
    pub src_offset: u64,
    /// To where.
    pub dst_offset: u64,
    /// How many bytes; 0 to the end.
    pub count: u64,
}

/// `OFFLOAD_STATUS4resok`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct OffloadStatus4ResOk {
    /// Bytes so far.
    pub count: u64,
    /// How it ended, if it has.
    pub complete: Array<Nfsstat4, 1>,
}
