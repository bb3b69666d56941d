//! LOCK, LOCKU and LOCKT (RFC 8881 sections 9.6, 18.10 to 18.12).
//!
//! An owner that waits for a lock asks again when the server notifies it (CB_NOTIFY_LOCK), and from time to
//! time in any case: servers need not notify, and a callback may be lost. Under a write delegation this
//! client decides itself, and the server is told when the delegation is returned.

use std::sync::Arc;
use std::time::Duration;

use client_state::{ByteRange, LockAnswer, LockChange, LockError, LockKind, StateError, Tested};
use parking_lot::Mutex;
use proto::nfs4::{
    Lock4Denied, Lockt4Args, NfsLockType4, Nfsstat4, Operation as Op, RESULT_MAY_NOTIFY_LOCK, StateOwner4,
};
use tokio::sync::{Notify, oneshot};
use xdr::Opaque;

use super::Nfs4;
use super::compound::{Compound, malformed, refused};
use super::session::SessionClient;
use super::state::{
    ChangeInFlight, OpenOwner, OwnerOfLocks, StateAnswer, WireOpen, is_gone, lock_owner_name, lock_owner_of,
    lock_request, lock_type, state_status,
};
use crate::error::{Error, Result, Status};
use crate::operations::{LockConflict, LockOwner, LockRequest};
use crate::types::{Handle, Operation};
use crate::user::User;

/// The pause before a waiting owner asks again without a notice. It doubles.
const MIN_POLL: Duration = Duration::from_millis(100);
/// The longest pause, if the server doesn't notify, and if it does. A server forgets waiters that don't ask
/// for the length of a lease.
const MAX_POLL: Duration = Duration::from_secs(1);
const MAX_NOTIFIED_POLL: Duration = Duration::from_secs(10);

/// The pause before a LOCK is sent again that the server delays. It doubles.
const MIN_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// How often a LOCK is sent again because the server doesn't know its state id.
const MAX_ATTEMPTS: u32 = 8;

/// A lock owner with the number of its session.
type SessionLockOwner = (u64, LockOwner);

/// The owners that wait for locks.
#[derive(Debug, Default)]
pub(super) struct LockWaiters {
    waiters: Mutex<Vec<(SessionLockOwner, Arc<Notify>)>>,
}

impl LockWaiters {
    /// CB_NOTIFY_LOCK for the owner with this name.
    pub(super) fn notify(&self, name: &[u8]) {
        let Some(owner) = lock_owner_of(name) else { return };
        let waiters = self.waiters.lock();
        waiters.iter().filter(|(by, _)| *by == owner).for_each(|(_, waiter)| waiter.notify_one());
    }

    fn begin(&self, owner: SessionLockOwner) -> LockWait<'_> {
        let notice = Arc::<Notify>::default();
        self.waiters.lock().push((owner, notice.clone()));
        LockWait { waiters: self, notice }
    }
}

/// An owner's wait for a lock.
struct LockWait<'a> {
    waiters: &'a LockWaiters,
    notice: Arc<Notify>,
}

impl Drop for LockWait<'_> {
    fn drop(&mut self) {
        self.waiters.waiters.lock().retain(|(_, notice)| !Arc::ptr_eq(notice, &self.notice));
    }
}

/// How a LOCK ended.
#[derive(Debug)]
enum Locked {
    Granted,
    Denied,
    /// By this client, which has a write delegation.
    DeniedHere,
    /// The open or the owner's locks have to be had back first.
    StateGone,
}

/// The answer to a LOCK. If its caller stops waiting after the lock was granted, and before it learns of
/// that, an owner's only lock on the file is given back.
struct PendingLock {
    client: Arc<SessionClient>,
    key: (Handle, OwnerOfLocks, ByteRange),
    /// The owner had no locks on the file.
    is_first: bool,
    answer: oneshot::Receiver<Result<Locked>>,
    is_known: bool,
}

impl Drop for PendingLock {
    fn drop(&mut self) {
        self.answer.close();
        if !self.is_known && self.is_first && matches!(self.answer.try_recv(), Ok(Ok(Locked::Granted))) {
            let (file, owner, range) = &self.key;
            self.client.update(|held| held.locks.unlock(file, owner, *range));
        }
    }
}

