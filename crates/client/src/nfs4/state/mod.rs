//! The opens and locks that a client has at its server, and the requests that keep them as they should be.
//!
//! [`client_state::Opens`] and [`client_state::Locks`] decide. Each change of them goes through
//! [`SessionClient::update`], which sends the requests that follow from it: a task for each, except for
//! CLOSEs, of which one request has several (`closes`), and for reclaims, which the state manager's step
//! takes (`recovery`).
//!
//! Invariant: an answer is believed only if its session hasn't been replaced since
//! ([`SessionClient::update_in`]). It may be about state that the server has lost with the client id.

mod closes;
mod owners;
mod recovery;
mod requests;
mod revoked;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::{Duration, Instant};

use client_state::{
    ByteRange, Delegations, LockAnswer, LockChange, LockKind, Locks, NoState, OpenChange, OpenChangeRequest,
    OpenRef, Opens, StateError, StateId,
};
use parking_lot::Mutex;
use proto::nfs4::RESULT_PRESERVE_UNLINKED;
use tokio::sync::Notify;

use super::compound::Compound;
use super::delegated_files::DelegatedFiles;
use super::delegation::{self, OpenedFile};
use super::rewritten_files::RewrittenFiles;
use super::session::SessionClient;
use crate::error::{Error, Result, Status};
use crate::operations::LockOwner;
use crate::types::{Handle, Operation};
use crate::user::User;

pub(super) use closes::ClosesAlong;
use closes::QueuedCloses;
pub(super) use owners::{OpenOwner, OwnerOfLocks, lock_owner_name, lock_owner_of};
use recovery::Reclaim;
pub(super) use requests::{
    ANONYMOUS, CURRENT, StateAnswer, StateRequest, is_gone, lock_request, lock_type, open_args, state_id,
    state_status, stateid,
};
use requests::{lock_result, open_change, open_result};

/// The pause before a request is sent again that the server delays. It doubles.
const MIN_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// How long the end of a session waits for the requests that are on their way.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// The names of a path in a log line.
const MAX_LOGGED_NAMES: usize = 32;

/// The access bits of an open: `OPEN4_SHARE_ACCESS_READ` and `OPEN4_SHARE_ACCESS_WRITE`.
pub(super) const READ_ACCESS: u8 = 1;
pub(super) const WRITE_ACCESS: u8 = 2;

/// What the client has at the server.
#[derive(Debug, Default)]
pub(super) struct HeldState {
    pub(super) opens: Opens<Handle, OpenOwner>,
    pub(super) locks: Locks<Handle, OwnerOfLocks>,
    pub(super) delegations: Delegations<Handle>,
    /// The files whose delegations aren't recalled.
    pub(super) delegated: DelegatedFiles,
    /// The files that may be worth a write delegation.
    pub(super) rewritten: RewrittenFiles,
    /// The server has given a read delegation where a write delegation was wanted: it has none of these.
    pub(super) lacks_write_delegations: bool,
    /// The OPENs on their way, and the delegations that were recalled before the replies to them came.
    pub(super) openings: usize,
    pub(super) early_recalls: Vec<StateId>,
    /// Counts the beginnings and ends of the client's changes of files' attributes.
    pub(super) attribute_changes: u64,
    /// The number of the [`WireOpen`] through which a lock owner has locked something in a file last.
    pub(super) locked_through: BTreeMap<(Handle, OwnerOfLocks), u64>,
    /// Opens that are closed once the file's locks are free. The last of those that are alike waits for all.
    closing: Vec<OpenRef<Handle, OpenOwner>>,
    /// The CLOSEs to be sent.
    closes: QueuedCloses,
    /// The files with lock owners that have lost their locks.
    lost_locks: BTreeSet<(Handle, OwnerOfLocks)>,
    /// The revoked states that are being freed, without `seqid`.
    freeing: BTreeSet<[u8; 12]>,
    /// The reclaims to be sent.
    reclaims: Vec<Reclaim>,
    /// The number of the loss that is being recovered from, and whether that is at the locks.
    recovery: Option<(u64, bool)>,
    last_number: u64,
}

/// The client's state, and its waiters.
#[derive(Debug, Default)]
pub(super) struct ClientState {
    held: Mutex<HeldState>,
    /// Told after each change.
    pub(super) changed: Notify,
    /// Told when queued CLOSEs must not wait any longer.
    close_now: Notify,
    /// The tasks that send changes.
    in_flight: AtomicUsize,
    /// Whether a lock owner has lost its locks on a file.
    has_lost: AtomicBool,
}

