//! OPEN and related operations: OPEN_DOWNGRADE, OPEN_CONFIRM, CLOSE, delegations (RFC 8881 section 18.16).

use super::{Bitmap4, ChangeInfo4, Component4, Fattr4, Nfsace4, StateOwner4, Stateid4, Verifier4};
use xdr::{Decode, Encode};

/// `OPEN4_SHARE_ACCESS_READ`.
pub const SHARE_ACCESS_READ: u32 = 1;
/// `OPEN4_SHARE_ACCESS_WRITE`.
pub const SHARE_ACCESS_WRITE: u32 = 2;
/// Both.
pub const SHARE_ACCESS_BOTH: u32 = 3;
/// `OPEN4_SHARE_DENY_BOTH`.
pub const SHARE_DENY_BOTH: u32 = 3;
/// `OPEN4_SHARE_ACCESS_WANT_DELEG_MASK`.
pub const SHARE_ACCESS_WANT_DELEG_MASK: u32 = 0xFF00;
/// `OPEN4_SHARE_ACCESS_WANT_NO_PREFERENCE`.
pub const SHARE_ACCESS_WANT_NO_PREFERENCE: u32 = 0x0000;
/// `OPEN4_SHARE_ACCESS_WANT_READ_DELEG`.
pub const SHARE_ACCESS_WANT_READ_DELEG: u32 = 0x0100;
/// `OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG`.
pub const SHARE_ACCESS_WANT_WRITE_DELEG: u32 = 0x0200;
/// `OPEN4_SHARE_ACCESS_WANT_ANY_DELEG`.
pub const SHARE_ACCESS_WANT_ANY_DELEG: u32 = 0x0300;
/// `OPEN4_SHARE_ACCESS_WANT_NO_DELEG`.
pub const SHARE_ACCESS_WANT_NO_DELEG: u32 = 0x0400;
/// `OPEN4_SHARE_ACCESS_WANT_CANCEL`.
pub const SHARE_ACCESS_WANT_CANCEL: u32 = 0x0500;
/// `OPEN4_SHARE_ACCESS_WANT_SIGNAL_DELEG_WHEN_RESRC_AVAIL`.
pub const SHARE_ACCESS_WANT_SIGNAL: u32 = 0x1_0000;
/// `OPEN4_SHARE_ACCESS_WANT_PUSH_DELEG_WHEN_UNCONTENDED`.
pub const SHARE_ACCESS_WANT_PUSH: u32 = 0x2_0000;

/// `OPEN4_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS` (RFC 9754).
pub const SHARE_ACCESS_WANT_DELEG_TIMESTAMPS: u32 = 0x10_0000;
/// `OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION` (RFC 9754).
pub const SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION: u32 = 0x20_0000;

/// `OPEN4_RESULT_CONFIRM`: the open owner is new, OPEN_CONFIRM must follow (4.0).
pub const RESULT_CONFIRM: u32 = 0x2;
/// `OPEN4_RESULT_LOCKTYPE_POSIX`: byte-range locks have POSIX semantics.
pub const RESULT_LOCKTYPE_POSIX: u32 = 0x4;
/// `OPEN4_RESULT_PRESERVE_UNLINKED`: the server keeps the file while it is open, also without a name and over
/// a restart (4.1).
pub const RESULT_PRESERVE_UNLINKED: u32 = 0x8;
/// `OPEN4_RESULT_MAY_NOTIFY_LOCK`: the server may send CB_NOTIFY_LOCK to owners that wait for a lock (4.1).
pub const RESULT_MAY_NOTIFY_LOCK: u32 = 0x20;

/// `createhow4`: how OPEN creates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum Createhow4<'a> {
    /// An existing file is opened.
    #[xdr(0)]
    Unchecked(Fattr4<'a>),
    /// An existing file is an error.
    #[xdr(1)]
    Guarded(Fattr4<'a>),
    /// An existing file is an error, unless it was created with this verifier.
    #[xdr(2)]
    Exclusive(Verifier4),
    /// The same, with attributes (4.1).
    #[xdr(3)]
    Exclusive41(Creatverfattr<'a>),
}

/// `creatverfattr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Creatverfattr<'a> {
    /// Distinguishes a retry from another client's file.
    pub verf: Verifier4,
    /// The attributes to set.
    pub attrs: Fattr4<'a>,
}

/// `openflag4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum Openflag4<'a> {
    /// The file must exist.
    #[xdr(0)]
    Nocreate,
    /// The file is created.
    #[xdr(1)]
    Create(Createhow4<'a>),
}

/// `open_claim4`: the file, and the claim to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum OpenClaim4<'a> {
    /// A name in the current directory.
    #[xdr(0)]
    Null(Component4<'a>),
    /// The current file, which the client had open before the server restarted, with the type of its
    /// delegation.
    #[xdr(1)]
    Previous(u32),
    /// A name, under a delegation.
    #[xdr(2)]
    DelegateCur(OpenClaimDelegateCur4<'a>),
    /// A name, under a delegation from before the client restarted.
    #[xdr(3)]
    DelegatePrev(Component4<'a>),
    /// The current file (4.1).
    #[xdr(4)]
    Fh,
    /// The current file, under a delegation (4.1).
    #[xdr(5)]
    DelegCurFh(Stateid4),
    /// The current file, under a delegation from before the client restarted (4.1).
    #[xdr(6)]
    DelegPrevFh,
}

/// `deleg_claim4`: the claim to a delegation of the current file (4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum DelegClaim4 {
    /// The client had one, of this type, before the server restarted.
    #[xdr(1)]
    Previous(u32),
    /// No claim.
    #[xdr(4)]
    Fh,
    /// The client had one before it restarted itself.
    #[xdr(6)]
    DelegPrevFh,
}

/// Arguments of WANT_DELEGATION (4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct WantDelegation4Args {
    /// The wanted delegation: `OPEN4_SHARE_ACCESS_WANT_` bits.
    pub want: u32,
    /// The state id under which the file is accessed.
    pub claim: DelegClaim4,
}

/// `open_claim_delegate_cur4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct OpenClaimDelegateCur4<'a> {
    /// The delegation.
    pub delegate_stateid: Stateid4,
    /// The name.
    pub file: Component4<'a>,
}