/// Sends a LOCK until it is answered in a session that hasn't been replaced.
async fn send_lock(
    in_flight: ChangeInFlight,
    change: LockChange<Handle, OwnerOfLocks>,
    waits: bool,
    answer: oneshot::Sender<Result<Locked>>,
) {
    let client = in_flight.client().clone();
    let user = change.owner().through.user().clone();
    let (mut change, mut answer) = (Some(change), Some(answer));
    let mut pause = MIN_PAUSE;
    let request_now = |change: &Option<_>| client.look(|held| lock_request(held, change.as_ref()?, waits));
    loop {
        let Some(request) = request_now(&change) else {
            client.update(|held| {
                let refused = Err(LockError::State(StateError::Refused));
                change.take().into_iter().for_each(|change| held.locks.changed(change, refused));
            });
            answer.take().map(|answer| answer.send(Ok(Locked::StateGone)));
            return;
        };
        user.session.counters.call(Operation::Lock);
        let reply = client.call(&user, &request.compound, None).await;
        let answered = reply.and_then(|reply| Ok((state_status(&reply, Op::Lock)?, reply.session)));
        let ((status, id), session) = match answered {
            Ok(answered) => answered,
            Err(error) => {
                client.update(|held| {
                    let refused = Err(LockError::State(StateError::Refused));
                    change.take().into_iter().for_each(|change| held.locks.changed(change, refused));
                });
                answer.take().map(|answer| answer.send(Err(error)));
                return;
            }
        };
        client.free_if_revoked(request.names, status);
        if is_gone(status) && request_now(&change).as_ref() != Some(&request) {
            // The request was made before the server restarted, and names state from then.
            continue;
        }
        let (result, locked) = match StateAnswer::of(status) {
            StateAnswer::Delayed => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(MAX_PAUSE);
                continue;
            }
            StateAnswer::Ok => (Ok(id), Ok(Locked::Granted)),
            StateAnswer::Denied => (Err(LockError::Denied), Ok(Locked::Denied)),
            StateAnswer::Failed(StateError::Gone) => (Err(StateError::Gone.into()), Ok(Locked::StateGone)),
            StateAnswer::Failed(error) => (Err(error.into()), Err(refused(Op::Lock, status))),
        };
        let mut locked = Some(locked);
        let adopted = client.update_in(session, |held| {
            let (Some(change), Some(answer)) = (change.take(), answer.take()) else { return };
            let open = held.opens.io_id_of(change.file(), &change.owner().through, 0).ok().flatten();
            if result == Err(LockError::State(StateError::Gone))
                && let Some(open) = open
                && held.locks.io_id(change.file(), change.owner()).is_none()
            {
                // The owner's first lock: it is the open that the server doesn't know.
                held.opens.gone(change.file(), &change.owner().through, open);
            }
            let is_awaited = locked.take().is_some_and(|locked| answer.send(locked).is_ok());
            match result {
                Ok(Some(id)) if !is_awaited => held.locks.given_up(change, id),
                result => held.locks.changed(change, result),
            }
            held.check_lost();
        });
        if adopted.is_some() {
            return;
        }
    }
}

impl SessionClient {
    /// Locks a range for an owner, as soon as it can be had if the request waits. The client may ask for a
    /// delegation before if it `may_ask`.
    async fn lock_range(
        self: &Arc<Self>,
        user: &User,
        (file, open): (&Handle, &WireOpen),
        request: LockRequest,
        mut may_ask: bool,
    ) -> Result<()> {
        let LockRequest { owner, range, kind, waits } = request;
        let owner = OwnerOfLocks { owner, through: OpenOwner::new(user) };
        let wait = self.lock_waiters().begin((user.session.number, owner.owner));
        let longest = if open.flags & RESULT_MAY_NOTIFY_LOCK == 0 { MAX_POLL } else { MAX_NOTIFIED_POLL };
        let (mut poll, mut attempts) = (MIN_POLL, 0);
        loop {
            // A LOCK names an open that the server holds.
            self.return_delegation_unless_for_writing(file).await;
            // Waits for the recovery of the open, too.
            if self.io_id(user, file, 0).await?.is_none() {
                return Err(refused(Op::Lock, Nfsstat4::Openmode));
            }
            if std::mem::take(&mut may_ask) && self.with_held(|held| held.is_delegation_due(file)) {
                self.ask_for_delegation(file, &owner.through).await;
                continue;
            }
            let changed = self.state.changed.notified();
            let (is_first, asked) = self.ask_for_lock(file, &owner, (range, kind), open.number);
            let locked = match asked {
                LockAnswer::Granted => Locked::Granted,
                LockAnswer::Denied => Locked::DeniedHere,
                LockAnswer::Busy => {
                    changed.await;
                    continue;
                }
                LockAnswer::Ask(change) => {
                    let (answer, receiver) = oneshot::channel();
                    drop(self.spawn(send_lock(ChangeInFlight::new(self), change, waits, answer)));
                    let mut pending = PendingLock {
                        client: self.clone(),
                        key: (file.clone(), owner.clone(), range),
                        is_first,
                        answer: receiver,
                        is_known: false,
                    };
                    let answered = (&mut pending.answer).await;
                    pending.is_known = true;
                    answered.map_err(|_| malformed(Op::Lock.name()))??
                }
            };
            match locked {
                Locked::Granted => return Ok(()),
                Locked::StateGone => {
                    attempts += 1;
                    if attempts == MAX_ATTEMPTS {
                        return Err(refused(Op::Lock, Nfsstat4::BadStateid));
                    }
                }
                // Other owners of this client unlock without a notice.
                Locked::DeniedHere if waits => {
                    let _ = tokio::time::timeout(MAX_POLL, changed).await;
                }
                Locked::Denied if waits => {
                    // An error means that it is time.
                    let _ = tokio::time::timeout(poll, wait.notice.notified()).await;
                    poll = (poll * 2).min(longest);
                }
                Locked::Denied | Locked::DeniedHere => {
                    return Err(Error::Status { object: "LOCK".to_owned(), status: Status::Locked });
                }
            }
        }
    }

