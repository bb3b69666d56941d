//! Write-behind of one file: writes that the application was told are done, until the server has answered
//! them.
//!
//! A write that continues the one before it joins it, up to the size of a WRITE. What was joined is sent when
//! it has that size, when a write elsewhere follows, when the data is needed at the server, and
//! [`MAX_DELAY`] after its first byte. Then it is under way, together with further WRITEs.
//!
//! 1. A write waits until no overlapping one is under way: the server may execute WRITEs in any order.
//! 2. The data has room in the pool until it is durable. One file's data on its way takes at most a share of
//!    it ([`UncommittedPool::share`]); a write beyond that waits.
//! 3. A failed write is reported to every open of the file that there is then: once by its next write or
//!    fsync, and by each close of one for writing. If no open was told, it is reported to later ones (as by
//!    the kernel's errseq_t). A close doesn't end it, because an open has as many as it has descriptors, and
//!    most programs ignore it: a child process that begins another program closes those it has inherited.
//!    Until the next commit that succeeds, the file's writes wait for the server.
//! 4. Pending attributes (`pending`) are set behind the data that is sent next. Once an application has set
//!    some, that is the data before: a further write waits until they are set.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::time::{Duration, Instant};

use bytes::Bytes;
use io::Stability;
use parking_lot::Mutex;
use tokio::sync::{Notify, RwLockWriteGuard};

use super::pending::{Delivery, PendingAttributes, deliver};
use super::{Reservation, UncommittedWrites};
use crate::error::{Error, Result};
use crate::wire::WireCaller;

/// How long data waits for a write that continues it.
pub(super) const MAX_DELAY: Duration = Duration::from_millis(50);

/// A write whose caller doesn't wait for the server.
#[derive(Debug)]
pub(crate) struct BehindWrite {
    pub(crate) offset: u64,
    pub(crate) data: Bytes,
    pub(crate) writer: WireCaller,
    /// Keeps the file open at the server.
    pub(crate) open: Arc<dyn Any + Send + Sync>,
    pub(crate) reservation: Reservation,
}

/// Writes that have joined, and aren't sent.
#[derive(Debug)]
pub(super) struct Joined {
    number: u64,
    /// When they are sent at the latest.
    due: Instant,
    pub(super) first: BehindWrite,
    /// The data, if there is more than the first write's.
    data: Vec<u8>,
}

impl Joined {
    fn len(&self) -> usize {
        if self.data.is_empty() { self.first.data.len() } else { self.data.len() }
    }

    fn end(&self) -> u64 {
        self.first.offset + self.len() as u64
    }

    /// Whether a write continues this one, within a WRITE of `max` bytes.
    fn is_continued_by(&self, write: &BehindWrite, max: usize) -> bool {
        write.offset == self.end()
            && self.len() + write.data.len() <= max
            && Arc::ptr_eq(&write.writer.user, &self.first.writer.user)
    }

    fn join(&mut self, write: BehindWrite, max: usize) {
        if self.data.is_empty() {
            self.data.reserve((4 * (self.first.data.len() + write.data.len())).min(max));
            self.data.extend_from_slice(&self.first.data);
            self.first.data = Bytes::new();
        }
        self.data.extend_from_slice(&write.data);
        self.first.reservation.merge(write.reservation);
    }

    fn into_write(mut self) -> BehindWrite {
        if !self.data.is_empty() {
            self.first.data = self.data.into();
        }
        self.first
    }
}

/// A request that is under way, with the range of a WRITE, which is empty if it only sets attributes.
#[derive(Debug)]
pub(super) struct UnderWay {
    pub(super) number: u64,
    from: u64,
    to: u64,
    /// It sets attributes.
    pub(super) sets: bool,
}

#[derive(Debug, Default)]
pub(super) struct AcceptedWrites {
    pub(super) joined: Option<Joined>,
    pub(super) pending: Option<PendingAttributes>,
    /// Whether the task runs that sends what has joined or is pending when it is due.
    has_timer: bool,
    pub(super) under_way: VecDeque<UnderWay>,
    /// The number of the next range.
    next: u64,
    /// The number of failed writes, and the last error.
    failures: u64,
    error: Option<Arc<Error>>,
    /// Every failure was reported to an open.
    is_reported: bool,
    /// A write has failed since the last commit that succeeded.
    has_failed: bool,
}

impl AcceptedWrites {
    fn bytes(&self) -> u64 {
        let joined = self.joined.as_ref().map_or(0, Joined::len) as u64;
        joined + self.under_way.iter().map(|range| range.to - range.from).sum::<u64>()
    }

    fn overlaps(&self, from: u64, to: u64) -> bool {
        self.under_way.iter().any(|range| range.sets || range.from < to && from < range.to)
    }

