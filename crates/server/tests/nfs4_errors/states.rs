//! Errors of opens and locks.

use super::*;

/// Opens and locks.
pub fn states(b: &mut Bench, rival: &mut Session, root: &[u8], file: &[u8], clientid: u64) {
    let claim = || OpenClaim4::Null(Opaque(b"f"));
    for (op, args) in [
        (Op::Read, encoded(&read(BAD))),
        (Op::ReadPlus, encoded(&read(BAD))),
        (Op::Write, encoded(&write(BAD))),
        (Op::Allocate, encoded(&range(BAD, 1))),
        (Op::Deallocate, encoded(&range(BAD, 1))),
        (Op::Seek, encoded(&seek(BAD, 0, 0))),
        (Op::IoAdvise, encoded(&IoAdvise4Args { stateid: BAD, offset: 0, count: 0, hints: Bitmap4::EMPTY })),
        (Op::Close, encoded(&Close4Args { seqid: 0, open_stateid: BAD })),
        (
            Op::OpenDowngrade,
            encoded(&OpenDowngrade4Args { open_stateid: BAD, seqid: 0, share_access: 1, share_deny: 0 }),
        ),
        (Op::Lock, encoded(&lock(BAD, b"o", clientid, 1, false))),
        (Op::OffloadStatus, encoded(&Stateid4Args { stateid: BAD })),
        (Op::OffloadCancel, encoded(&Stateid4Args { stateid: BAD })),
        (Op::Delegreturn, encoded(&Stateid4Args { stateid: BAD })),
    ] {
        b.fails(&[(Op::Putfh, encoded(&Putfh4Args { object: Opaque(file) }))], op, &args, S::BadStateid);
    }
    b.fails(&[], Op::FreeStateid, &encoded(&Stateid4Args { stateid: BAD }), S::BadStateid);
    b.between(file, file, Op::Copy, &copy(BAD, ANY, 0), S::BadStateid);
    b.between(file, file, Op::Clone, &clone(BAD, ANY), S::BadStateid);
    // After the upgrade to both accesses the first state id is old.
    let (first, _) = b.session.open_shared(root, claim(), false, SHARE_ACCESS_READ, 0).unwrap();
    b.at(file, Op::Write, &write(first), S::Openmode);
    b.at(file, Op::Allocate, &range(first, 1), S::Openmode);
    b.at(file, Op::Deallocate, &range(first, 1), S::Openmode);
    b.between(file, file, Op::Copy, &copy(ANY, first, 0), S::Openmode);
    b.between(file, file, Op::Clone, &clone(ANY, first), S::Openmode);
    b.at(
        file,
        Op::Setattr,
        &Setattr4Args { stateid: first, obj_attributes: one(attributes::SIZE, &1_u64.to_be_bytes()) },
        S::Openmode,
    );
    b.at(file, Op::Lock, &lock(first, b"o", clientid, 1, false), S::Openmode);
    let (second, _) = b.session.open_shared(root, claim(), false, SHARE_ACCESS_BOTH, 0).unwrap();
    for (op, args) in [
        (Op::Read, encoded(&read(first))),
        (Op::ReadPlus, encoded(&read(first))),
        (Op::Write, encoded(&write(first))),
        (Op::Seek, encoded(&seek(first, 0, 0))),
        (Op::Close, encoded(&Close4Args { seqid: 0, open_stateid: first })),
        (
            Op::OpenDowngrade,
            encoded(&OpenDowngrade4Args { open_stateid: first, seqid: 0, share_access: 1, share_deny: 0 }),
        ),
        (Op::Lock, encoded(&lock(first, b"o", clientid, 1, false))),
    ] {
        b.fails(&[(Op::Putfh, encoded(&Putfh4Args { object: Opaque(file) }))], op, &args, S::OldStateid);
    }
    b.fails(&[], Op::FreeStateid, &encoded(&Stateid4Args { stateid: second }), S::LocksHeld);
    b.at(file, Op::OpenDowngrade, &downgrade(second, 3), S::Inval);
    // A reclaim after the grace period.
    b.at(file, Op::Open, &open(clientid, OpenClaim4::Previous(0), Openflag4::Nocreate), S::NoGrace);
    b.at(file, Op::Lock, &lock(second, b"o", clientid, 1, true), S::NoGrace);
    b.at(file, Op::WantDelegation, &want(SHARE_ACCESS_WANT_READ_DELEG, DelegClaim4::Previous(1)), S::NoGrace);
    b.at(file, Op::WantDelegation, &want(SHARE_ACCESS_WANT_READ_DELEG, DelegClaim4::DelegPrevFh), S::Notsupp);
    b.at(file, Op::WantDelegation, &want(SHARE_ACCESS_WANT_NO_DELEG, DelegClaim4::Fh), S::Inval);
    b.at(root, Op::WantDelegation, &want(SHARE_ACCESS_WANT_READ_DELEG, DelegClaim4::Fh), S::WrongType);
    b.at(file, Op::Lock, &lock(second, b"o", clientid, 0, false), S::Inval);
    // Another client has locked the file, and denies access to it.
    let (theirs, _) = rival.open_shared(root, claim(), false, SHARE_ACCESS_BOTH, 0).unwrap();
    rival.lock(file, theirs, false).unwrap();
    b.at(file, Op::Lock, &lock(second, b"o", clientid, 1, false), S::Denied);
    b.at(file, Op::Lockt, &lockt(clientid, 1), S::Denied);
    b.at(file, Op::Lockt, &lockt(clientid, 0), S::Inval);
    b.at(file, Op::Locku, &locku(BAD, 1), S::BadStateid);
    let ours = {
        b.session.on(root, Op::Open, &open(clientid, OpenClaim4::Null(Opaque(b"g")), Openflag4::Nocreate));
        let g = b.session.lookup(root, b"g").unwrap();
        let (id, _) = b.session.open(root, OpenClaim4::Null(Opaque(b"g")), false).unwrap();
        let lock = b.session.lock(&g, id, false).unwrap();
        b.at(&g, Op::Locku, &locku(lock, 0), S::Inval);
        lock
    };
    b.fails(&[], Op::FreeStateid, &encoded(&Stateid4Args { stateid: ours }), S::LocksHeld);
    let deny = Open4Args { share_deny: 2, ..open(clientid, claim(), Openflag4::Nocreate) };
    b.at(root, Op::Open, &deny, S::ShareDenied);
    let delegation = OpenClaim4::DelegCurFh(BAD);
    b.at(file, Op::Open, &open(clientid, delegation, Openflag4::Nocreate), S::BadStateid);
    for (op, args) in [
        (Op::Lock, encoded(&lock(second, b"o", clientid, 1, false))),
        (Op::Lockt, encoded(&lockt(clientid, 1))),
        (Op::Locku, encoded(&locku(second, 1))),
    ] {
        b.fails(&[(Op::Putfh, encoded(&Putfh4Args { object: Opaque(root) }))], op, &args, S::Isdir);
    }
    let directory = b.session.lookup(root, b"d").unwrap();
    let inner = OpenClaim4::Null(Opaque(b"inner"));
    let (_, denied) = rival.open_shared(&directory, inner, false, SHARE_ACCESS_READ, 3).unwrap();
    b.at(&denied, Op::Read, &read(ANY), S::Locked);
    b.at(&denied, Op::Write, &write(ANY), S::Locked);
    b.at(&denied, Op::Setattr, &setattr(one(attributes::SIZE, &1_u64.to_be_bytes())), S::Locked);
    let nonsense = Open4Args { share_access: 0, ..open(clientid, claim(), Openflag4::Nocreate) };
    b.at(root, Op::Open, &nonsense, S::Inval);
}