/// Arguments of OPEN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Open4Args<'a> {
    /// The owner's sequence number (4.0).
    pub seqid: u32,
    /// The access, and the wanted delegation.
    pub share_access: u32,
    /// The deny mode.
    pub share_deny: u32,
    /// The owner.
    pub owner: StateOwner4<'a>,
    /// Whether to create.
    pub openhow: Openflag4<'a>,
    /// The file, and the claim to it.
    pub claim: OpenClaim4<'a>,
}

/// `open_read_delegation4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct OpenReadDelegation4<'a> {
    /// The delegation.
    pub stateid: Stateid4,
    /// Whether it is being recalled already.
    pub recall: bool,
    /// The users who may open the file without asking the server.
    pub permissions: Nfsace4<'a>,
}

/// `nfs_space_limit4`: how much may be written without asking the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum NfsSpaceLimit4 {
    /// This many bytes.
    #[xdr(1)]
    Size(u64),
    /// This many blocks.
    #[xdr(2)]
    Blocks(NfsModifiedLimit4),
}

/// `nfs_modified_limit4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct NfsModifiedLimit4 {
    /// Blocks.
    pub num_blocks: u32,
    /// A block's size.
    pub bytes_per_block: u32,
}

/// `open_write_delegation4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct OpenWriteDelegation4<'a> {
    /// The delegation.
    pub stateid: Stateid4,
    /// Whether it is being recalled already.
    pub recall: bool,
    /// How much may be written without asking the server.
    pub space_limit: NfsSpaceLimit4,
    /// The users who may open the file without asking the server.
    pub permissions: Nfsace4<'a>,
}

/// `open_none_delegation4`: why no delegation was given (4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum OpenNoneDelegation4 {
    /// `WND4_CONTENTION`, and whether the server will push a delegation later.
    #[xdr(1)]
    Contention(bool),
    /// `WND4_RESOURCE`, and whether the server will signal its availability.
    #[xdr(2)]
    Resource(bool),
    /// Any other reason, such as [`WND4_NOT_WANTED`].
    #[xdr(default)]
    Other(u32),
}

/// `WND4_NOT_WANTED`: the client didn't want one.
pub const WND4_NOT_WANTED: u32 = 0;
/// `WND4_NOT_SUPP_FTYPE`: only regular files have delegations.
pub const WND4_NOT_SUPP_FTYPE: u32 = 3;
/// `WND4_WRITE_DELEG_NOT_SUPP_FTYPE`: the file has no write delegations.
pub const WND4_WRITE_DELEG_NOT_SUPP_FTYPE: u32 = 4;
/// `WND4_NOT_SUPP_UPGRADE`: the client has a delegation, which can't be replaced by one of another type.
pub const WND4_NOT_SUPP_UPGRADE: u32 = 5;
/// `WND4_CANCELLED`: the client has cancelled its request.
pub const WND4_CANCELLED: u32 = 7;

/// `open_arguments4` (RFC 9754 section 3): the supported arguments of OPEN, each a set of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct OpenArguments4 {
    /// Bits of `share_access`, by their numbers.
    pub share_access: Bitmap4,
    /// Bits of `share_deny`.
    pub share_deny: Bitmap4,
    /// Wants: `OPEN_ARGS_SHARE_ACCESS_WANT_`.
    pub share_access_want: Bitmap4,
    /// Claims.
    pub open_claim: Bitmap4,
    /// Modes of creation.
    pub create_mode: Bitmap4,
}

/// `open_delegation4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum OpenDelegation4<'a> {
    /// None.
    #[xdr(0)]
    None,
    /// For reading.
    #[xdr(1)]
    Read(OpenReadDelegation4<'a>),
    /// For writing.
    #[xdr(2)]
    Write(OpenWriteDelegation4<'a>),
    /// None, with the reason (4.1).
    #[xdr(3)]
    NoneExt(OpenNoneDelegation4),
}

/// `OPEN4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Open4ResOk<'a> {
    /// The open.
    pub stateid: Stateid4,
    /// The change of the directory.
    pub cinfo: ChangeInfo4,
    /// `OPEN4_RESULT_` flags.
    pub rflags: u32,
    /// Attributes that were set.
    pub attrset: Bitmap4,
    /// The delegation.
    pub delegation: OpenDelegation4<'a>,
}

/// Arguments of CLOSE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Close4Args {
    /// The owner's sequence number (4.0).
    pub seqid: u32,
    /// The open.
    pub open_stateid: Stateid4,
}

/// Arguments of OPEN_DOWNGRADE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct OpenDowngrade4Args {
    /// The open.
    pub open_stateid: Stateid4,
    /// The owner's sequence number (4.0).
    pub seqid: u32,
    /// The new access.
    pub share_access: u32,
    /// The new deny mode.
    pub share_deny: u32,
}

/// Arguments of OPEN_CONFIRM (4.0).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct OpenConfirm4Args {
    /// The open.
    pub open_stateid: Stateid4,
    /// The owner's sequence number.
    pub seqid: u32,
}
