//! Attributes that a file is to have, and that the server doesn't have yet.
//!
//! They are the times of a file that was created exclusively: the server may keep the create's verifier in
//! them until they are set (RFC 8881 section 18.16.3), which must not happen before the create is answered.
//! While they are pending, attributes that an application sets may join them, if it need not know at once
//! whether the server permits that. All are set by the request that brings the file's first data, together
//! with attributes whose caller waits, or by a SETATTR of their own: when the file's attributes or names are
//! asked for, at fsync(2) and close(2), and [`MAX_DELAY`] after the create. A failure is that of a write
//! behind.
//!
//! Data that is written before an application sets attributes is written before they are set, and later data
//! after that. While any are being set, the file's data isn't written: the server may execute requests in any
//! order, and data has later times.

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use io::Stability;

use super::behind::{BehindWrite, MAX_DELAY};
use super::{Reservation, UncommittedPool, UncommittedWrites};
use crate::error::{Result, Status};
use crate::types::{Attributes, Handle, SetAttributes};
use crate::wire::WireCaller;

/// The room that a file's pending attributes take in the pool, in bytes, which bounds their number.
const ROOM: usize = 1 << 10;

/// Attributes to be set.
#[derive(Debug)]
pub(crate) struct PendingAttributes {
    /// When they are set at the latest.
    pub(super) due: Instant,
    set: PendingSet,
    caller: WireCaller,
    /// Keeps the file open at the server.
    open: Arc<dyn Any + Send + Sync>,
    reservation: Reservation,
}

/// What is to be set.
#[derive(Debug, Clone, Copy, Default)]
struct PendingSet {
    /// The times.
    times: SetAttributes,
    /// What an application has set since.
    joined: SetAttributes,
}

/// What is sent together: data, and attributes that are set behind it.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) number: u64,
    pub(super) write: Option<BehindWrite>,
    pub(super) stability: Stability,
    pub(super) pending: Option<PendingAttributes>,
    /// Attributes whose caller waits.
    pub(super) asked: Option<(WireCaller, SetAttributes)>,
}

/// Whether a request can be both callers'.
fn is_same_user(one: &WireCaller, other: &WireCaller) -> bool {
    one.user.ids == other.user.ids
}

/// The attributes that two changes set, one after the other.
fn overlaid(first: &SetAttributes, second: &SetAttributes) -> SetAttributes {
    SetAttributes {
        mode: second.mode.or(first.mode),
        uid: second.uid.or(first.uid),
        gid: second.gid.or(first.gid),
        size: second.size.or(first.size),
        atime: second.atime.or(first.atime),
        mtime: second.mtime.or(first.mtime),
    }
}

/// The attributes to set behind data, or without it.
fn combined(
    pending: Option<&PendingSet>,
    asked: Option<&SetAttributes>,
    is_behind_data: bool,
) -> Option<SetAttributes> {
    match (pending.map(|pending| pending.all(is_behind_data)), asked) {
        (Some(pending), Some(asked)) => Some(overlaid(&pending, asked)),
        (pending, asked) => pending.or(asked.copied()),
    }
}

impl PendingSet {
    /// The times that must be set. Data that is written changes that of the last modification by itself.
    fn times(&self, is_behind_data: bool) -> SetAttributes {
        SetAttributes { mtime: self.times.mtime.filter(|_| !is_behind_data), ..self.times }
    }

    fn all(&self, is_behind_data: bool) -> SetAttributes {
        overlaid(&self.times(is_behind_data), &self.joined)
    }
}

impl PendingAttributes {
    /// Whether an application has set attributes, so that data that it writes from now on must follow.
    pub(super) fn has_joined(&self) -> bool {
        !self.set.joined.is_empty()
    }
}

impl UncommittedPool {
    /// The files with pending attributes that `is_wanted` chooses by their handles.
    pub(crate) fn pending(&self, is_wanted: impl Fn(&Handle) -> bool) -> Vec<Arc<UncommittedWrites>> {
        let pending = self.pending.lock();
        pending.iter().filter(|(file, _)| is_wanted(file)).map(|(_, writes)| writes.clone()).collect()
    }
}

