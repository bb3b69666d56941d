//! LOCK, LOCKT and LOCKU (RFC 8881 sections 18.10 to 18.12).
//!
//! The engine finds conflicts with other clients, the kernel those with local processes.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use proto::nfs4::{
    Lock4Args, Lock4Denied, Locker4, Lockt4Args, Locku4Args, MinorVersion, NfsLockType4, Nfsstat4,
    StateOwner4,
};
use state::{
    ByteRange, ClientId, LockDenied, LockKind, LockOwner, LockRequest, Locker, PendingLock, StateOwner,
};
use store::{FileHandle, FileKind, FileLock, Node, UserContext};
use xdr::{Encode as _, Encoder, Opaque};

use crate::programs::nfs4::context::{Context, Operand};
use crate::programs::nfs4::object::File;
use crate::programs::nfs4::owner_seqid::SeqidRequest;
use crate::programs::nfs4::status::{self, Result};
use crate::service::nfs4_state::lock_file::{LockFile, OwnerLocks, file_lock};
use crate::service::nfs4_state::{StateManager, StateResources};

/// Shared or exclusive, and whether the client waits for the lock.
const fn kind(of: NfsLockType4) -> (LockKind, bool) {
    match of {
        NfsLockType4::Read => (LockKind::Read, false),
        NfsLockType4::Readw => (LockKind::Read, true),
        NfsLockType4::Write => (LockKind::Write, false),
        NfsLockType4::Writew => (LockKind::Write, true),
    }
}

/// The current file, which must be a regular one, and the range of its bytes.
fn target(c: &Context<'_>, offset: u64, length: u64) -> Result<(File, ByteRange)> {
    let file = c.file(Nfsstat4::Isdir)?;
    match file.node.kind() {
        FileKind::Regular => {}
        FileKind::Directory => return Err(Nfsstat4::Isdir),
        _ => return Err(Nfsstat4::Inval),
    }
    Ok((file, ByteRange::of(offset, length).ok_or(Nfsstat4::Inval)?))
}

pub(crate) fn lock(c: &mut Context<'_>, args: Lock4Args<'_>) -> Result<()> {
    let (file, range) = target(c, args.offset, args.length)?;
    let (kind, waits) = kind(args.locktype);
    let locker = match &args.locker {
        Locker4::Existing(existing) => Locker::Existing(c.stateid(existing.lock_stateid)?),
        Locker4::New(new) => {
            Locker::New { open: c.stateid(new.open_stateid)?, owner: new.lock_owner.owner.0 }
        }
    };
    let held = match locker {
        Locker::Existing(id) | Locker::New { open: id, .. } => id,
    };
    let Operand { by, file: key } = c.operand(&held)?;
    if let (Locker4::New(new), MinorVersion::V0) = (&args.locker, c.minor)
        && c.client(new.lock_owner.clientid)? != by.client
    {
        return Err(Nfsstat4::BadStateid);
    }
    let request = LockRequest { by: &by, key: &key, locker, range, kind, reclaim: args.reclaim, waits };
    let pending = match begin(&c.service.state, &request).map_err(status::of_state)? {
        Ok(pending) => pending,
        Err(denied) => return Err(denied_status(c, by.client, &denied)),
    };
    let state = &c.service.state;
    let taken = file.user_context().and_then(|user_context| {
        take_kernel_lock(state, &user_context, &file.node, &pending, &request).map_err(status::of_store)
    });
    match taken {
        Ok(None) => {
            let id = c.service.state.run(|engine, _| engine.lock_done(&pending, range, kind));
            let id = c.set_stateid(id.map_err(status::of_state)?);
            if let (Locker4::New(new), MinorVersion::V0) = (&args.locker, c.minor) {
                let owner = StateOwner::Lock(new.lock_owner.owner.0.to_vec());
                c.service.state.run(|engine, _| engine.start_lock_owner(&by, &owner, new.lock_seqid));
            }
            c.reply.encoder().put(&id);
            Ok(())
        }
        Ok(Some(local)) => {
            c.service.state.run(|engine, now| engine.lock_blocked_locally(now, &pending, &request));
            Err(denied_status(c, by.client, &local))
        }
        Err(error) => {
            c.service.state.run(|engine, _| engine.lock_failed(&pending));
            Err(error)
        }
    }
}