    /// Waits until no request about an owner's locks on a file is on its way that nothing else waits for.
    async fn locks_settled(&self, file: &Handle, owner: &OwnerOfLocks) {
        loop {
            let changed = self.state.changed.notified();
            if self.look(|held| held.locks.is_settled_for(file, owner)) {
                return;
            }
            changed.await;
        }
    }
}

impl Nfs4 {
    pub(super) async fn lock_file(
        &self,
        user: &User,
        file: &Handle,
        open: &WireOpen,
        request: LockRequest,
    ) -> Result<()> {
        self.client.lock_range(user, (file, open), request, self.wants_delegations).await
    }

    pub(super) async fn unlock_file(
        &self,
        user: &User,
        file: &Handle,
        owner: LockOwner,
        range: Option<ByteRange>,
    ) {
        let owner = OwnerOfLocks { owner, through: OpenOwner::new(user) };
        if self.client.look(|held| held.locks.is_unknown(file, &owner)) {
            return;
        }
        self.client.update(|held| match range {
            Some(range) => {
                held.locks.unlock(file, &owner, range);
                held.check_lost();
            }
            None => held.release(file, &owner),
        });
        self.client.locks_settled(file, &owner).await;
    }

    /// Finds the lock that conflicts, here or by LOCKT.
    pub(super) async fn test_lock_file(
        &self,
        user: &User,
        file: &Handle,
        owner: LockOwner,
        (range, kind): (ByteRange, LockKind),
    ) -> Result<Option<LockConflict>> {
        let by = OwnerOfLocks { owner, through: OpenOwner::new(user) };
        loop {
            let changed = self.client.state.changed.notified();
            match self.client.look(|held| held.locks.test(file, &by, range, kind)) {
                Tested::Conflict(range, kind) => return Ok(Some(LockConflict { range, kind })),
                Tested::Free if self.client.is_delegated_for_writing(file) => return Ok(None),
                Tested::Busy => changed.await,
                Tested::Free | Tested::Server => break,
            }
        }
        let name = lock_owner_name(user.session.number, owner);
        let args = Lockt4Args {
            locktype: lock_type(kind, false),
            offset: range.first,
            length: range.length(),
            owner: StateOwner4 { clientid: 0, owner: Opaque(&name) },
        };
        user.session.counters.call(Operation::Lock);
        let compound = Compound::new().put_fh(file).then(Op::Lockt, &args);
        let reply = self.client.call(user, &compound, None).await?;
        let mut results = reply.results()?;
        results.succeeded(Op::Putfh)?;
        match results.status(Op::Lockt)? {
            Nfsstat4::Ok => Ok(None),
            Nfsstat4::Denied => {
                let denied: Lock4Denied<'_> = results.value(Op::Lockt)?;
                let range = ByteRange::of(denied.offset, denied.length);
                let kind = match denied.locktype {
                    NfsLockType4::Read | NfsLockType4::Readw => LockKind::Read,
                    NfsLockType4::Write | NfsLockType4::Writew => LockKind::Write,
                };
                let range = range.ok_or_else(|| malformed(Op::Lockt.name()))?;
                Ok(Some(LockConflict { range, kind }))
            }
            status => Err(refused(Op::Lockt, status)),
        }
    }
}
