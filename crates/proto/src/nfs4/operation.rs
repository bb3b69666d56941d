//! `nfs_opnum4` (RFC 7863 section 2, RFC 8276): the operations of a COMPOUND.

use super::MinorVersion;

macro_rules! operations {
    ($($variant:ident = $number:literal $name:literal $first:literal,)+) => {
        /// An operation of a COMPOUND.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Operation {
            $(
                #[doc = concat!("Operation ", $number, ", ", $name, ".")]
                $variant = $number,
            )+
        }

        impl Operation {
            /// Every operation, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The operation with this number, if the minor version has one. Those that it has only to be refused
            /// ("MUST NOT implement") are among them.
            #[must_use]
            pub const fn from_number(number: u32, minor: MinorVersion) -> Option<Self> {
                let minor = minor as i32;
                match number {
                    $($number if minor >= $first => Some(Self::$variant),)+
                    _ => None,
                }
            }

            /// Its number on the wire.
            #[must_use]
            pub const fn number(self) -> u32 {
                self as u32
            }

            /// Its name in the RFC.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

operations!(
    Access = 3 "ACCESS" 0,
    Close = 4 "CLOSE" 0,
    Commit = 5 "COMMIT" 0,
    Create = 6 "CREATE" 0,
    Delegpurge = 7 "DELEGPURGE" 0,
    Delegreturn = 8 "DELEGRETURN" 0,
    Getattr = 9 "GETATTR" 0,
    Getfh = 10 "GETFH" 0,
    Link = 11 "LINK" 0,
    Lock = 12 "LOCK" 0,
    Lockt = 13 "LOCKT" 0,
    Locku = 14 "LOCKU" 0,
    Lookup = 15 "LOOKUP" 0,
    Lookupp = 16 "LOOKUPP" 0,
    Nverify = 17 "NVERIFY" 0,
    Open = 18 "OPEN" 0,
    Openattr = 19 "OPENATTR" 0,
    OpenConfirm = 20 "OPEN_CONFIRM" 0,
    OpenDowngrade = 21 "OPEN_DOWNGRADE" 0,
    Putfh = 22 "PUTFH" 0,
    Putpubfh = 23 "PUTPUBFH" 0,
    Putrootfh = 24 "PUTROOTFH" 0,
    Read = 25 "READ" 0,
    Readdir = 26 "READDIR" 0,
    Readlink = 27 "READLINK" 0,
    Remove = 28 "REMOVE" 0,
    Rename = 29 "RENAME" 0,
    Renew = 30 "RENEW" 0,
    Restorefh = 31 "RESTOREFH" 0,
    Savefh = 32 "SAVEFH" 0,
    Secinfo = 33 "SECINFO" 0,
    Setattr = 34 "SETATTR" 0,
    Setclientid = 35 "SETCLIENTID" 0,
    SetclientidConfirm = 36 "SETCLIENTID_CONFIRM" 0,
    Verify = 37 "VERIFY" 0,
    Write = 38 "WRITE" 0,
    ReleaseLockowner = 39 "RELEASE_LOCKOWNER" 0,
    BackchannelCtl = 40 "BACKCHANNEL_CTL" 1,
    BindConnToSession = 41 "BIND_CONN_TO_SESSION" 1,
    ExchangeId = 42 "EXCHANGE_ID" 1,
    CreateSession = 43 "CREATE_SESSION" 1,
    DestroySession = 44 "DESTROY_SESSION" 1,
    FreeStateid = 45 "FREE_STATEID" 1,
    GetDirDelegation = 46 "GET_DIR_DELEGATION" 1,
    Getdeviceinfo = 47 "GETDEVICEINFO" 1,
    Getdevicelist = 48 "GETDEVICELIST" 1,
    Layoutcommit = 49 "LAYOUTCOMMIT" 1,
    Layoutget = 50 "LAYOUTGET" 1,
    Layoutreturn = 51 "LAYOUTRETURN" 1,
    SecinfoNoName = 52 "SECINFO_NO_NAME" 1,
    Sequence = 53 "SEQUENCE" 1,
    SetSsv = 54 "SET_SSV" 1,
    TestStateid = 55 "TEST_STATEID" 1,
    WantDelegation = 56 "WANT_DELEGATION" 1,
    DestroyClientid = 57 "DESTROY_CLIENTID" 1,
    ReclaimComplete = 58 "RECLAIM_COMPLETE" 1,
    Allocate = 59 "ALLOCATE" 2,
    Copy = 60 "COPY" 2,
    CopyNotify = 61 "COPY_NOTIFY" 2,
    Deallocate = 62 "DEALLOCATE" 2,
    IoAdvise = 63 "IO_ADVISE" 2,
    Layouterror = 64 "LAYOUTERROR" 2,
    Layoutstats = 65 "LAYOUTSTATS" 2,
    OffloadCancel = 66 "OFFLOAD_CANCEL" 2,
    OffloadStatus = 67 "OFFLOAD_STATUS" 2,
    ReadPlus = 68 "READ_PLUS" 2,
    Seek = 69 "SEEK" 2,
    WriteSame = 70 "WRITE_SAME" 2,
    Clone = 71 "CLONE" 2,
    Getxattr = 72 "GETXATTR" 2,
    Setxattr = 73 "SETXATTR" 2,
    Listxattrs = 74 "LISTXATTRS" 2,
    Removexattr = 75 "REMOVEXATTR" 2,
);

/// The number with which an operation is answered that the minor version doesn't have (`OP_ILLEGAL`).
pub const ILLEGAL: u32 = 10_044;
