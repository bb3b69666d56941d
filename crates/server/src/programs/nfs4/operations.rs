//! The table of NFSv4's operations: a row for every operation of RFC 7530, 8881, 7862 and 8276.
//!
//! A row holds all that the execution of a COMPOUND has to know about an operation. A number that the
//! request's minor version doesn't have is NFS4ERR_OP_ILLEGAL, a row without a handler NFS4ERR_NOTSUPP.

use proto::nfs4::MinorVersion::{self, V0, V1, V2};
use proto::nfs4::{Nfsstat4, Operation, Operation as Op};

use super::context::Handler;
use super::ops::{
    attributes, client, copy, create, delegation, directory, handles, lock, names, open, read, session,
    space, stateids, write, xattrs,
};
use super::owner_seqid::FindOwner;
use super::status::Result;

/// What the server knows about an operation.
#[derive(Debug, Clone, Copy)]
pub struct OperationSpec {
    /// Its number and name.
    pub operation: Operation,
    /// The first and the last minor version that have it. Later ones answer NFS4ERR_NOTSUPP: servers must not
    /// implement it there (RFC 8881 section 17).
    pub minors: (MinorVersion, MinorVersion),
    /// Where it may stand in a COMPOUND of minor version 1 and later.
    pub position: Position,
    /// Without a current file handle it fails with NFS4ERR_NOFILEHANDLE.
    pub needs_handle: bool,
    /// It changes files or the state of clients. The server refuses it beforehand if the reply has no room
    /// for its result: a client that gets NFS4ERR_REP_TOO_BIG relies on the operation not having happened
    /// (RFC 8881 section 2.10.6.4).
    pub changes: bool,
    /// Minor version 0 keeps its reply in the duplicate-request cache: it must not be executed twice, and no
    /// owner's sequence number identifies a retransmission.
    pub cached: bool,
    /// The longest result, behind the status, of an operation that succeeds.
    pub max_result: MaxResult,
    /// In minor version 0 an owner's sequence number orders it; finds both in the arguments.
    seqid: Option<FindOwner>,
    /// `None` if the server doesn't implement the operation.
    handler: Option<Handler>,
}

/// Where an operation may stand in a COMPOUND of minor version 1 and later (RFC 8881 sections 2.10.2.1,
/// 18.33 to 18.37, 18.46, 18.50).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// Behind SEQUENCE.
    InSession,
    /// Behind SEQUENCE, or as the only operation.
    InSessionOrAlone,
    /// First: SEQUENCE itself.
    First,
}

/// The longest result of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxResult {
    /// In bytes.
    Bytes(usize),
    /// Depends on the arguments or the file.
    Varies,
    /// As long as the reply has room for.
    FillsReply,
}

/// Where an operation stands in its COMPOUND.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    pub minor: MinorVersion,
    pub is_first: bool,
    pub is_only: bool,
    /// SEQUENCE stands before it.
    pub in_session: bool,
}

impl OperationSpec {
    /// Whether the server implements the operation in this minor version.
    #[must_use]
    pub fn is_supported(&self, minor: MinorVersion) -> bool {
        self.handler(minor).is_ok()
    }

    /// # Errors
    /// `Notsupp` if the server doesn't implement the operation in this minor version.
    pub(super) fn handler(&self, minor: MinorVersion) -> Result<Handler> {
        let (_, last) = self.minors;
        self.handler.filter(|_| minor <= last).ok_or(Nfsstat4::Notsupp)
    }

    /// How to find the owner whose sequence number the arguments carry, in the minor version that has those.
    pub(super) fn seqid(&self, minor: MinorVersion) -> Option<FindOwner> {
        self.seqid.filter(|_| minor == V0)
    }

    /// # Errors
    /// `SequencePos`, `NotOnlyOp` and `OpNotInSession`.
    pub(super) fn check_position(&self, at: Standing) -> Result<()> {
        if at.minor == V0 {
            return Ok(());
        }
        match self.position {
            Position::First if at.is_first => Ok(()),
            Position::First => Err(Nfsstat4::SequencePos),
            Position::InSession | Position::InSessionOrAlone if at.in_session => Ok(()),
            Position::InSessionOrAlone if at.is_only => Ok(()),
            Position::InSessionOrAlone if at.is_first => Err(Nfsstat4::NotOnlyOp),
            Position::InSession | Position::InSessionOrAlone => Err(Nfsstat4::OpNotInSession),
        }
    }
}