/// A file's name for a log line.
fn shown(file: &Handle) -> String {
    let mut names = Vec::new();
    let mut at = file.clone();
    while let Some((directory, name)) = at.place().filter(|_| names.len() < MAX_LOGGED_NAMES) {
        names.push(String::from_utf8_lossy(&name).into_owned());
        at = directory;
    }
    names.reverse();
    if names.is_empty() { format!("{file:?}") } else { names.join("/") }
}

impl HeldState {
    /// A number for a [`WireOpen`].
    pub(super) fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// The file is closed: the owners that have locked something through this open lose their locks, as at
    /// the close(2) of a local file.
    fn close(&mut self, open: OpenRef<Handle, OpenOwner>, number: u64) {
        let through = self.locked_through.iter().filter(|(_, through)| **through == number);
        let owners: Vec<_> = through.map(|(key, _)| key.clone()).collect();
        for (file, owner) in owners {
            self.release(&file, &owner);
        }
        // Only the last of those that are alike gives up anything at the server. If all of them waited, there
        // would be ever more while some process holds a lock on the file.
        if self.opens.is_repeated(&open) { self.opens.close(open) } else { self.closing.push(open) }
    }

    /// A lock owner has no locks on a file any more.
    pub(super) fn release(&mut self, file: &Handle, owner: &OwnerOfLocks) {
        if self.locked_through.remove(&(file.clone(), owner.clone())).is_some() {
            owner.lockers().fetch_sub(1, Relaxed);
        }
        self.locks.release(file, owner);
        self.check_lost();
    }

    /// Forgets the lost locks of owners that have unlocked something or ended.
    pub(super) fn check_lost(&mut self) {
        let locks = &self.locks;
        self.lost_locks.retain(|(file, owner)| locks.is_lost(file, owner));
    }

    /// Closes what waits for locks only.
    fn close_free(&mut self) {
        if self.closing.is_empty() {
            return;
        }
        let (opens, locks) = (&mut self.opens, &self.locks);
        let closing = std::mem::take(&mut self.closing);
        for open in closing {
            let session = open.owner().session();
            let first = OwnerOfLocks { owner: LockOwner(0), through: open.owner().clone() };
            let is_free = locks.are_free(open.file(), first, |by| by.through.session() == session);
            if is_free { opens.close(open) } else { self.closing.push(open) }
        }
    }

    /// The state id for I/O of an open owner that needs `access`. If its lock owners have locked something in
    /// the file it is one of theirs, so that the server refuses the I/O once the lock is lost (RFC 8881
    /// section 8.2.5).
    fn io_id(&self, file: &Handle, owner: &OpenOwner, access: u8) -> Result<Option<StateId>, NoState> {
        let open = self.opens.io_id_of(file, owner, access)?;
        Ok(open.map(|open| self.lock_ids(file, owner).next().map_or(open, |(_, id)| id)))
    }

    /// The lock owners that have locked something in a file through the opens of `owner`, and their state
    /// ids.
    fn lock_ids<'a>(
        &'a self,
        file: &'a Handle,
        owner: &'a OpenOwner,
    ) -> impl Iterator<Item = (&'a OwnerOfLocks, StateId)> {
        let first = (!self.locked_through.is_empty())
            .then(|| (file.clone(), OwnerOfLocks { owner: LockOwner(0), through: owner.clone() }));
        let behind = first.into_iter().flat_map(|first| self.locked_through.range(first..));
        behind
            .map(|((on, by), _)| (on, by))
            .take_while(move |(on, _)| *on == file)
            .filter(move |(_, by)| by.through == *owner)
            .filter_map(|(on, by)| Some((by, self.locks.io_id(on, by)?)))
    }

    /// The server doesn't know the state id of an I/O request.
    fn io_id_gone(&mut self, file: &Handle, owner: &OpenOwner, id: StateId) {
        self.opens.gone(file, owner, id);
        let locker = self.lock_ids(file, owner).find(|(_, held)| *held == id).map(|(by, _)| by.clone());
        if let Some(locker) = locker {
            self.locks.gone(file, &locker, id);
        }
        self.delegation_gone(file, id);
    }

    /// Whether a lock owner of the session with this number has lost its locks on a file.
    pub(super) fn has_lost_locks(&self, file: &Handle, session: u64) -> bool {
        let is_lost = |(on, by): &(Handle, OwnerOfLocks)| on == file && by.through.session() == session;
        !self.lost_locks.is_empty() && self.lost_locks.iter().any(is_lost)
    }
}