/// The first half of a LOCK, or the conflicting lock. An owner that asks first after a local process has
/// given a lock back doesn't get it before those that have waited for it.
fn begin(
    state: &StateManager,
    request: &LockRequest<'_, FileHandle>,
) -> std::result::Result<std::result::Result<PendingLock<StateResources>, LockDenied>, state::Error> {
    let begun = state.run(|engine, now| {
        let pending = engine.lock_begin(now, request)?;
        Ok(pending.map(|pending| {
            let before = engine.blocked_waiters_before(&pending, request);
            (pending, before)
        }))
    });
    let (pending, before) = match begun? {
        Ok(begun) => begun,
        Err(denied) => return Ok(Err(denied)),
    };
    if before.is_empty() || !state.unblock_waiters(before) {
        return Ok(Ok(pending));
    }
    state.run(|engine, now| {
        engine.lock_failed(&pending);
        engine.lock_begin(now, request)
    })
}

/// Takes the kernel's lock for an owner; the conflicting lock of a local process, if there is one.
fn take_kernel_lock(
    state: &StateManager,
    user_context: &UserContext<'_>,
    node: &Node,
    pending: &PendingLock<StateResources>,
    request: &LockRequest<'_, FileHandle>,
) -> store::Result<Option<LockDenied>> {
    let (range, kind, exclusive) = (request.range, request.kind, request.kind == LockKind::Write);
    let kept = state.kept_locks.get();
    let keep = |file: &OwnedFd| {
        let Some(kept) = kept else { return Ok(None) };
        let stored = kept.keep(state.lock_owner_hash(pending), file);
        // A lock that a crash would release, while its client may reclaim it, isn't given.
        if stored.is_none() && kept.is_marked() { Err(store::Error::TryLater) } else { Ok(stored) }
    };
    let mut locks = pending.file.locks.lock();
    let owner = match &mut *locks {
        Some(owner) => {
            // Its open file is read-only so far.
            if exclusive
                && !owner.is_writable()
                && let (opened, true) = user_context.lock_file(node, true)?
            {
                let stored = keep(&opened)?;
                *owner = owner.moved_to(opened, stored)?;
            }
            owner
        }
        none => {
            if let Some(kept) = kept.filter(|_| request.reclaim) {
                for on in kept.of(state.lock_owner_hash(pending), node.place()?) {
                    let owner = OwnerLocks::new(on);
                    if (!exclusive || owner.is_writable()) && owner.lock(range, kind)?.is_none() {
                        *none = Some(owner);
                        return Ok(None);
                    }
                }
            }
            let on = match pending.write_delegation.as_ref().and_then(|lent| lent.leased_file(kept)) {
                Some(leased) => Arc::clone(leased),
                None => {
                    let (opened, writable) = user_context.lock_file(node, exclusive)?;
                    LockFile::new(Arc::new(opened), writable, None)
                }
            };
            none.insert(OwnerLocks::new(on))
        }
    };
    if let Some(found) = owner.lock(range, kind)? {
        return Ok(Some(local_lock(&found)));
    }
    if let Err(error) = owner.file().keep_with(keep) {
        owner.unlock(range)?;
        return Err(error);
    }
    Ok(None)
}

/// The lock of a local process.
fn local_lock(lock: &FileLock) -> LockDenied {
    LockDenied {
        range: ByteRange { first: lock.first, last: lock.last },
        kind: if lock.exclusive { LockKind::Write } else { LockKind::Read },
        owner: LockOwner { client: ClientId(0), owner: Vec::new() },
    }
}

