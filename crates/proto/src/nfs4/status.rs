//! `nfsstat4` (RFC 7863 section 2): how an operation ended, the errors of all three minor versions.

use crate::status::nfsstat;

nfsstat!(
    "`nfsstat4`, with the names of the RFC less their prefix `NFS4ERR_`.",
    Nfsstat4 {
        /// `NFS4ERR_ACCESS`: access denied.
        Access = 13,
        /// `NFS4ERR_DELAY`: file "busy" -- retry.
        Delay = 10_008,
        /// `NFS4ERR_SAME`: nverify says attrs same.
        Same = 10_009,
        /// `NFS4ERR_DENIED`: lock unavailable.
        Denied = 10_010,
        /// `NFS4ERR_EXPIRED`: lock lease expired.
        Expired = 10_011,
        /// `NFS4ERR_LOCKED`: I/O failed due to lock.
        Locked = 10_012,
        /// `NFS4ERR_GRACE`: in grace period.
        Grace = 10_013,
        /// `NFS4ERR_FHEXPIRED`: filehandle expired.
        Fhexpired = 10_014,
        /// `NFS4ERR_SHARE_DENIED`: share reserve denied.
        ShareDenied = 10_015,
        /// `NFS4ERR_WRONGSEC`: wrong security flavor.
        Wrongsec = 10_016,
        /// `NFS4ERR_CLID_INUSE`: client ID in use.
        ClidInuse = 10_017,
        /// `NFS4ERR_RESOURCE`: resource exhaustion.
        Resource = 10_018,
        /// `NFS4ERR_MOVED`: file system relocated.
        Moved = 10_019,
        /// `NFS4ERR_NOFILEHANDLE`: current FH is not set.
        Nofilehandle = 10_020,
        /// `NFS4ERR_MINOR_VERS_MISMATCH`: minor vers not supp.
        MinorVersMismatch = 10_021,
        /// `NFS4ERR_STALE_CLIENTID`: server has rebooted.
        StaleClientid = 10_022,
        /// `NFS4ERR_STALE_STATEID`: server has rebooted.
        StaleStateid = 10_023,
        /// `NFS4ERR_OLD_STATEID`: state is out of sync.
        OldStateid = 10_024,
        /// `NFS4ERR_BAD_STATEID`: incorrect stateid.
        BadStateid = 10_025,
        /// `NFS4ERR_BAD_SEQID`: request is out of seq..
        BadSeqid = 10_026,
        /// `NFS4ERR_NOT_SAME`: verify -- attrs not same.
        NotSame = 10_027,
        /// `NFS4ERR_LOCK_RANGE`: overlapping lock range.
        LockRange = 10_028,
        /// `NFS4ERR_SYMLINK`: should be file/directory.
        Symlink = 10_029,
        /// `NFS4ERR_RESTOREFH`: no saved filehandle.
        Restorefh = 10_030,
        /// `NFS4ERR_LEASE_MOVED`: some file system moved.
        LeaseMoved = 10_031,
        /// `NFS4ERR_ATTRNOTSUPP`: recommended attr not supp.
        Attrnotsupp = 10_032,
        /// `NFS4ERR_NO_GRACE`: reclaim outside of grace.
        NoGrace = 10_033,
        /// `NFS4ERR_RECLAIM_BAD`: reclaim error at server.
        ReclaimBad = 10_034,
        /// `NFS4ERR_RECLAIM_CONFLICT`: conflict on reclaim.
        ReclaimConflict = 10_035,
        /// `NFS4ERR_BADXDR`: XDR decode failed.
        Badxdr = 10_036,
        /// `NFS4ERR_LOCKS_HELD`: file locks held at CLOSE.
        LocksHeld = 10_037,
        /// `NFS4ERR_OPENMODE`: conflict in OPEN and I/O.
        Openmode = 10_038,
        /// `NFS4ERR_BADOWNER`: owner translation bad.
        Badowner = 10_039,
        /// `NFS4ERR_BADCHAR`: UTF-8 char not supported.
        Badchar = 10_040,
        /// `NFS4ERR_BADNAME`: name not supported.
        Badname = 10_041,
        /// `NFS4ERR_BAD_RANGE`: lock range not supported.
        BadRange = 10_042,
        /// `NFS4ERR_LOCK_NOTSUPP`: no atomic up/downgrade.
        LockNotsupp = 10_043,
        /// `NFS4ERR_OP_ILLEGAL`: undefined operation.
        OpIllegal = 10_044,
        /// `NFS4ERR_DEADLOCK`: file-locking deadlock.
        Deadlock = 10_045,
        /// `NFS4ERR_FILE_OPEN`: open file blocks op.
        FileOpen = 10_046,
        /// `NFS4ERR_ADMIN_REVOKED`: lock-owner state revoked.
        AdminRevoked = 10_047,
        /// `NFS4ERR_CB_PATH_DOWN`: callback path down.
        CbPathDown = 10_048,
        /// `NFS4ERR_BADIOMODE`: PNFS: the layout has another mode.
        Badiomode = 10_049,
        /// `NFS4ERR_BADLAYOUT`: PNFS: the layout is bad.
        Badlayout = 10_050,
        /// `NFS4ERR_BAD_SESSION_DIGEST`: SET_SSV: the digest is wrong.
        BadSessionDigest = 10_051,
        /// `NFS4ERR_BADSESSION`: no such session.
        Badsession = 10_052,
        /// `NFS4ERR_BADSLOT`: no such slot.
        Badslot = 10_053,
        /// `NFS4ERR_COMPLETE_ALREADY`: RECLAIM_COMPLETE was there before.
        CompleteAlready = 10_054,
        /// `NFS4ERR_CONN_NOT_BOUND_TO_SESSION`: the connection is not bound to the session.
        ConnNotBoundToSession = 10_055,
        /// `NFS4ERR_DELEG_ALREADY_WANTED`: the delegation is wanted already.
        DelegAlreadyWanted = 10_056,
        /// `NFS4ERR_BACK_CHAN_BUSY`: backchan reqs outstanding.
        BackChanBusy = 10_057,
        /// `NFS4ERR_LAYOUTTRYLATER`: PNFS: try later.
        Layouttrylater = 10_058,
        /// `NFS4ERR_LAYOUTUNAVAILABLE`: PNFS: no layouts here.
        Layoutunavailable = 10_059,
        /// `NFS4ERR_NOMATCHING_LAYOUT`: PNFS: no such layout.
        NomatchingLayout = 10_060,
        /// `NFS4ERR_RECALLCONFLICT`: PNFS: a layout is being recalled.
        Recallconflict = 10_061,
        /// `NFS4ERR_UNKNOWN_LAYOUTTYPE`: PNFS: no such type of layout.
        UnknownLayouttype = 10_062,
        /// `NFS4ERR_SEQ_MISORDERED`: unexpected seq. ID in req.
        SeqMisordered = 10_063,
        /// `NFS4ERR_SEQUENCE_POS`: CB_SEQUENCE or SEQUENCE not 1st op.
        SequencePos = 10_064,
        /// `NFS4ERR_REQ_TOO_BIG`: request too big.
        ReqTooBig = 10_065,
        /// `NFS4ERR_REP_TOO_BIG`: reply too big.
        RepTooBig = 10_066,
        /// `NFS4ERR_REP_TOO_BIG_TO_CACHE`: rep. not all cached.
        RepTooBigToCache = 10_067,
        /// `NFS4ERR_RETRY_UNCACHED_REP`: retry + rep. uncached.
        RetryUncachedRep = 10_068,
        /// `NFS4ERR_UNSAFE_COMPOUND`: retry/recovery too hard.
        UnsafeCompound = 10_069,
        /// `NFS4ERR_TOO_MANY_OPS`: too many ops in COMPOUND.
        TooManyOps = 10_070,
        /// `NFS4ERR_OP_NOT_IN_SESSION`: the operation needs SEQUENCE before it.
        OpNotInSession = 10_071,
        /// `NFS4ERR_HASH_ALG_UNSUPP`: hash alg. not supp.
        HashAlgUnsupp = 10_072,
        /// `NFS4ERR_CLIENTID_BUSY`: client ID has state.
        ClientidBusy = 10_074,
        /// `NFS4ERR_PNFS_IO_HOLE`: IO to _SPARSE file hole.
        PnfsIoHole = 10_075,
        /// `NFS4ERR_SEQ_FALSE_RETRY`: retry != original req.
        SeqFalseRetry = 10_076,
        /// `NFS4ERR_BAD_HIGH_SLOT`: req has bad highest_slot.
        BadHighSlot = 10_077,
        /// `NFS4ERR_DEADSESSION`: new req sent to dead sess.
        Deadsession = 10_078,
        /// `NFS4ERR_ENCR_ALG_UNSUPP`: encr alg. not supp.
        EncrAlgUnsupp = 10_079,
        /// `NFS4ERR_PNFS_NO_LAYOUT`: I/O without a layout.
        PnfsNoLayout = 10_080,
        /// `NFS4ERR_NOT_ONLY_OP`: addl ops not allowed.
        NotOnlyOp = 10_081,
        /// `NFS4ERR_WRONG_CRED`: op done by wrong cred.
        WrongCred = 10_082,
        /// `NFS4ERR_WRONG_TYPE`: op on wrong type object.
        WrongType = 10_083,
        /// `NFS4ERR_DIRDELEG_UNAVAIL`: delegation not avail..
        DirdelegUnavail = 10_084,
        /// `NFS4ERR_REJECT_DELEG`: cb rejected delegation.
        RejectDeleg = 10_085,
        /// `NFS4ERR_RETURNCONFLICT`: layout get before return.
        Returnconflict = 10_086,
        /// `NFS4ERR_DELEG_REVOKED`: deleg./layout revoked.
        DelegRevoked = 10_087,
        /// `NFS4ERR_PARTNER_NOTSUPP`: S2s not supported.
        PartnerNotsupp = 10_088,
        /// `NFS4ERR_PARTNER_NO_AUTH`: S2s not authorized.
        PartnerNoAuth = 10_089,
        /// `NFS4ERR_UNION_NOTSUPP`: arm of union not supp.
        UnionNotsupp = 10_090,
        /// `NFS4ERR_OFFLOAD_DENIED`: dest not allowing copy.
        OffloadDenied = 10_091,
        /// `NFS4ERR_WRONG_LFS`: LFS not supported.
        WrongLfs = 10_092,
        /// `NFS4ERR_BADLABEL`: incorrect label.
        Badlabel = 10_093,
        /// `NFS4ERR_OFFLOAD_NO_REQS`: dest not meeting reqs.
        OffloadNoReqs = 10_094,
        /// `NFS4ERR_NOXATTR`: no such extended attribute (RFC 8276).
        Noxattr = 10_095,
        /// `NFS4ERR_XATTR2BIG`: the extended attribute is too large (RFC 8276).
        Xattr2big = 10_096,
    }
);