/// A change to send.
enum StateChange {
    Open(OpenChange<Handle, OpenOwner>),
    Lock(LockChange<Handle, OwnerOfLocks>),
    Return(Handle, StateId),
}

/// An open that the server holds for a user, until this is dropped.
#[derive(Debug)]
pub(crate) struct WireOpen {
    client: Arc<SessionClient>,
    open: Option<OpenRef<Handle, OpenOwner>>,
    pub(super) number: u64,
    /// `OPEN4_RESULT_` flags.
    pub(super) flags: u32,
}

impl WireOpen {
    pub(super) fn new(
        client: &Arc<SessionClient>,
        open: OpenRef<Handle, OpenOwner>,
        number: u64,
        flags: u32,
    ) -> Self {
        Self { client: client.clone(), open: Some(open), number, flags }
    }

    /// Whether the server has promised to keep the file while it is open, also without a name.
    pub(crate) const fn outlives_its_name(&self) -> bool {
        self.flags & RESULT_PRESERVE_UNLINKED != 0
    }
}

impl Drop for WireOpen {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            self.client.update(|held| held.close(open, self.number));
        }
    }
}

/// Counts a task that sends a change.
pub(super) struct ChangeInFlight(Arc<SessionClient>);

impl ChangeInFlight {
    pub(super) const fn client(&self) -> &Arc<SessionClient> {
        &self.0
    }

    pub(super) fn new(client: &Arc<SessionClient>) -> Self {
        client.state.in_flight.fetch_add(1, AcqRel);
        Self(client.clone())
    }
}

impl Drop for ChangeInFlight {
    fn drop(&mut self) {
        self.0.state.in_flight.fetch_sub(1, AcqRel);
        self.0.state.changed.notify_waiters();
    }
}

impl SessionClient {
    /// Looks at the state.
    pub(super) fn look<T>(&self, look: impl FnOnce(&HeldState) -> T) -> T {
        look(&self.state.held.lock())
    }

    /// Looks at the state, and changes what no request follows from.
    pub(super) fn with_held<T>(&self, f: impl FnOnce(&mut HeldState) -> T) -> T {
        f(&mut self.state.held.lock())
    }

    /// An owner asks for a lock through the open with this number. Returns whether it had none on the file.
    pub(super) fn ask_for_lock(
        &self,
        file: &Handle,
        owner: &OwnerOfLocks,
        (range, kind): (ByteRange, LockKind),
        through: u64,
    ) -> (bool, LockAnswer<Handle, OwnerOfLocks>) {
        let mut held = self.state.held.lock();
        if held.locked_through.insert((file.clone(), owner.clone()), through).is_none() {
            owner.lockers().fetch_add(1, Relaxed);
        }
        let is_first = held.locks.is_free(file, owner);
        (is_first, held.locks.lock(file.clone(), owner.clone(), range, kind))
    }

    /// Changes the state, and sends what follows from it.
    pub(super) fn update<T>(self: &Arc<Self>, update: impl FnOnce(&mut HeldState) -> T) -> T {
        self.update_but_return(None, update).0
    }

