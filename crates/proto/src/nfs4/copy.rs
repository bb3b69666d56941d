//! COPY, CLONE and OFFLOAD_STATUS (RFC 7862 sections 15.2, 15.9, 15.13).

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
    /// The state id under which the source is read.
    pub src_stateid: Stateid4,
    /// The state id under which the destination is written.
    pub dst_stateid: Stateid4,
    /// The offset in the source.
    pub src_offset: u64,
    /// The offset in the destination.
    pub dst_offset: u64,
    /// The number of bytes; 0 for all up to the end.
    pub count: u64,
    /// Whether the bytes are copied in order.
    pub consecutive: bool,
    /// Whether the reply is sent when the copy is complete.
    pub synchronous: bool,
    /// The server to copy from; none for this one.
    pub source_server: Array<Netloc4<'a>, MAX_SERVERS>,
}

/// `write_response4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct WriteResponse4 {
    /// The id of an asynchronous copy.
    pub callback_id: Array<Stateid4, 1>,
    /// The number of bytes.
    pub count: u64,
    /// How durable the data must be, or is.
    pub committed: StableHow4,
    /// Changes when unstable data may have been lost.
    pub writeverf: Verifier4,
}

/// `COPY4resok`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Copy4ResOk {
    /// The outcome.
    pub response: WriteResponse4,
    /// Whether the bytes were copied in order.
    pub consecutive: bool,
    /// Whether the copy is complete.
    pub synchronous: bool,
}

/// Arguments of CLONE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Clone4Args {
    /// The state id under which the source is read.
    pub src_stateid: Stateid4,
    /// The state id under which the destination is written.
    pub dst_stateid: Stateid4,
    /// The offset in the source.
    pub src_offset: u64,
    /// The offset in the destination.
    pub dst_offset: u64,
    /// The number of bytes; 0 for all up to the end.
    pub count: u64,
}

/// `OFFLOAD_STATUS4resok`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct OffloadStatus4ResOk {
    /// Bytes copied so far.
    pub count: u64,
    /// The status of a copy that has ended.
    pub complete: Array<Nfsstat4, 1>,
}