    /// The end of the last byte that the server may not have.
    fn end(&self) -> Option<u64> {
        let under_way = self.under_way.iter().map(|range| range.to).max();
        under_way.max(self.joined.as_ref().map(Joined::end))
    }

    /// When something is sent at the latest.
    fn due(&self) -> Option<Instant> {
        let dues = [self.joined.as_ref().map(|joined| joined.due), self.pending.as_ref().map(|it| it.due)];
        dues.into_iter().flatten().min()
    }
}

/// One file's write-behind.
#[derive(Debug, Default)]
pub(super) struct Behind {
    pub(super) state: Mutex<AcceptedWrites>,
    /// Told when a request was answered.
    pub(super) answered: Notify,
}

/// What became of a write.
pub(crate) enum Accepted {
    Yes,
    /// It must wait until a WRITE is answered: [`UncommittedWrites::accept_later`].
    NotYet(BehindWrite),
}

impl UncommittedWrites {
    /// Whether the file's writes wait for the server, because one has failed.
    pub(crate) fn must_write_through(&self) -> bool {
        self.behind.state.lock().has_failed
    }

    /// Accepts a write, which isn't empty and doesn't wrap, and sends it later. The caller holds `writers`
    /// for reading.
    pub(crate) fn accept(self: &Arc<Self>, write: BehindWrite) -> Accepted {
        let max = write.writer.wire.wsize.min(self.pool.share());
        let (from, to) = (write.offset, write.offset + write.data.len() as u64);
        let mut state = self.behind.state.lock();
        let overlaps = state.overlaps(from, to);
        let must_follow = state.pending.as_ref().is_some_and(PendingAttributes::has_joined);
        match &mut state.joined {
            Some(joined) if !overlaps && !must_follow && joined.is_continued_by(&write, max) => {
                joined.join(write, max);
            }
            joined => {
                // Times that are pending go with this write.
                if joined.is_some() || must_follow {
                    self.send(&mut state, Stability::Unstable);
                }
                let share = self.pool.share() as u64;
                if state.overlaps(from, to) || !state.under_way.is_empty() && state.bytes() >= share {
                    return Accepted::NotYet(write);
                }
                let number = state.next;
                state.next += 1;
                if write.data.len() < max {
                    self.start_timer(&mut state);
                }
                let due = Instant::now() + MAX_DELAY;
                state.joined = Some(Joined { number, due, first: write, data: Vec::new() });
            }
        }
        if state.joined.as_ref().is_some_and(|joined| joined.len() >= max) {
            self.send(&mut state, Stability::Unstable);
        }
        Accepted::Yes
    }

    /// Waits until a write that wasn't accepted may be.
    pub(crate) async fn accept_later(&self, write: &BehindWrite) {
        let (from, to) = (write.offset, write.offset + write.data.len() as u64);
        let share = self.pool.share() as u64;
        self.wait(|state| !state.overlaps(from, to) && state.bytes() < share).await;
    }

    /// Waits until what was accepted so far is answered.
    pub(crate) async fn settle(self: &Arc<Self>) {
        self.settle_as(Stability::Unstable).await;
    }

    /// As [`UncommittedWrites::settle`], if there is something that a read at `offset` could miss: data, or
    /// that the file is longer.
    pub(crate) async fn settle_behind(self: &Arc<Self>, offset: u64) {
        let is_missed = self.behind.state.lock().end().is_some_and(|end| end > offset);
        if is_missed {
            self.settle().await;
        }
    }

    /// As [`UncommittedWrites::settle`], for a commit: data that is all that there is to commit is written
    /// FILE_SYNC, which saves the COMMIT.
    pub(super) async fn settle_for_commit(self: &Arc<Self>) {
        self.settle_as(Stability::FileSync).await;
    }

    async fn settle_as(self: &Arc<Self>, stability: Stability) {
        let mark = {
            let mut state = self.behind.state.lock();
            let stability = match stability {
                _ if !state.under_way.is_empty() => Stability::Unstable,
                Stability::Unstable if state.pending.is_none() => Stability::Unstable,
                _ => self.stability_before_attributes(),
            };
            self.send(&mut state, stability);
            if state.under_way.is_empty() {
                return;
            }
            state.next
        };
        self.wait(|state| state.under_way.iter().all(|range| range.number >= mark)).await;
    }

    async fn wait(&self, condition: impl Fn(&AcceptedWrites) -> bool) {
        loop {
            let answered = self.behind.answered.notified();
            if condition(&self.behind.state.lock()) {
                return;
            }
            answered.await;
        }
    }