    /// As [`SessionClient::update`]. If the delegation of `file` can be returned now, that is left to the
    /// caller.
    pub(super) fn update_but_return<T>(
        self: &Arc<Self>,
        file: Option<&Handle>,
        update: impl FnOnce(&mut HeldState) -> T,
    ) -> (T, Option<StateId>) {
        let mut left_to_caller = None;
        let mut changes = Vec::new();
        let mut begins_closing = false;
        let mut held = self.state.held.lock();
        let result = update(&mut held);
        held.close_free();
        // First: where the opens are told, the locks follow.
        let HeldState { delegations, opens, locks, .. } = &mut *held;
        let returns = delegations.take_returns(opens, locks);
        for (returned, id) in returns {
            if file == Some(&returned) {
                left_to_caller = Some(id);
            } else {
                changes.push(StateChange::Return(returned, id));
            }
        }
        for change in held.opens.take_changes() {
            if change.is_reclaim() {
                held.reclaims.push(Reclaim::Open(change));
            } else if matches!(change.request(), OpenChangeRequest::Close { .. }) {
                begins_closing |= held.closes.push(change, tokio::time::Instant::now());
            } else {
                changes.push(StateChange::Open(change));
            }
        }
        for change in held.locks.take_changes() {
            if change.is_reclaim() {
                held.reclaims.push(Reclaim::Lock(change));
            } else {
                changes.push(StateChange::Lock(change));
            }
        }
        let enough_to_close = held.closes.is_full();
        let (lost_opens, lost_locks) = (held.opens.take_lost(), held.locks.take_lost());
        held.lost_locks.extend(lost_locks.iter().cloned());
        self.state.has_lost.store(!held.lost_locks.is_empty(), Relaxed);
        drop(held);
        for lost in lost_opens {
            let file = shown(&lost.file);
            tracing::warn!(server = %self.address(), file, "an open is lost: reads and writes fail with EIO");
        }
        for (file, _) in lost_locks {
            let file = shown(&file);
            tracing::warn!(
                server = %self.address(),
                file,
                "locks are lost: reads and writes fail with EIO until they are unlocked, except for those \
                 that the kernel passes through"
            );
        }
        if enough_to_close {
            self.state.close_now.notify_one();
        }
        if begins_closing {
            self.spawn(closes::send_closes(ChangeInFlight::new(self)));
        }
        for change in changes {
            let in_flight = ChangeInFlight::new(self);
            match change {
                StateChange::Open(change) => drop(self.spawn(send_open_change(in_flight, change))),
                StateChange::Lock(change) => drop(self.spawn(send_lock_change(in_flight, change))),
                StateChange::Return(file, id) => {
                    drop(self.spawn(delegation::send_return(in_flight, file, id)));
                }
            }
        }
        self.state.changed.notify_waiters();
        (result, left_to_caller)
    }

    /// As [`SessionClient::update`], by an answer in the session with this number. `None` if that was
    /// replaced.
    pub(super) fn update_in<T>(
        self: &Arc<Self>,
        session: u64,
        update: impl FnOnce(&mut HeldState) -> T,
    ) -> Option<T> {
        self.while_current(session, || self.update(update))
    }

    /// An open by an answer in the session with this number. `None` if that was replaced; `opening` is given
    /// back then.
    pub(super) fn opened(
        self: &Arc<Self>,
        session: u64,
        opening: &mut Option<client_state::Opening<OpenOwner>>,
        file: &Handle,
        opened: &OpenedFile,
    ) -> Option<WireOpen> {
        let (open, number) = self.update_in(session, |held| {
            let opening = opening.take()?;
            let owner = opening.owner().clone();
            let open = held.opens.opened(opening, file.clone(), opened.share, opened.id);
            held.note_delegation(file, &owner, opened);
            Some((open, held.next_number()))
        })??;
        Some(WireOpen::new(self, open, number, opened.flags))
    }

    /// The state id for I/O of a user that needs `access`, as soon as it is known. `None`: the user hasn't
    /// opened the file for that.
    ///
    /// # Errors
    /// [`Status::Io`] if the open or locks on the file are lost. A soft client's timeout, if they are
    /// being recovered.
    pub(super) async fn io_id(&self, user: &User, file: &Handle, access: u8) -> Result<Option<StateId>> {
        let owner = OpenOwner::new(user);
        let mut started = None;
        loop {
            let changed = self.state.changed.notified();
            let id = self.look(|held| match held.has_lost_locks(file, owner.session()) {
                true => Err(NoState::Lost),
                false => held.io_id(file, &owner, access),
            });
            match id {
                Ok(id) => return Ok(id),
                Err(NoState::Recovering) => {
                    let started = *started.get_or_insert_with(Instant::now);
                    self.within(started, changed).await?;
                }
                Err(NoState::Lost) => {
                    return Err(Error::Status { object: shown(file), status: Status::Io });
                }
            }
        }
    }

    /// Whether a session may read and write a file without the server, as far as its locks on it are
    /// concerned: it has them for certain, or none. Otherwise the server knows whether they are lost.
    pub(super) fn has_locks_for_certain(&self, file: &Handle, session: u64) -> bool {
        let is_lease_valid = self.was_lease_valid();
        if is_lease_valid && !self.state.has_lost.load(Relaxed) {
            return true;
        }
        self.look(|held| {
            let is_locker = |(on, by): &(Handle, OwnerOfLocks)| on == file && by.through.session() == session;
            let is_certain = is_lease_valid || !held.locked_through.keys().any(is_locker);
            is_certain && !held.has_lost_locks(file, session)
        })
    }