/// `NFS4ERR_DENIED` with the conflicting lock, but without another client's id: a client that knows it could
/// pose as that one.
fn denied_status(c: &mut Context<'_>, client: ClientId, lock: &LockDenied) -> Nfsstat4 {
    let clientid = if lock.owner.client == client { client.0 } else { 0 };
    let mut body = Encoder::new();
    let locktype = match lock.kind {
        LockKind::Read => NfsLockType4::Read,
        LockKind::Write => NfsLockType4::Write,
    };
    Lock4Denied {
        offset: lock.range.first,
        length: lock.range.length(),
        locktype,
        owner: StateOwner4 { clientid, owner: Opaque(&lock.owner.owner) },
    }
    .encode(&mut body);
    c.failure = body.into_vec();
    Nfsstat4::Denied
}

pub(crate) fn lockt(c: &mut Context<'_>, args: Lockt4Args<'_>) -> Result<()> {
    let (file, range) = target(c, args.offset, args.length)?;
    let (client, key) = (c.client(args.owner.clientid)?, *file.node.handle());
    let (kind, _) = kind(args.locktype);
    let owner = LockOwner { client, owner: args.owner.owner.0.to_vec() };
    let tested = c.service.state.run(|engine, now| engine.lock_test(now, &owner, &key, range, kind));
    let tested = match tested.map_err(status::of_state)? {
        Ok(tested) => tested,
        Err(denied) => return Err(denied_status(c, client, &denied)),
    };
    let user_context = file.user_context()?;
    let lock = file_lock(range, kind);
    let owner = tested.file.as_ref().map(|own| own.locks.lock());
    let found = if let Some(owner) = owner.as_ref().and_then(|locks| locks.as_ref()) {
        owner.file().test(&lock)
    } else if let Some(leased) =
        tested.write_delegation.as_ref().and_then(|lent| lent.leased_file(c.service.state.kept_locks.get()))
    {
        leased.test(&lock)
    } else {
        user_context.lock_file(&file.node, false).and_then(|(opened, _)| store::test_lock(&opened, &lock))
    };
    match found.map_err(status::of_store)? {
        Some(found) => Err(denied_status(c, client, &local_lock(&found))),
        None => Ok(()),
    }
}

/// The owner whose sequence number LOCK carries: the open owner for its first lock, then the lock owner.
pub(crate) fn lock_owner(c: &Context<'_>, args: Lock4Args<'_>) -> Result<SeqidRequest> {
    match args.locker {
        Locker4::New(new) => SeqidRequest::of_stateid(c, new.open_stateid, new.open_seqid),
        Locker4::Existing(existing) => {
            SeqidRequest::of_stateid(c, existing.lock_stateid, existing.lock_seqid)
        }
    }
}

pub(crate) fn locku(c: &mut Context<'_>, args: Locku4Args) -> Result<()> {
    let (_, range) = target(c, args.offset, args.length)?;
    let id = c.stateid(args.lock_stateid)?;
    let Operand { by, file } = c.operand(&id)?;
    let pending = c.service.state.run(|engine, _| engine.unlock_begin(&by, &id, &file, range));
    let pending = pending.map_err(status::of_state)?;
    {
        let mut locks = pending.file.locks.lock();
        if let Some(owner) = locks.as_ref() {
            owner.unlock(range).map_err(status::of_store)?;
        }
        // An open file would keep the client from getting a delegation.
        locks.take_if(|owner| owner.is_empty());
    }
    let id = c.service.state.run(|engine, _| engine.unlock_done(&pending, range));
    let id = c.set_stateid(id.map_err(status::of_state)?);
    c.reply.encoder().put(&id);
    Ok(())
}

/// The owner whose sequence number LOCKU carries.
pub(crate) fn locku_owner(c: &Context<'_>, args: Locku4Args) -> Result<SeqidRequest> {
    SeqidRequest::of_stateid(c, args.lock_stateid, args.seqid)
}
