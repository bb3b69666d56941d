//! The errors of operations on state: a part of `nfsstat4`.

/// Why an operation on state fails: the `nfsstat4` of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Error {
    /// `NFS4ERR_ACCESS`.
    #[error("another user's client")]
    Access,
    /// `NFS4ERR_ADMIN_REVOKED`.
    #[error("the state was revoked")]
    AdminRevoked,
    /// `NFS4ERR_BAD_HIGH_SLOT`.
    #[error("the slot is above the highest one")]
    BadHighSlot,
    /// `NFS4ERR_BAD_SEQID`.
    #[error("not the owner's next number")]
    BadSeqid,
    /// `NFS4ERR_BADSESSION`.
    #[error("no such session")]
    BadSession,
    /// `NFS4ERR_BADSLOT`.
    #[error("no such slot")]
    BadSlot,
    /// `NFS4ERR_BAD_STATEID`.
    #[error("no such state")]
    BadStateid,
    /// `NFS4ERR_CLID_INUSE`.
    #[error("another user has a client of that name")]
    ClidInuse,
    /// `NFS4ERR_CLIENTID_BUSY`.
    #[error("the client has sessions or state")]
    ClientidBusy,
    /// `NFS4ERR_COMPLETE_ALREADY`.
    #[error("the client has said before that it has reclaimed everything")]
    CompleteAlready,
    /// `NFS4ERR_DELAY`.
    #[error("try later")]
    Delay,
    /// `NFS4ERR_DELEG_REVOKED`.
    #[error("the delegation was taken away")]
    DelegRevoked,
    /// `NFS4ERR_EXPIRED`.
    #[error("the lease has expired")]
    Expired,
    /// `NFS4ERR_GRACE`.
    #[error("the server waits for its old clients")]
    Grace,
    /// `NFS4ERR_INVAL`.
    #[error("invalid argument")]
    Inval,
    /// `NFS4ERR_LOCKED`.
    #[error("another client's share reservation forbids it")]
    Locked,
    /// `NFS4ERR_LOCKS_HELD`.
    #[error("there are locks")]
    LocksHeld,
    /// `NFS4ERR_LOCK_RANGE`.
    #[error("the lock range isn't supported")]
    LockRange,
    /// `NFS4ERR_NOENT`.
    #[error("no such client")]
    Noent,
    /// `NFS4ERR_NO_GRACE`.
    #[error("nothing can be reclaimed")]
    NoGrace,
    /// `NFS4ERR_NOSPC`.
    #[error("no room to keep replies")]
    Nospc,
    /// `NFS4ERR_NOT_SAME`.
    #[error("the verifier is another")]
    NotSame,
    /// `NFS4ERR_OLD_STATEID`.
    #[error("the state has changed since")]
    OldStateid,
    /// `NFS4ERR_OPENMODE`.
    #[error("not opened for that")]
    Openmode,
    /// `NFS4ERR_PERM`.
    #[error("another user's client")]
    Perm,
    /// `NFS4ERR_RECLAIM_CONFLICT`.
    #[error("another client has it")]
    ReclaimConflict,
    /// `NFS4ERR_REQ_TOO_BIG`.
    #[error("the request is larger than the session allows")]
    ReqTooBig,
    /// `NFS4ERR_RETRY_UNCACHED_REP`.
    #[error("the reply wasn't kept")]
    RetryUncachedRep,
    /// `NFS4ERR_SEQ_FALSE_RETRY`.
    #[error("not the request that was sent before")]
    SeqFalseRetry,
    /// `NFS4ERR_SEQ_MISORDERED`.
    #[error("not the next sequence number")]
    SeqMisordered,
    /// `NFS4ERR_SHARE_DENIED`.
    #[error("another owner's share reservation forbids it")]
    ShareDenied,
    /// `NFS4ERR_STALE_CLIENTID`.
    #[error("no such client")]
    StaleClientid,
    /// `NFS4ERR_STALE_STATEID`.
    #[error("state of an earlier run of the server")]
    StaleStateid,
    /// `NFS4ERR_TOOSMALL`.
    #[error("the session's bounds are too small")]
    Toosmall,
    /// `NFS4ERR_TOO_MANY_OPS`.
    #[error("more operations than the session allows")]
    TooManyOps,
    /// `NFS4ERR_WRONG_CRED`.
    #[error("another user's state")]
    WrongCred,
}