    /// The server doesn't know the state id of an I/O request.
    pub(super) fn io_id_gone(self: &Arc<Self>, user: &User, file: &Handle, id: StateId) {
        let owner = OpenOwner::new(user);
        self.update(|held| held.io_id_gone(file, &owner, id));
    }

    /// Waits until no change is on its way, for a limited time.
    pub(super) async fn changes_sent(&self) {
        let sent = async {
            loop {
                let changed = self.state.changed.notified();
                self.close_now();
                if self.state.in_flight.load(Acquire) == 0 {
                    return;
                }
                changed.await;
            }
        };
        // Without an answer the server keeps the state until the lease expires.
        let _ = tokio::time::timeout(END_TIMEOUT, sent).await;
    }
}

/// Sends a request until it isn't delayed and its session isn't replaced, and reports the answer.
pub(super) async fn send_until_answered<T>(
    client: &Arc<SessionClient>,
    user: &User,
    mut request: impl FnMut() -> Option<StateRequest>,
    result: impl Fn((StateAnswer, Option<StateId>)) -> Option<T>,
    mut report: impl FnMut(&mut HeldState, Option<T>),
) {
    let started = Instant::now();
    let mut pause = MIN_PAUSE;
    loop {
        let Some(StateRequest { operation, compound, names }) = request() else {
            client.update(|held| report(held, None));
            return;
        };
        let answer = match client.call(user, &compound, None).await {
            Ok(reply) => state_status(&reply, operation).map(|answer| (answer, reply.session)),
            Err(error) => Err(error),
        };
        match answer {
            Ok(((status, id), session)) => {
                client.free_if_revoked(names, status);
                match result((StateAnswer::of(status), id)) {
                    Some(answer) => {
                        let mut answer = Some(answer);
                        if client.update_in(session, |held| report(held, answer.take())).is_some() {
                            return;
                        }
                    }
                    None => {
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(MAX_PAUSE);
                    }
                }
            }
            Err(error) => {
                let after = started.elapsed();
                tracing::debug!(%error, ?after, "a change of an open or a lock isn't answered");
                client.update(|held| report(held, None));
                return;
            }
        }
    }
}

/// OPEN or OPEN_DOWNGRADE.
async fn send_open_change(in_flight: ChangeInFlight, change: OpenChange<Handle, OpenOwner>) {
    let client = in_flight.0.clone();
    let is_open = matches!(change.request(), OpenChangeRequest::Open { .. });
    if client.is_ended() && !is_open {
        // A further request would begin another client id, which has nothing to downgrade.
        client.update(|held| held.opens.changed(change, Err(StateError::Gone)));
        return;
    }
    let owner = change.owner().clone();
    owner.user().session.counters.call(if is_open { Operation::Open } else { Operation::Close });
    let change = Mutex::new(Some(change));
    send_until_answered(
        &client,
        owner.user(),
        || Some(open_change(Compound::once(), change.lock().as_ref()?)),
        open_result,
        |held, result| {
            if let Some(change) = change.lock().take() {
                held.opens.changed(change, result.unwrap_or(Err(StateError::Refused)));
            }
        },
    )
    .await;
}

async fn send_lock_change(in_flight: ChangeInFlight, change: LockChange<Handle, OwnerOfLocks>) {
    let client = in_flight.0.clone();
    let owner = change.owner().clone();
    if client.is_ended() {
        // A further request would begin another client id, which has no locks.
        client.update(|held| held.locks.changed(change, Err(StateError::Gone.into())));
        return;
    }
    owner.through.user().session.counters.call(Operation::Unlock);
    let change = Mutex::new(Some(change));
    send_until_answered(
        &client,
        owner.through.user(),
        || {
            let change = change.lock();
            let change = change.as_ref()?;
            client.look(|held| lock_request(held, change, false))
        },
        lock_result,
        |held, result| {
            if let Some(change) = change.lock().take() {
                held.locks.changed(change, result.unwrap_or(Err(StateError::Refused.into())));
            }
        },
    )
    .await;
}

#[cfg(test)]
mod tests;
