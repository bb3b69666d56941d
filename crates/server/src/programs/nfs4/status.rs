//! `nfsstat4` for the errors of the store, the engine and the gate.

use proto::nfs4::Nfsstat4;

use crate::authorization::access::Refusal;

/// The outcome of an operation or a part of one.
pub(super) type Result<T> = std::result::Result<T, Nfsstat4>;

/// A store's error.
pub(super) const fn of_store(error: store::Error) -> Nfsstat4 {
    use store::Error;
    match error {
        Error::Stale => Nfsstat4::Stale,
        Error::BadHandle => Nfsstat4::Badhandle,
        Error::NotFound => Nfsstat4::Noent,
        Error::Exists => Nfsstat4::Exist,
        Error::NotDirectory => Nfsstat4::Notdir,
        Error::IsDirectory => Nfsstat4::Isdir,
        Error::NotEmpty => Nfsstat4::Notempty,
        Error::Access | Error::NestedExport(_) => Nfsstat4::Access,
        Error::Permission => Nfsstat4::Perm,
        Error::NameTooLong => Nfsstat4::Nametoolong,
        Error::InvalidName => Nfsstat4::Badname,
        Error::Invalid | Error::NotSync => Nfsstat4::Inval,
        Error::ReadOnly => Nfsstat4::Rofs,
        Error::NoSpace => Nfsstat4::Nospc,
        Error::Quota => Nfsstat4::Dquot,
        Error::FileTooLarge => Nfsstat4::Fbig,
        Error::CrossDevice => Nfsstat4::Xdev,
        Error::TooManyLinks => Nfsstat4::Mlink,
        Error::BadCookie => Nfsstat4::BadCookie,
        Error::NotSupported => Nfsstat4::Notsupp,
        Error::BadType => Nfsstat4::Badtype,
        Error::NoDevice => Nfsstat4::Nxio,
        Error::TryLater | Error::InUse => Nfsstat4::Delay,
        Error::NoAttribute => Nfsstat4::Noxattr,
        Error::TooBig => Nfsstat4::Xattr2big,
        Error::Io(_) => Nfsstat4::Io,
    }
}

/// A store's error at a change of a directory entry. An entry that is in use (a mount point, a swap file)
/// stays so: after NFS4ERR_DELAY the client would try for ever.
pub(super) const fn of_entry(error: store::Error) -> Nfsstat4 {
    match error {
        store::Error::InUse => Nfsstat4::FileOpen,
        other => of_store(other),
    }
}

/// The engine's error.
pub(super) const fn of_state(error: state::Error) -> Nfsstat4 {
    use state::Error;
    match error {
        Error::AdminRevoked => Nfsstat4::AdminRevoked,
        Error::Access => Nfsstat4::Access,
        Error::BadHighSlot => Nfsstat4::BadHighSlot,
        Error::BadSeqid => Nfsstat4::BadSeqid,
        Error::BadSession => Nfsstat4::Badsession,
        Error::BadSlot => Nfsstat4::Badslot,
        Error::BadStateid => Nfsstat4::BadStateid,
        Error::ClidInuse => Nfsstat4::ClidInuse,
        Error::ClientidBusy => Nfsstat4::ClientidBusy,
        Error::CompleteAlready => Nfsstat4::CompleteAlready,
        Error::Delay => Nfsstat4::Delay,
        Error::DelegRevoked => Nfsstat4::DelegRevoked,
        Error::Expired => Nfsstat4::Expired,
        Error::Grace => Nfsstat4::Grace,
        Error::Inval => Nfsstat4::Inval,
        Error::Locked => Nfsstat4::Locked,
        Error::LocksHeld => Nfsstat4::LocksHeld,
        Error::LockRange => Nfsstat4::LockRange,
        Error::Noent => Nfsstat4::Noent,
        Error::Nospc => Nfsstat4::Nospc,
        Error::NoGrace => Nfsstat4::NoGrace,
        Error::NotSame => Nfsstat4::NotSame,
        Error::OldStateid => Nfsstat4::OldStateid,
        Error::Openmode => Nfsstat4::Openmode,
        Error::Perm => Nfsstat4::Perm,
        Error::ReclaimConflict => Nfsstat4::ReclaimConflict,
        Error::ReqTooBig => Nfsstat4::ReqTooBig,
        Error::RetryUncachedRep => Nfsstat4::RetryUncachedRep,
        Error::SeqFalseRetry => Nfsstat4::SeqFalseRetry,
        Error::SeqMisordered => Nfsstat4::SeqMisordered,
        Error::ShareDenied => Nfsstat4::ShareDenied,
        Error::StaleClientid => Nfsstat4::StaleClientid,
        Error::StaleStateid => Nfsstat4::StaleStateid,
        Error::Toosmall => Nfsstat4::Toosmall,
        Error::TooManyOps => Nfsstat4::TooManyOps,
        Error::WrongCred => Nfsstat4::WrongCred,
    }
}

/// A refusal of the gate.
pub(super) const fn of_refusal(refusal: Refusal) -> Nfsstat4 {
    match refusal {
        Refusal::BadHandle => Nfsstat4::Badhandle,
        Refusal::NotExported => Nfsstat4::Stale,
        Refusal::NotKnownYet => Nfsstat4::Delay,
        Refusal::InsecurePort => Nfsstat4::Perm,
        Refusal::OtherUser => Nfsstat4::Access,
        // For the lane only.
        Refusal::NoLane => Nfsstat4::Access,
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn only_an_entry_that_is_in_use_is_refused_for_good() {
        let of = |errno| of_entry(store::Error::from(errno));
        assert_eq!(of(Errno::BUSY), Nfsstat4::FileOpen);
        for shortage in [Errno::MFILE, Errno::NFILE, Errno::NOMEM] {
            assert_eq!(of(shortage), Nfsstat4::Delay, "{shortage}");
        }
    }
}
