//! Samples of NFSv4's wire types.

use super::{Sample, Source};
use proto::nfs4::*;
use xdr::Opaque;

structures! {
    NfsClientId4<'a> { verifier, id }
    Setclientid4Args<'a> { client, cb_program, cb_location, callback_ident }
    Setclientid4ResOk { clientid, setclientid_confirm }
    SetclientidConfirm4Args { clientid, setclientid_confirm }
    ReleaseLockowner4Args<'a> { lock_owner }
    Fattr4<'a> { attrmask, attr_vals }
    Stateid4 { seqid, other }
    Nfstime4 { seconds, nseconds }
    Fsid4 { major, minor }
    Specdata4 { specdata1, specdata2 }
    ChangeInfo4 { atomic, before, after }
    StateOwner4<'a> { clientid, owner }
    Read4Args { stateid, offset, count }
    Read4ResOk<'a> { eof, data }
    Write4Args<'a> { stateid, offset, stable, data }
    Write4ResOk { count, committed, writeverf }
    Commit4Args { offset, count }
    Allocate4Args { stateid, offset, length }
    Seek4Args { stateid, offset, what }
    SeekRes4 { eof, offset }
    Data4<'a> { offset, data }
    DataInfo4 { offset, length }
    ReadPlus4ResOk<'a> { eof, contents }
    OffloadStatus4ResOk { count, complete }
    Netaddr4<'a> { netid, addr }
    Copy4Args<'a> {
        src_stateid, dst_stateid, src_offset, dst_offset, count, consecutive, synchronous, source_server
    }
    WriteResponse4 { callback_id, count, committed, writeverf }
    Copy4ResOk { response, consecutive, synchronous }
    Clone4Args { src_stateid, dst_stateid, src_offset, dst_offset, count }
    IoAdvise4Args { stateid, offset, count, hints }
    Xattr4Args<'a> { name }
    Setxattr4Args<'a> { option, key, value }
    Listxattrs4Args { cookie, maxcount }
    Listxattrs4ResOk<'a> { cookie, names, eof }
    Access4Args { access }
    Access4ResOk { supported, access }
    Getattr4Args { attr_request }
    Setattr4Args<'a> { stateid, obj_attributes }
    Verify4Args<'a> { obj_attributes }
    Readdir4Args { cookie, cookieverf, dircount, maxcount, attr_request }
    OpenToLockOwner4<'a> { open_seqid, open_stateid, lock_seqid, lock_owner }
    ExistLockOwner4 { lock_stateid, lock_seqid }
    Lock4Args<'a> { locktype, reclaim, offset, length, locker }
    Lock4Denied<'a> { offset, length, locktype, owner }
    Lockt4Args<'a> { locktype, offset, length, owner }
    Locku4Args { locktype, seqid, lock_stateid, offset, length }
    Create4Args<'a> { objtype, objname, createattrs }
    Name4Args<'a> { name }
    Putfh4Args<'a> { object }
    Rename4Args<'a> { oldname, newname }
    Rename4ResOk { source_cinfo, target_cinfo }
    Creatverfattr<'a> { verf, attrs }
    OpenClaimDelegateCur4<'a> { delegate_stateid, file }
    Open4Args<'a> { seqid, share_access, share_deny, owner, openhow, claim }
    Nfsace4<'a> { kind, flag, access_mask, who }
    OpenReadDelegation4<'a> { stateid, recall, permissions }
    NfsModifiedLimit4 { num_blocks, bytes_per_block }
    OpenWriteDelegation4<'a> { stateid, recall, space_limit, permissions }
    Open4ResOk<'a> { stateid, cinfo, rflags, attrset, delegation }
    Close4Args { seqid, open_stateid }
    WantDelegation4Args { want, claim }
    OpenDowngrade4Args { open_stateid, seqid, share_access, share_deny }
    OpenConfirm4Args { open_stateid, seqid }
    ClientOwner4<'a> { verifier, ownerid }
    StateProtectOps4 { must_enforce, must_allow }
    SsvSpParms4<'a> { ops, hash_algs, encr_algs, window, num_gss_handles }
    NfsImplId4<'a> { domain, name, date }
    ExchangeId4Args<'a> { clientowner, flags, state_protect, client_impl_id }
    ServerOwner4<'a> { minor_id, major_id }
    ExchangeId4ResOk<'a> {
        clientid, sequenceid, flags, state_protect, server_owner, server_scope, server_impl_id
    }
    ChannelAttrs4 {
        headerpadsize, maxrequestsize, maxresponsesize, maxresponsesize_cached, maxoperations, maxrequests,
        rdma_ird
    }
    AuthsysParms<'a> { stamp, machinename, uid, gid, gids }
    GssCbHandles4<'a> { service, handle_from_server, handle_from_client }
    CreateSession4Args<'a> {
        clientid, sequence, flags, fore_chan_attrs, back_chan_attrs, cb_program, sec_parms
    }
    CreateSession4ResOk { sessionid, sequence, flags, fore_chan_attrs, back_chan_attrs }
    DestroySession4Args { sessionid }
    Clientid4Args { clientid }
    Stateid4Args { stateid }
    Sequence4Args { sessionid, sequenceid, slotid, highest_slotid, cachethis }
    Sequence4ResOk { sessionid, sequenceid, slotid, highest_slotid, target_highest_slotid, status_flags }
    TestStateid4Args { stateids }
    ReclaimComplete4Args { one_fs }
    BindConnToSession4Args { sessionid, dir, use_conn_in_rdma_mode }
    BindConnToSession4ResOk { sessionid, dir, use_conn_in_rdma_mode }
    BackchannelCtl4Args<'a> { cb_program, sec_parms }
    OpenArguments4 { share_access, share_deny, share_access_want, open_claim, create_mode }
    CbCompound4Head<'a> { tag, minor, callback_ident, operations }
    CbCompound4ResHead<'a> { status, tag, results }
    CbSequence4Args { sessionid, sequenceid, slotid, highest_slotid, cachethis, referring_call_lists }
    ReferringCallList4 { sessionid, calls }
    ReferringCall4 { sequenceid, slotid }
    CbSequence4ResOk { sessionid, sequenceid, slotid, highest_slotid, target_highest_slotid }
    CbGetattr4Args<'a> { fh, attr_request }
    CbGetattr4ResOk<'a> { obj_attributes }
    CbRecall4Args<'a> { stateid, truncate, fh }
    CbNotifyLock4Args<'a> { fh, lock_owner }
    CbRecallAny4Args { objects_to_keep, type_mask }
    CbOffload4Args<'a> { fh, stateid, info }
}