impl UncommittedWrites {
    /// Accepts the times of a new file, to be set later. Returns false if they must be set now: there is no
    /// room. `open` keeps the file open at the server.
    pub(crate) fn set_later(
        self: &Arc<Self>,
        caller: &WireCaller,
        set: SetAttributes,
        open: Arc<dyn Any + Send + Sync>,
    ) -> bool {
        let Some(reservation) = self.pool.reserve(ROOM) else { return false };
        let mut state = self.behind.state.lock();
        if state.pending.is_some() {
            return false;
        }
        self.pool.pending.lock().insert(self.handle.clone(), self.clone());
        state.pending = Some(PendingAttributes {
            due: Instant::now() + MAX_DELAY,
            set: PendingSet { times: set, ..PendingSet::default() },
            caller: caller.clone(),
            open,
            reservation,
        });
        self.start_timer(&mut state);
        true
    }

    /// Accepts attributes but the size to be set with those that are pending. Returns all that applications
    /// have set since these are. `None`: nothing is pending, or another user's.
    pub(crate) fn join_pending(&self, caller: &WireCaller, set: &SetAttributes) -> Option<SetAttributes> {
        let mut state = self.behind.state.lock();
        let is_own = |other: &WireCaller| is_same_user(other, caller);
        if !state.joined.as_ref().is_none_or(|joined| is_own(&joined.first.writer)) {
            return None;
        }
        let pending = state.pending.as_mut().filter(|pending| is_own(&pending.caller))?;
        pending.set.joined = overlaid(&pending.set.joined, set);
        Some(pending.set.joined)
    }

    /// Sets attributes but the size, together with what waits to be sent. `None`: that can't go into one
    /// request.
    pub(crate) async fn set_attributes(
        self: &Arc<Self>,
        caller: &WireCaller,
        set: &SetAttributes,
    ) -> Option<Result<Option<Attributes>>> {
        let delivery = {
            let mut state = self.behind.state.lock();
            let joins = caller.wire.protocol.sets_behind_data()
                && state.under_way.is_empty()
                && state.joined.as_ref().is_none_or(|joined| is_same_user(&joined.first.writer, caller))
                && state.pending.as_ref().is_none_or(|pending| is_same_user(&pending.caller, caller));
            if !joins {
                return None;
            }
            let stability = self.stability_before_attributes();
            let delivery = self.take(&mut state, stability)?;
            // Later data is written later.
            state.under_way.iter_mut().for_each(|request| request.sets = true);
            Delivery { asked: Some((caller.clone(), *set)), ..delivery }
        };
        // A task of its own: a caller that stops waiting doesn't take back what was accepted.
        tokio::spawn(deliver(self.clone(), delivery)).await.ok()?
    }

    /// How durable data is to be that is written in front of attributes. A server makes those durable before
    /// it answers, and then a COMMIT for data that is all that there is to commit would cost a call more.
    pub(super) fn stability_before_attributes(&self) -> Stability {
        if self.is_empty() { Stability::FileSync } else { Stability::Unstable }
    }