    /// Locks `writers` for writing, with nothing on its way to the server.
    pub(crate) async fn exclude_writes(self: &Arc<Self>) -> RwLockWriteGuard<'_, ()> {
        loop {
            self.settle().await;
            // What was accepted before this has the lock is sent with the lock for reading.
            let writers = self.writers.write().await;
            if self.is_settled() {
                return writers;
            }
        }
    }

    /// The end of the last byte that was accepted and that the server may not have.
    pub(crate) fn unwritten_end(&self) -> Option<u64> {
        self.behind.state.lock().end()
    }

    /// Whether nothing is on its way.
    pub(crate) fn is_settled(&self) -> bool {
        let state = self.behind.state.lock();
        state.due().is_none() && state.under_way.is_empty()
    }

    /// Starts the task that sends what is due, unless it runs.
    pub(super) fn start_timer(self: &Arc<Self>, state: &mut AcceptedWrites) {
        if !std::mem::replace(&mut state.has_timer, true) {
            tokio::spawn(send_when_due(self.clone()));
        }
    }

    /// Sends what has joined and what is pending.
    fn send(self: &Arc<Self>, state: &mut AcceptedWrites, stability: Stability) {
        if let Some(delivery) = self.take(state, stability) {
            // A task of its own: a caller that stops waiting doesn't take back what was accepted.
            tokio::spawn(deliver(self.clone(), delivery));
        }
    }

    /// Takes what has joined and what is pending, to be sent at once. `None`: nothing is.
    pub(super) fn take(&self, state: &mut AcceptedWrites, stability: Stability) -> Option<Delivery> {
        let (joined, pending) = (state.joined.take(), state.pending.take());
        let (number, from, to) = match &joined {
            Some(joined) => (joined.number, joined.first.offset, joined.end()),
            None => {
                pending.as_ref()?;
                let number = state.next;
                state.next += 1;
                (number, 0, 0)
            }
        };
        state.under_way.push_back(UnderWay { number, from, to, sets: pending.is_some() });
        let write = joined.map(Joined::into_write);
        Some(Delivery { number, write, stability, pending, asked: None })
    }

    /// The failures that an open isn't told of which begins now.
    pub(super) fn known_failures(&self) -> u64 {
        let state = self.behind.state.lock();
        if state.is_reported { state.failures } else { 0 }
    }

    /// Reports a failed write to an open, which knows of `known` failures, and knows of all after this.
    pub(crate) fn report_failure(&self, known: &AtomicU64) -> Result<()> {
        self.report(known, true)
    }

    /// As [`UncommittedWrites::report_failure`], but the open's next write or commit reports it again.
    pub(crate) fn report_failure_at_close(&self, known: &AtomicU64) -> Result<()> {
        self.report(known, false)
    }

    fn report(&self, known: &AtomicU64, is_known_now: bool) -> Result<()> {
        let mut state = self.behind.state.lock();
        let reported = known.load(Relaxed);
        if is_known_now {
            known.store(state.failures, Relaxed);
        }
        match &state.error {
            Some(error) if state.failures > reported => {
                let source = error.clone();
                state.is_reported = true;
                Err(Error::EarlierWrite { source })
            }
            _ => Ok(()),
        }
    }

    pub(super) fn note_failure(&self, error: Error) {
        let mut state = self.behind.state.lock();
        if state.failures == 0 {
            self.pool.failed.fetch_add(1, SeqCst);
        }
        state.failures += 1;
        state.error = Some(Arc::new(error));
        (state.is_reported, state.has_failed) = (false, true);
    }

    /// The number of writes that have failed.
    pub(super) fn failures(&self) -> u64 {
        self.behind.state.lock().failures
    }

    /// A commit has succeeded that began when this many writes had failed.
    pub(super) fn end_write_through(&self, failures: u64) {
        let mut state = self.behind.state.lock();
        state.has_failed &= state.failures > failures;
    }
}

/// Sends data that has waited long enough for a write that continues it. Ends when none waits.
async fn send_when_due(file: Arc<UncommittedWrites>) {
    let mut delay = MAX_DELAY;
    loop {
        tokio::time::sleep(delay).await;
        let mut state = file.behind.state.lock();
        match state.due().map(|due| due.saturating_duration_since(Instant::now())) {
            Some(Duration::ZERO) => file.send(&mut state, Stability::Unstable),
            Some(rest) => {
                delay = rest;
                continue;
            }
            None => {}
        }
        state.has_timer = false;
        return;
    }
}

impl UncommittedWrites {
    /// Commits a file with much uncommitted data, so that its writes find room when they need it.
    pub(super) async fn commit_early(self: &Arc<Self>) {
        if self.bytes() < self.pool.share() {
            return;
        }
        let Ok(_one) = self.early_commit.try_lock() else { return };
        if let Err(error) = self.commit_answered().await {
            self.note_failure(error);
        }
    }
}
