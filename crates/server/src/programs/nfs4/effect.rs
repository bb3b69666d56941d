//! What an operation does beyond its reply: whether it changes something, how long its answer then is at
//! most, and whether it may be done twice.
//!
//! An operation that changes something is refused beforehand where the reply has no room for its answer: a
//! client that is told NFS4ERR_REP_TOO_BIG must be able to rely on that nothing has happened (RFC 8881
//! section 2.10.6.4).

use proto::nfs4::Operation;

/// `stateid4`, in bytes.
const STATEID: usize = 16;
/// `change_info4`.
const CHANGE_INFO: usize = 20;
/// A `bitmap4` of attributes: three words.
const ATTRIBUTES: usize = 4 + 3 * 4;
/// `open_delegation4`: the kind, a state id, whether it is recalled, the limit of space, and one entry of an
/// access control list.
const DELEGATION: usize = 4 + STATEID + 4 + 12 + 16;

/// What an operation does beyond its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing that outlives its COMPOUND, or nothing but what its slot is for (SEQUENCE).
    None,
    /// It changes files or the state of clients.
    Changes {
        /// The most bytes of its answer, after the status.
        answer: usize,
        /// A second time it would do harm, or fail where the first has succeeded: without a session its reply
        /// must be remembered.
        once: bool,
    },
    /// The server only refuses it.
    Refused,
}

/// An operation's effect.
pub(super) const fn of(operation: Operation) -> Effect {
    use Operation as Op;
    match operation {
        Op::Access
        | Op::Getattr
        | Op::Getfh
        | Op::Lockt
        | Op::Lookup
        | Op::Lookupp
        | Op::Nverify
        | Op::Putfh
        | Op::Putpubfh
        | Op::Putrootfh
        | Op::Read
        | Op::Readdir
        | Op::Readlink
        | Op::Restorefh
        | Op::Savefh
        | Op::Secinfo
        | Op::Verify
        | Op::SecinfoNoName
        | Op::Sequence
        | Op::TestStateid
        | Op::IoAdvise
        | Op::OffloadStatus
        | Op::ReadPlus
        | Op::Seek
        | Op::Getxattr
        | Op::Listxattrs => Effect::None,

        // Names and attributes.
        Op::Create => once(CHANGE_INFO + ATTRIBUTES),
        Op::Link | Op::Remove | Op::Setxattr | Op::Removexattr => once(CHANGE_INFO),
        Op::Rename => once(2 * CHANGE_INFO),
        Op::Setattr => once(ATTRIBUTES),

        // Data.
        Op::Write => again(4 + 4 + 8),
        Op::Commit => again(8),
        Op::Allocate | Op::Deallocate | Op::Clone => again(0),
        Op::Copy => again((4 + STATEID) + 8 + 4 + 8 + 2 * 4),

        // Opens, locks and delegations. In 4.0 an owner's number tells a repeated request.
        Op::Open => again(STATEID + CHANGE_INFO + 4 + ATTRIBUTES + DELEGATION),
        Op::Close | Op::Lock | Op::Locku | Op::OpenConfirm | Op::OpenDowngrade => again(STATEID),
        Op::WantDelegation => again(DELEGATION),
        Op::Delegreturn => once(0),
        Op::FreeStateid | Op::ReleaseLockowner | Op::OffloadCancel => again(0),

        // Clients and sessions.
        Op::Setclientid => again(8 + 8),
        Op::SetclientidConfirm | Op::Renew => again(0),
        Op::BackchannelCtl | Op::DestroySession | Op::DestroyClientid | Op::ReclaimComplete => again(0),
        Op::BindConnToSession => again(16 + 2 * 4),
        // The client id, three words, the owner's two parts, the scope, the implementation.
        Op::ExchangeId => again((8 + 3 * 4) + (8 + 20) + 20 + 64),
        Op::CreateSession => again((16 + 2 * 4) + 2 * 7 * 4),

        Op::Delegpurge
        | Op::Openattr
        | Op::GetDirDelegation
        | Op::Getdeviceinfo
        | Op::Getdevicelist
        | Op::Layoutcommit
        | Op::Layoutget
        | Op::Layoutreturn
        | Op::SetSsv
        | Op::CopyNotify
        | Op::Layouterror
        | Op::Layoutstats
        | Op::WriteSame => Effect::Refused,
    }
}

const fn once(answer: usize) -> Effect {
    Effect::Changes { answer, once: true }
}

/// It may be done again: a second time changes nothing more, or something in the protocol tells it from the
/// first.
const fn again(answer: usize) -> Effect {
    Effect::Changes { answer, once: false }
}
