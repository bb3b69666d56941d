//! Operations of NFSv4.2: space, copies and extended attributes (RFC 7862 section 15, RFC 8276 section 8).

use super::{Component4, MAX_SERVERS, MAX_XATTR, OPAQUE_LIMIT, StableHow4, Stateid4, Verifier4};
use xdr::{Array, Decode, Encode, Opaque};

/// Arguments of ALLOCATE and DEALLOCATE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Allocate4Args {
    /// By which right.
    pub stateid: Stateid4,
    /// First byte.
    pub offset: u64,
    /// How many.
    pub length: u64,
}

/// `data_content4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum DataContent4 {
    /// Data.
    Data = 0,
    /// A hole.
    Hole = 1,
}

/// Arguments of SEEK.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Seek4Args {
    /// By which right.
    pub stateid: Stateid4,
    /// From where.
    pub offset: u64,
    /// For what: a [`DataContent4`], or what is none.
    pub what: u32,
}

/// `seek_res4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct SeekRes4 {
    /// There is no more of it up to the end.
    pub eof: bool,
    /// Where it is.
    pub offset: u64,
}

/// `netaddr4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Netaddr4<'a> {
    /// `r_netid`.
    pub netid: Opaque<'a, OPAQUE_LIMIT>,
    /// `r_addr`.
    pub addr: Opaque<'a, OPAQUE_LIMIT>,
}

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

/// Arguments of IO_ADVISE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct IoAdvise4Args {
    /// By which right.
    pub stateid: Stateid4,
    /// First byte.
    pub offset: u64,
    /// How many; 0 to the end.
    pub count: u64,
    /// `IO_ADVISE4_` hints.
    pub hints: super::Bitmap4,
}

/// Arguments of GETXATTR and REMOVEXATTR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Xattr4Args<'a> {
    /// The attribute's name, without a namespace.
    pub name: Component4<'a>,
}

/// Arguments of SETXATTR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Setxattr4Args<'a> {
    /// `SETXATTR4_EITHER` 0, `SETXATTR4_CREATE` 1, `SETXATTR4_REPLACE` 2.
    pub option: SetxattrOption4,
    /// The attribute's name.
    pub key: Component4<'a>,
    /// Its value.
    pub value: Opaque<'a, MAX_XATTR>,
}

/// `setxattr_option4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum SetxattrOption4 {
    /// Whether it is there or not.
    Either = 0,
    /// It mustn't be there.
    Create = 1,
    /// It must be there.
    Replace = 2,
}

/// Arguments of LISTXATTRS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Listxattrs4Args {
    /// Where to go on; 0 at the start.
    pub cookie: u64,
    /// The most bytes of the result.
    pub maxcount: u32,
}

/// `LISTXATTRS4resok`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Listxattrs4ResOk<'a> {
    /// Where to go on.
    pub cookie: u64,
    /// Names.
    pub names: Array<Component4<'a>, 65_536>,
    /// There are no more.
    pub eof: bool,
}