/// The row of the operation with this number, if the minor version has one.
pub(super) fn find(number: u32, minor: MinorVersion) -> Option<&'static OperationSpec> {
    let at = number.checked_sub(FIRST)?;
    let row = OPERATIONS.get(at as usize)?;
    let (since, _) = row.minors;
    (since <= minor).then_some(row)
}

/// The number of the first row.
const FIRST: u32 = Op::ALL[0].number();

type Minors = (MinorVersion, MinorVersion);

const SINCE_V0: Minors = (V0, V2);
const ONLY_V0: Minors = (V0, V0);
const SINCE_V1: Minors = (V1, V2);
const SINCE_V2: Minors = (V2, V2);

/// `stateid4`, in bytes.
const STATEID: usize = 16;
/// `change_info4`.
const CHANGE_INFO: usize = 20;
/// `verifier4`.
const VERIFIER: usize = 8;
/// `bitmap4` of attributes: three words.
const ATTRIBUTES: usize = 4 + 3 * 4;
/// `open_delegation4`: the kind, a state id, whether it is recalled, the limit of space, and one entry of an
/// access control list.
const DELEGATION: usize = 4 + STATEID + 4 + 12 + 16;
/// `nfs_fh4`.
const HANDLE: usize = 4 + 128;
/// The security flavors of SECINFO: AUTH_SYS and AUTH_NONE.
const FLAVORS: usize = 4 + 2 * 4;
const SESSIONID: usize = 16;
/// The attributes of a session's channel.
const CHANNEL: usize = 7 * 4;
/// `EXCHANGE_ID4resok`: the client id and three words, the owner's two parts, the scope, the implementation.
const EXCHANGE_ID: usize = (8 + 3 * 4) + (8 + 20) + 20 + 64;

/// An operation that changes nothing outside of its COMPOUND (SEQUENCE: but for its slot).
const fn query(minors: Minors, operation: Op, run: Run, max_result: MaxResult) -> OperationSpec {
    OperationSpec {
        operation,
        minors,
        position: Position::InSession,
        needs_handle: run.needs_handle,
        changes: false,
        cached: false,
        max_result,
        seqid: None,
        handler: Some(run.handler),
    }
}

/// An operation that changes files or the state of clients, and answers at most so many bytes.
const fn change(minors: Minors, operation: Op, run: Run, max_result: usize) -> OperationSpec {
    OperationSpec { changes: true, ..query(minors, operation, run, MaxResult::Bytes(max_result)) }
}

/// An operation that the server refuses.
const fn unsupported(minors: Minors, operation: Op) -> OperationSpec {
    OperationSpec {
        operation,
        minors,
        position: Position::InSession,
        needs_handle: false,
        changes: false,
        cached: false,
        max_result: MaxResult::Bytes(0),
        seqid: None,
        handler: None,
    }
}

impl OperationSpec {
    /// Whether it is done in an absent filesystem, too, where other operations are NFS4ERR_MOVED.
    pub(super) const fn reads_attributes(&self) -> bool {
        matches!(self.operation, Op::Getattr | Op::Verify | Op::Nverify)
    }

    const fn cached(self) -> Self {
        Self { cached: true, ..self }
    }

    const fn at(self, position: Position) -> Self {
        Self { position, ..self }
    }

    const fn owner_seqid(self, seqid: FindOwner) -> Self {
        Self { seqid: Some(seqid), ..self }
    }
}

/// How an operation is run.
struct Run {
    handler: Handler,
    needs_handle: bool,
}

/// Runs a function of the context and the decoded arguments. `on handle`: of the current file handle, too.
macro_rules! decoded {
    ($operation:path) => {
        Run {
            handler: |c, args| $operation(c, args.get().map_err(|_| Nfsstat4::Badxdr)?),
            needs_handle: false,
        }
    };
    ($operation:path, on handle) => {
        Run {
            handler: |c, args| {
                let args = args.get().map_err(|_| Nfsstat4::Badxdr)?;
                c.object()?;
                $operation(c, args)
            },
            needs_handle: true,
        }
    };
}