choices! {
    ReadPlusContent4<'a> { Data(Data4<'a>), Hole(DataInfo4) }
    Settime4 { SetToServerTime, SetToClientTime(Nfstime4) }
    NfsFtype4 { Reg, Dir, Blk, Chr, Lnk, Sock, Fifo, Attrdir, Namedattr }
    StableHow4 { Unstable, DataSync, FileSync }
    DataContent4 { Data, Hole }
    Netloc4<'a> { Name(Opaque<'a, OPAQUE_LIMIT>), Url(Opaque<'a, OPAQUE_LIMIT>), Netaddr(Netaddr4<'a>) }
    SetxattrOption4 { Either, Create, Replace }
    NfsLockType4 { Read, Write, Readw, Writew }
    Locker4<'a> { Existing(ExistLockOwner4), New(OpenToLockOwner4<'a>) }
    Createtype4<'a> { Blk(Specdata4), Chr(Specdata4), Lnk(Linktext4<'a>) }
    Createhow4<'a> {
        Unchecked(Fattr4<'a>), Guarded(Fattr4<'a>), Exclusive(Verifier4), Exclusive41(Creatverfattr<'a>)
    }
    Openflag4<'a> { Nocreate, Create(Createhow4<'a>) }
    OpenClaim4<'a> {
        Null(Component4<'a>), Previous(u32), DelegateCur(OpenClaimDelegateCur4<'a>),
        DelegatePrev(Component4<'a>), Fh, DelegCurFh(Stateid4), DelegPrevFh
    }
    DelegClaim4 { Previous(u32), Fh, DelegPrevFh }
    NfsSpaceLimit4 { Size(u64), Blocks(NfsModifiedLimit4) }
    OpenNoneDelegation4 { Contention(bool), Resource(bool) }
    OpenDelegation4<'a> {
        None, Read(OpenReadDelegation4<'a>), Write(OpenWriteDelegation4<'a>), NoneExt(OpenNoneDelegation4)
    }
    StateProtect4A<'a> { None, MachCred(StateProtectOps4), Ssv(SsvSpParms4<'a>) }
    StateProtect4R { None, MachCred(StateProtectOps4) }
    CallbackSecParms4<'a> { None, Sys(AuthsysParms<'a>), Gss(GssCbHandles4<'a>) }
    ChannelDirFromClient4 { Fore, Back, ForeOrBoth, BackOrBoth }
    SecinfoStyle4 { CurrentFh, Parent }
    OffloadInfo4 { Done(WriteResponse4) }
    Nfsstat4 {
        Ok, Perm, Noent, Io, Nxio, Access, Exist, Xdev, Notdir, Isdir, Inval, Fbig, Nospc, Rofs, Mlink,
        Nametoolong, Notempty, Dquot, Stale, Badhandle, BadCookie, Notsupp, Toosmall, Serverfault, Badtype,
        Delay, Same, Denied, Expired, Locked, Grace, Fhexpired, ShareDenied, Wrongsec, ClidInuse, Resource,
        Moved, Nofilehandle, MinorVersMismatch, StaleClientid, StaleStateid, OldStateid, BadStateid,
        BadSeqid, NotSame, LockRange, Symlink, Restorefh, LeaseMoved, Attrnotsupp, NoGrace, ReclaimBad,
        ReclaimConflict, Badxdr, LocksHeld, Openmode, Badowner, Badchar, Badname, BadRange, LockNotsupp,
        OpIllegal, Deadlock, FileOpen, AdminRevoked, CbPathDown, Badiomode, Badlayout, BadSessionDigest,
        Badsession, Badslot, CompleteAlready, ConnNotBoundToSession, DelegAlreadyWanted, BackChanBusy,
        Layouttrylater, Layoutunavailable, NomatchingLayout, Recallconflict, UnknownLayouttype,
        SeqMisordered, SequencePos, ReqTooBig, RepTooBig, RepTooBigToCache, RetryUncachedRep, UnsafeCompound,
        TooManyOps, OpNotInSession, HashAlgUnsupp, ClientidBusy, PnfsIoHole, SeqFalseRetry, BadHighSlot,
        Deadsession, EncrAlgUnsupp, PnfsNoLayout, NotOnlyOp, WrongCred, WrongType, DirdelegUnavail,
        RejectDeleg, Returnconflict, DelegRevoked, PartnerNotsupp, PartnerNoAuth, UnionNotsupp,
        OffloadDenied, WrongLfs, Badlabel, OffloadNoReqs, Noxattr, Xattr2big
    }
}

impl<'a> Sample<'a> for Bitmap4 {
    fn sample(from: &mut Source<'a>) -> Self {
        (0..from.below(5)).fold(Self::EMPTY, |mut set, _| {
            set.insert(u32::from(from.any::<[u8; 1]>()[0]));
            set
        })
    }
}
