//! Attributes that a file is to have, and that the server doesn't have yet.
//!
//! They are the times of a file that was created exclusively: the server may keep the create's verifier in
//! them until they are set (RFC 8881 section 18.16.3), which must not happen before the create is answered.
//! They are set by the request that brings the file's first data, together with attributes that an
//! application sets, or by a SETATTR of their own: when the file's attributes or names are asked for, at
//! fsync(2) and close(2), and [`MAX_DELAY`] after the create. A failure is that of a write behind.
//!
//! While they are being set, the file's data isn't written: the server may execute requests in any order, and
//! data has later times.

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
    set: SetAttributes,
    caller: WireCaller,
    /// Keeps the file open at the server.
    open: Arc<dyn Any + Send + Sync>,
    reservation: Reservation,
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

/// The attributes to set behind data, or without it. Data that is written changes the time of the last
/// modification by itself.
fn combined(
    pending: Option<&SetAttributes>,
    asked: Option<&SetAttributes>,
    is_behind_data: bool,
) -> Option<SetAttributes> {
    let pending = pending.map(|set| SetAttributes { mtime: set.mtime.filter(|_| !is_behind_data), ..*set });
    match (pending, asked) {
        (Some(pending), Some(asked)) => Some(SetAttributes {
            mode: asked.mode.or(pending.mode),
            uid: asked.uid.or(pending.uid),
            gid: asked.gid.or(pending.gid),
            size: asked.size.or(pending.size),
            atime: asked.atime.or(pending.atime),
            mtime: asked.mtime.or(pending.mtime),
        }),
        (pending, asked) => pending.or(asked.copied()),
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
            set,
            caller: caller.clone(),
            open,
            reservation,
        });
        self.start_timer(&mut state);
        true
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
        let (times, asked_for) = (pending.map(|pending| &pending.set), asked.map(|(_, set)| set));
        let mut result = None;
        if let Some(BehindWrite { offset, data, writer, .. }) = write {
            let written = match combined(times, asked_for, true) {
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
        let result = match (result, combined(times, asked_for, false)) {
            (Some(result), _) => result,
            (None, set) => self.set_now(caller, &set?).await,
        };
        match (asked, pending, result) {
            (Some(_), Some(pending), Err(error)) => {
                self.set_pending(pending).await;
                Some(Err(error))
            }
            (Some(_), _, result) => Some(result),
            (None, _, result) => {
                self.note_set(result);
                None
            }
        }
    }

    /// Sets pending attributes by themselves.
    async fn set_pending(&self, pending: &PendingAttributes) {
        self.note_set(self.set_now(&pending.caller, &pending.set).await);
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
        let pending = SetAttributes { atime: at(1), mtime: at(1), ..SetAttributes::default() };
        let asked = SetAttributes { mode: Some(0o600), mtime: at(2), ..SetAttributes::default() };
        for (is_behind_data, times) in [(false, at(1)), (true, None)] {
            let alone = combined(Some(&pending), None, is_behind_data).unwrap();
            assert_eq!((alone.atime, alone.mtime, alone.mode), (at(1), times, None));
            let both = combined(Some(&pending), Some(&asked), is_behind_data).unwrap();
            assert_eq!((both.atime, both.mtime, both.mode), (at(1), at(2), Some(0o600)));
            assert_eq!(combined(None, Some(&asked), is_behind_data), Some(asked));
            assert_eq!(combined(None, None, is_behind_data), None);
        }
    }
}