/// Runs a function of the context; the operation has no arguments.
macro_rules! bare {
    ($operation:path) => {
        Run { handler: |c, _| $operation(c), needs_handle: false }
    };
    ($operation:path, on handle) => {
        Run {
            handler: |c, _| {
                c.object()?;
                $operation(c)
            },
            needs_handle: true,
        }
    };
}

/// Finds the owner by a function of the context and the decoded arguments.
macro_rules! owner {
    ($find:path) => {
        |c, args| $find(c, args.get().map_err(|_| Nfsstat4::Badxdr)?)
    };
}

use MaxResult::{Bytes, FillsReply, Varies};
use Position::{First, InSessionOrAlone};

/// All operations, in the order of their numbers.
pub static OPERATIONS: [OperationSpec; Op::ALL.len()] = [
    // RFC 7530.
    query(SINCE_V0, Op::Access, decoded!(attributes::access, on handle), Bytes(8)),
    change(SINCE_V0, Op::Close, decoded!(open::close, on handle), STATEID)
        .owner_seqid(owner!(open::close_owner)),
    change(SINCE_V0, Op::Commit, decoded!(write::commit, on handle), VERIFIER),
    change(SINCE_V0, Op::Create, decoded!(create::create, on handle), CHANGE_INFO + ATTRIBUTES).cached(),
    unsupported(SINCE_V0, Op::Delegpurge),
    change(SINCE_V0, Op::Delegreturn, decoded!(delegation::delegreturn, on handle), 0).cached(),
    query(SINCE_V0, Op::Getattr, decoded!(attributes::getattr, on handle), Varies),
    query(SINCE_V0, Op::Getfh, bare!(handles::getfh, on handle), Bytes(HANDLE)),
    change(SINCE_V0, Op::Link, decoded!(names::link, on handle), CHANGE_INFO).cached(),
    change(SINCE_V0, Op::Lock, decoded!(lock::lock, on handle), STATEID)
        .owner_seqid(owner!(lock::lock_owner)),
    query(SINCE_V0, Op::Lockt, decoded!(lock::lockt, on handle), Bytes(0)),
    change(SINCE_V0, Op::Locku, decoded!(lock::locku, on handle), STATEID)
        .owner_seqid(owner!(lock::locku_owner)),
    query(SINCE_V0, Op::Lookup, decoded!(handles::lookup, on handle), Bytes(0)),
    query(SINCE_V0, Op::Lookupp, bare!(handles::lookupp, on handle), Bytes(0)),
    query(SINCE_V0, Op::Nverify, decoded!(attributes::nverify, on handle), Bytes(0)),
    change(
        SINCE_V0,
        Op::Open,
        decoded!(open::open, on handle),
        STATEID + CHANGE_INFO + 4 + ATTRIBUTES + DELEGATION,
    )
    .owner_seqid(owner!(open::open_owner)),
    unsupported(SINCE_V0, Op::Openattr),
    change(ONLY_V0, Op::OpenConfirm, decoded!(client::open_confirm, on handle), STATEID)
        .owner_seqid(owner!(client::open_confirm_owner)),
    change(SINCE_V0, Op::OpenDowngrade, decoded!(open::open_downgrade, on handle), STATEID)
        .owner_seqid(owner!(open::open_downgrade_owner)),
    query(SINCE_V0, Op::Putfh, decoded!(handles::putfh), Bytes(0)),
    query(SINCE_V0, Op::Putpubfh, bare!(handles::putrootfh), Bytes(0)),
    query(SINCE_V0, Op::Putrootfh, bare!(handles::putrootfh), Bytes(0)),
    query(SINCE_V0, Op::Read, decoded!(read::read, on handle), FillsReply),
    query(SINCE_V0, Op::Readdir, decoded!(directory::readdir, on handle), FillsReply),
    query(SINCE_V0, Op::Readlink, bare!(attributes::readlink, on handle), Varies),
    change(SINCE_V0, Op::Remove, decoded!(names::remove, on handle), CHANGE_INFO).cached(),
    change(SINCE_V0, Op::Rename, decoded!(names::rename, on handle), 2 * CHANGE_INFO).cached(),
    change(ONLY_V0, Op::Renew, decoded!(client::renew), 0),
    query(SINCE_V0, Op::Restorefh, bare!(handles::restorefh), Bytes(0)),
    query(SINCE_V0, Op::Savefh, bare!(handles::savefh, on handle), Bytes(0)),
    query(SINCE_V0, Op::Secinfo, decoded!(handles::secinfo, on handle), Bytes(FLAVORS)),
    change(SINCE_V0, Op::Setattr, decoded!(attributes::setattr, on handle), ATTRIBUTES).cached(),
    change(ONLY_V0, Op::Setclientid, decoded!(client::setclientid), 8 + VERIFIER),
    change(ONLY_V0, Op::SetclientidConfirm, decoded!(client::setclientid_confirm), 0),
    query(SINCE_V0, Op::Verify, decoded!(attributes::verify, on handle), Bytes(0)),
    change(SINCE_V0, Op::Write, decoded!(write::write, on handle), 4 + 4 + VERIFIER).cached(),
    change(ONLY_V0, Op::ReleaseLockowner, decoded!(client::release_lockowner), 0),
    // RFC 8881.
    change(SINCE_V1, Op::BackchannelCtl, decoded!(session::backchannel_ctl), 0),
    change(SINCE_V1, Op::BindConnToSession, decoded!(session::bind_conn_to_session), SESSIONID + 2 * 4)
        .at(InSessionOrAlone),
    change(SINCE_V1, Op::ExchangeId, decoded!(session::exchange_id), EXCHANGE_ID).at(InSessionOrAlone),
    change(SINCE_V1, Op::CreateSession, decoded!(session::create_session), SESSIONID + 2 * 4 + 2 * CHANNEL)
        .at(InSessionOrAlone),
    change(SINCE_V1, Op::DestroySession, decoded!(session::destroy_session), 0).at(InSessionOrAlone),
    change(SINCE_V1, Op::FreeStateid, decoded!(stateids::free_stateid), 0),
    unsupported(SINCE_V1, Op::GetDirDelegation),
    unsupported(SINCE_V1, Op::Getdeviceinfo),
    unsupported(SINCE_V1, Op::Getdevicelist),
    unsupported(SINCE_V1, Op::Layoutcommit),
    unsupported(SINCE_V1, Op::Layoutget),
    unsupported(SINCE_V1, Op::Layoutreturn),
    query(SINCE_V1, Op::SecinfoNoName, decoded!(handles::secinfo_no_name, on handle), Bytes(FLAVORS)),
    query(SINCE_V1, Op::Sequence, decoded!(session::sequence), Bytes(SESSIONID + 5 * 4)).at(First),
    unsupported(SINCE_V1, Op::SetSsv),
    query(SINCE_V1, Op::TestStateid, decoded!(stateids::test_stateid), Varies),
    change(SINCE_V1, Op::WantDelegation, decoded!(delegation::want_delegation, on handle), DELEGATION),
    change(SINCE_V1, Op::DestroyClientid, decoded!(session::destroy_clientid), 0).at(InSessionOrAlone),
    change(SINCE_V1, Op::ReclaimComplete, decoded!(session::reclaim_complete), 0),
    // RFC 7862.
    change(SINCE_V2, Op::Allocate, decoded!(space::allocate, on handle), 0),
    change(SINCE_V2, Op::Copy, decoded!(copy::copy, on handle), (4 + STATEID) + 8 + 4 + VERIFIER + 2 * 4),
    unsupported(SINCE_V2, Op::CopyNotify),
    change(SINCE_V2, Op::Deallocate, decoded!(space::deallocate, on handle), 0),
    query(SINCE_V2, Op::IoAdvise, decoded!(space::io_advise, on handle), Bytes(ATTRIBUTES)),
    unsupported(SINCE_V2, Op::Layouterror),
    unsupported(SINCE_V2, Op::Layoutstats),
    change(SINCE_V2, Op::OffloadCancel, decoded!(copy::offload_cancel, on handle), 0),
    query(SINCE_V2, Op::OffloadStatus, decoded!(copy::offload_status, on handle), Bytes(8 + 2 * 4)),
    query(SINCE_V2, Op::ReadPlus, decoded!(read::read_plus, on handle), FillsReply),
    query(SINCE_V2, Op::Seek, decoded!(space::seek, on handle), Bytes(4 + 8)),
    unsupported(SINCE_V2, Op::WriteSame),
    change(SINCE_V2, Op::Clone, decoded!(copy::clone, on handle), 0),
    // RFC 8276.
    query(SINCE_V2, Op::Getxattr, decoded!(xattrs::getxattr, on handle), Varies),
    change(SINCE_V2, Op::Setxattr, decoded!(xattrs::setxattr, on handle), CHANGE_INFO).cached(),
    query(SINCE_V2, Op::Listxattrs, decoded!(xattrs::listxattrs, on handle), FillsReply),
    change(SINCE_V2, Op::Removexattr, decoded!(xattrs::removexattr, on handle), CHANGE_INFO).cached(),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8881 section 17: "MNI", mandatory not to implement.
    const NOT_SINCE_V1: [Op; 5] =
        [Op::OpenConfirm, Op::Renew, Op::Setclientid, Op::SetclientidConfirm, Op::ReleaseLockowner];

    #[test]
    fn the_rows_are_the_operations_in_the_order_of_their_numbers() {
        for (row, number) in OPERATIONS.iter().zip(3..) {
            assert_eq!(row.operation.number(), number, "{}", row.operation);
        }
        assert_eq!(OPERATIONS.last().unwrap().operation.number(), 75);
    }

    #[test]
    fn minor_versions_are_those_of_the_rfcs() {
        for minor in [V0, V1, V2] {
            let last = match minor {
                V0 => 39, // RFC 7531
                V1 => 58, // RFC 5662
                V2 => 75, // RFC 7863, 8276
            };
            for number in 0..100 {
                let row = find(number, minor);
                assert_eq!(row.is_some(), (3..=last).contains(&number), "{number}, {minor:?}");
                let Some(row) = row else { continue };
                assert_eq!(row.operation.number(), number);
                if minor > V0 && NOT_SINCE_V1.contains(&row.operation) {
                    assert!(!row.is_supported(minor), "{}, {minor:?}", row.operation);
                } else {
                    assert_eq!(row.is_supported(minor), row.handler.is_some(), "{}", row.operation);
                }
            }
            assert!(find(proto::nfs4::ILLEGAL, minor).is_none());
        }
    }

    #[test]
    fn operations_that_change_something_have_a_bound() {
        for row in OPERATIONS.iter().filter(|row| row.changes) {
            assert!(matches!(row.max_result, Bytes(_)), "{}", row.operation);
        }
        for row in OPERATIONS.iter().filter(|row| row.cached || row.seqid.is_some()) {
            assert!(row.changes && row.minors.0 <= V2, "{}", row.operation);
            assert!(!(row.cached && row.seqid.is_some()), "{}: the owner's number is enough", row.operation);
        }
    }

    /// RFC 7530 section 9.1.7 numbers these.
    #[test]
    fn the_operations_with_an_owners_sequence_number_are_those_of_the_rfc() {
        let numbered: Vec<_> =
            OPERATIONS.iter().filter(|row| row.seqid(V0).is_some()).map(|row| row.operation).collect();
        let expected = [Op::Close, Op::Lock, Op::Locku, Op::Open, Op::OpenConfirm, Op::OpenDowngrade];
        assert_eq!(numbered, expected);
        assert!(OPERATIONS.iter().all(|row| row.seqid(V1).is_none()));
    }

    #[test]
    fn sessions_begin_with_sequence_and_a_few_operations_stand_alone() {
        let position = |operation: Op, is_first, is_only, in_session| {
            let row = OPERATIONS.iter().find(|row| row.operation == operation).unwrap();
            row.check_position(Standing { minor: V1, is_first, is_only, in_session })
        };
        assert_eq!(position(Op::Sequence, true, false, false), Ok(()));
        assert_eq!(position(Op::Sequence, false, false, true), Err(Nfsstat4::SequencePos));
        assert_eq!(position(Op::Putfh, false, false, true), Ok(()));
        assert_eq!(position(Op::Putfh, true, true, false), Err(Nfsstat4::OpNotInSession));
        for alone in OPERATIONS.iter().filter(|row| row.position == InSessionOrAlone) {
            assert_eq!(position(alone.operation, true, true, false), Ok(()));
            assert_eq!(position(alone.operation, true, false, false), Err(Nfsstat4::NotOnlyOp));
            assert_eq!(position(alone.operation, false, false, true), Ok(()));
        }
    }
}
