//! `nfs_opnum4` (RFC 7863 section 2, RFC 8276): the operations of a COMPOUND.

use super::MinorVersion;
use crate::numbered::numbered;

numbered!(
    "An operation of a COMPOUND.",
    Operation,
    Access = 3 "ACCESS",
    Close = 4 "CLOSE",
    Commit = 5 "COMMIT",
    Create = 6 "CREATE",
    Delegpurge = 7 "DELEGPURGE",
    Delegreturn = 8 "DELEGRETURN",
    Getattr = 9 "GETATTR",
    Getfh = 10 "GETFH",
    Link = 11 "LINK",
    Lock = 12 "LOCK",
    Lockt = 13 "LOCKT",
    Locku = 14 "LOCKU",
    Lookup = 15 "LOOKUP",
    Lookupp = 16 "LOOKUPP",
    Nverify = 17 "NVERIFY",
    Open = 18 "OPEN",
    Openattr = 19 "OPENATTR",
    OpenConfirm = 20 "OPEN_CONFIRM",
    OpenDowngrade = 21 "OPEN_DOWNGRADE",
    Putfh = 22 "PUTFH",
    Putpubfh = 23 "PUTPUBFH",
    Putrootfh = 24 "PUTROOTFH",
    Read = 25 "READ",
    Readdir = 26 "READDIR",
    Readlink = 27 "READLINK",
    Remove = 28 "REMOVE",
    Rename = 29 "RENAME",
    Renew = 30 "RENEW",
    Restorefh = 31 "RESTOREFH",
    Savefh = 32 "SAVEFH",
    Secinfo = 33 "SECINFO",
    Setattr = 34 "SETATTR",
    Setclientid = 35 "SETCLIENTID",
    SetclientidConfirm = 36 "SETCLIENTID_CONFIRM",
    Verify = 37 "VERIFY",
    Write = 38 "WRITE",
    ReleaseLockowner = 39 "RELEASE_LOCKOWNER",
    BackchannelCtl = 40 "BACKCHANNEL_CTL",
    BindConnToSession = 41 "BIND_CONN_TO_SESSION",
    ExchangeId = 42 "EXCHANGE_ID",
    CreateSession = 43 "CREATE_SESSION",
    DestroySession = 44 "DESTROY_SESSION",
    FreeStateid = 45 "FREE_STATEID",
    GetDirDelegation = 46 "GET_DIR_DELEGATION",
    Getdeviceinfo = 47 "GETDEVICEINFO",
    Getdevicelist = 48 "GETDEVICELIST",
    Layoutcommit = 49 "LAYOUTCOMMIT",
    Layoutget = 50 "LAYOUTGET",
    Layoutreturn = 51 "LAYOUTRETURN",
    SecinfoNoName = 52 "SECINFO_NO_NAME",
    Sequence = 53 "SEQUENCE",
    SetSsv = 54 "SET_SSV",
    TestStateid = 55 "TEST_STATEID",
    WantDelegation = 56 "WANT_DELEGATION",
    DestroyClientid = 57 "DESTROY_CLIENTID",
    ReclaimComplete = 58 "RECLAIM_COMPLETE",
    Allocate = 59 "ALLOCATE",
    Copy = 60 "COPY",
    CopyNotify = 61 "COPY_NOTIFY",
    Deallocate = 62 "DEALLOCATE",
    IoAdvise = 63 "IO_ADVISE",
    Layouterror = 64 "LAYOUTERROR",
    Layoutstats = 65 "LAYOUTSTATS",
    OffloadCancel = 66 "OFFLOAD_CANCEL",
    OffloadStatus = 67 "OFFLOAD_STATUS",
    ReadPlus = 68 "READ_PLUS",
    Seek = 69 "SEEK",
    WriteSame = 70 "WRITE_SAME",
    Clone = 71 "CLONE",
    Getxattr = 72 "GETXATTR",
    Setxattr = 73 "SETXATTR",
    Listxattrs = 74 "LISTXATTRS",
    Removexattr = 75 "REMOVEXATTR",
);

impl Operation {
    /// The operation with this number, if the minor version has one. Those that it has only to be refused
    /// ("MUST NOT implement") are among them.
    #[must_use]
    pub const fn of(number: u32, minor: MinorVersion) -> Option<Self> {
        match Self::from_number(number) {
            Some(operation) if operation.since() as u32 <= minor as u32 => Some(operation),
            _ => None,
        }
    }

    /// The minor version that brought it.
    const fn since(self) -> MinorVersion {
        match self.number() {
            ..40 => MinorVersion::V0,
            40..59 => MinorVersion::V1,
            _ => MinorVersion::V2,
        }
    }
}

/// The number with which an operation is answered that the minor version doesn't have (`OP_ILLEGAL`).
pub const ILLEGAL: u32 = 10_044;