    /// Sends data and attributes. Returns the result of those whose caller waits.
    async fn send_together(
        &self,
        write: Option<&BehindWrite>,
        stability: Stability,
        pending: Option<&PendingAttributes>,
        asked: Option<&(WireCaller, SetAttributes)>,
    ) -> Option<Result<Option<Attributes>>> {
        let mut pending = pending;
        if let (Some(attributes), Some(write)) = (pending, write)
            && !is_same_user(&attributes.caller, &write.writer)
        {
            self.set_pending(attributes).await;
            pending = None;
        }
        let (set, asked_for) = (pending.map(|pending| &pending.set), asked.map(|(_, set)| set));
        let mut result = None;
        if let Some(BehindWrite { offset, data, writer, .. }) = write {
            let written = match combined(set, asked_for, true) {
                Some(set) => {
                    let written = self.write_and_set(writer, (*offset, data.clone()), stability, &set).await;
                    written.map(|set| result = Some(set))
                }
                None => self.write(writer, data.clone(), *offset, stability).await.map(drop),
            };
            // Data that is less durable than it should be is left to the commit that waits for this.
            if let Err(error) = written {
                tracing::warn!(file = %self.display_name(), %error, "a write has failed");
                self.note_failure(error);
            }
        }
        let caller = asked.map(|(caller, _)| caller).or(pending.map(|pending| &pending.caller))?;
        let result = match (result, combined(set, asked_for, false)) {
            (Some(result), _) => result,
            (None, set) => self.set_now(caller, &set?).await,
        };
        match (asked, pending, result) {
            (Some(_), Some(pending), Err(error)) => {
                self.set_pending(pending).await;
                Some(Err(error))
            }
            (Some(_), _, result) => Some(result),
            (None, pending, result) => {
                if let (Err(_), Some(pending)) = (&result, pending.filter(|pending| pending.has_joined())) {
                    // The server may refuse what an application has set, and must not keep the verifier.
                    let times = pending.set.times(write.is_some());
                    self.note_set(self.set_now(caller, &times).await);
                }
                self.note_set(result);
                None
            }
        }
    }

    /// Sets pending attributes by themselves.
    async fn set_pending(&self, pending: &PendingAttributes) {
        self.note_set(self.set_now(&pending.caller, &pending.set.all(false)).await);
    }

    /// Pending attributes were set, or not.
    fn note_set(&self, result: Result<Option<Attributes>>) {
        match result {
            Ok(_) => {}
            Err(error) if error.status() == Some(Status::Stale) => {
                tracing::debug!(file = %self.display_name(), "a new file is gone before its times are set");
            }
            Err(error) => {
                tracing::warn!(file = %self.display_name(), %error, "the times of a new file aren't set");
                self.note_failure(error);
            }
        }
    }
}

/// Sends data and attributes to the server. Returns the result of those whose caller waits.
pub(super) async fn deliver(
    file: Arc<UncommittedWrites>,
    delivery: Delivery,
) -> Option<Result<Option<Attributes>>> {
    let Delivery { number, write, stability, pending, asked } = delivery;
    let result = {
        let _writer = file.writers.read().await;
        file.send_together(write.as_ref(), stability, pending.as_ref(), asked.as_ref()).await
    };
    if pending.is_some() {
        file.pool.pending.lock().remove(&file.handle);
    }
    if let Some(BehindWrite { open, reservation, .. }) = write {
        drop((reservation, open));
    }
    if let Some(PendingAttributes { open, reservation, .. }) = pending {
        drop((reservation, open));
    }
    file.behind.state.lock().under_way.retain(|request| request.number != number);
    file.behind.answered.notify_waiters();
    file.commit_early().await;
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{SetTime, Timestamp};

    fn at(seconds: i64) -> Option<SetTime> {
        Some(SetTime::To(Timestamp { seconds, nanoseconds: 0 }))
    }

    #[test]
    fn what_is_asked_for_replaces_what_is_pending() {
        let times = SetAttributes { atime: at(1), mtime: at(1), ..SetAttributes::default() };
        let pending = PendingSet { times, ..PendingSet::default() };
        let asked = SetAttributes { mode: Some(0o600), mtime: at(2), ..SetAttributes::default() };
        for (is_behind_data, times) in [(false, at(1)), (true, None)] {
            let alone = combined(Some(&pending), None, is_behind_data).unwrap();
            assert_eq!((alone.atime, alone.mtime, alone.mode), (at(1), times, None));
            let both = combined(Some(&pending), Some(&asked), is_behind_data).unwrap();
            assert_eq!((both.atime, both.mtime, both.mode), (at(1), at(2), Some(0o600)));
            assert_eq!(combined(None, Some(&asked), is_behind_data), Some(asked));
            assert_eq!(combined(None, None, is_behind_data), None);
            // What has joined replaces the times, also behind data.
            let joined =
                combined(Some(&PendingSet { joined: asked, ..pending }), None, is_behind_data).unwrap();
            assert_eq!((joined.atime, joined.mtime, joined.mode), (at(1), at(2), Some(0o600)));
        }
    }
}
