//! The lane's road: plain system calls on the granted file, each between `try_get` and `put`.
//!
//! What stands on the hot path is as little as can be, and no locked instruction: a look at the switch that holds the
//! grant, the interlock, the system call, and two counters of this thread's own.
//!
//! A read that has to wait for a disk should not hold up an async executor. Asking the kernel not to wait (RWF_NOWAIT) costs
//! something on every read, so it is only done while reads have been missing the page cache lately, and for one in
//! [`PLAIN`] reads otherwise, to notice when they begin to.

use std::io as stdio;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::SeqCst, fence,
};
use std::time::Duration;

use io::{Mode, Stability};
use lane::Grant;
use rustix::io::{Errno, ReadWriteFlags};
use sys::switch::Look;

use super::Inner;
use super::syncs::Syncs;
use super::way::Way;
use crate::counters::{add, bump};
use crate::error::Result;
use crate::lane::Answer;
use crate::options::LaneMode;

/// Plain reads between two that ask not to wait.
const PLAIN: u32 = 64;

/// Hits in a row after which reads are plain again.
const HITS: u32 = 8;

/// How long a retired grant is waited for before the next commit or close has to deal with it.
const SETTLE_ROUNDS: u32 = 500;

/// Between two looks at it.
const SETTLE_NAP: Duration = Duration::from_millis(10);

/// A grant with what belongs to it.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(super) grant: Grant,
    /// The lane's number in the session.
    pub(crate) lane: u64,
    /// The server's write verifier when it was given.
    verifier: [u8; 8],
    /// Written since the last sync began.
    dirty: AtomicBool,
    /// Others write through the descriptor, unseen: it is never known to be clean.
    passed: AtomicBool,
    syncs: Syncs,
    /// Reads to come: from [`PLAIN`] on ones that ask not to wait, below it plain ones.
    turn: AtomicU32,
    /// The filesystem can't be asked not to wait.
    always_waits: AtomicBool,
    /// Reads and writes are nothing but system calls on the grant.
    plain_reads: bool,
    plain_writes: bool,
    pub(super) way: Way,
}

impl Granted {
    /// `always_waits`: other files of the filesystem couldn't be asked.
    pub(crate) fn new(grant: Grant, lane: u64, verifier: [u8; 8], always_waits: bool) -> Self {
        let modes = grant.modes();
        Self {
            plain_reads: modes.read == Mode::Buffered,
            plain_writes: modes.write == Mode::Buffered,
            way: Way::new(modes),
            grant,
            lane,
            verifier,
            dirty: AtomicBool::new(false),
            passed: AtomicBool::new(false),
            syncs: Syncs::default(),
            turn: AtomicU32::new(PLAIN + HITS),
            always_waits: AtomicBool::new(always_waits),
        }
    }

    pub(crate) fn is_live(&self) -> bool {
        self.grant.is_live()
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty.load(SeqCst) || self.passed.load(SeqCst)
    }

    /// A write has gone to the file. After it, not before: a sync that begins in between would forget it.
    fn soil(&self) {
        if !self.dirty.load(SeqCst) {
            self.dirty.store(true, SeqCst);
        }
    }

    /// Makes durable what was written, if there is anything. Doesn't ask the interlock: what was acknowledged must become
    /// durable even if the server has taken the grant back.
    fn sync(&self) -> stdio::Result<bool> {
        self.syncs.run(|| {
            if !self.dirty.swap(false, SeqCst) && !self.passed.load(SeqCst) {
                return Ok(false);
            }
            io::sync(&self.grant, Stability::FileSync).map(|()| true)
        })
    }

    /// Whether the next read is to ask the kernel not to wait.
    fn asks_not_to_wait(&self) -> bool {
        let turn = self.turn.load(Relaxed);
        if turn >= PLAIN {
            return !self.always_waits.load(Relaxed);
        }
        self.turn.store(if turn == 0 { PLAIN } else { turn - 1 }, Relaxed);
        false
    }

    /// How a read that asked not to wait went.
    fn did_not_wait(&self, hit: bool) {
        let turn = self.turn.load(Relaxed).max(PLAIN);
        self.turn.store(if hit { turn - 1 } else { PLAIN + HITS }, Relaxed);
    }
}

impl Inner {
    pub(super) fn has_grant(&self) -> bool {
        self.granted.is_some()
    }

    /// Reads by the lane, waiting for the disk if it must; `None` if there is no lane (any more).
    #[inline]
    pub(crate) fn pread(self: &Arc<Self>, buffer: &mut [u8], offset: u64) -> Option<Result<usize>> {
        let granted = self.granted.look()?;
        let place = granted.place();
        let Some(flight) = granted.grant.try_get_at(place) else { return self.leave(granted) };
        let result = if granted.plain_reads {
            io::read_at(&granted.grant, buffer, offset)
        } else {
            self.read_by_mode(&granted, buffer, offset)
        };
        drop(flight);
        Some(match result {
            Ok(count) => {
                self.session.inner.live.hot.read(place, count as u64);
                Ok(count)
            }
            Err(error) => Err(self.local(error)),
        })
    }

    /// As [`Inner::pread`], for an async caller: a read that has to wait does so elsewhere.
    pub(super) async fn read_granted(
        self: &Arc<Self>,
        buffer: &mut [u8],
        offset: u64,
    ) -> Option<Result<usize>> {
        let step = self.read_cached(buffer, offset);
        self.finish_read(step, buffer, offset).await
    }

    /// What is left to do of a read after [`Inner::read_cached`].
    pub(super) async fn finish_read(
        self: &Arc<Self>,
        step: Step,
        buffer: &mut [u8],
        offset: u64,
    ) -> Option<Result<usize>> {
        match step {
            Step::Done(count) => return Some(Ok(count)),
            Step::Failed(error) => return Some(Err(self.local(error))),
            Step::NoLane => return None,
            Step::ByMode => return Box::pin(self.fetch_elsewhere(buffer, offset)).await,
            Step::Miss => {}
        }
        let (file, len) = (self.clone(), buffer.len());
        let read = move || {
            let mut bytes = vec![0; len];
            let result = file.pread(&mut bytes, offset)?;
            Some(result.map(|count| (count, bytes)))
        };
        let result = match tokio::task::spawn_blocking(read).await {
            Ok(result) => result?,
            Err(error) => return Some(Err(self.local(stdio::Error::other(error)))),
        };
        Some(result.map(|(count, bytes)| {
            buffer[..count].copy_from_slice(&bytes[..count]);
            count
        }))
    }

    /// The part of a read that doesn't wait (but see the module's header).
    #[inline]
    pub(super) fn read_cached(self: &Arc<Self>, buffer: &mut [u8], offset: u64) -> Step {
        let Some(granted) = self.granted.look() else { return Step::NoLane };
        if !granted.plain_reads {
            return Step::ByMode;
        }
        let place = granted.place();
        let Some(flight) = granted.grant.try_get_at(place) else {
            return self.leave(granted).unwrap_or(Step::NoLane);
        };
        let step = if granted.asks_not_to_wait() {
            self.read_not_waiting(&granted, buffer, offset)
        } else {
            io::read_at(&granted.grant, buffer, offset).into()
        };
        drop(flight);
        if let Step::Done(count) = step {
            self.session.inner.live.hot.read(place, count as u64);
        }
        step
    }

    /// One of the reads that ask the kernel not to wait.
    #[inline(never)]
    fn read_not_waiting(&self, granted: &Granted, buffer: &mut [u8], offset: u64) -> Step {
        let mut parts = [stdio::IoSliceMut::new(buffer)];
        let flags = ReadWriteFlags::NOWAIT;
        match rustix::io::preadv2(&granted.grant, &mut parts, offset.min(io::MAX_OFFSET), flags) {
            Ok(count) if count == buffer.len() || count == 0 => {
                granted.did_not_wait(true);
                Step::Done(count)
            }
            // The rest isn't cached, or there is none: see what a plain read says.
            Ok(_) | Err(Errno::INTR) => io::read_at(&granted.grant, buffer, offset).into(),
            Err(Errno::AGAIN) => {
                granted.did_not_wait(false);
                Step::Miss
            }
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                granted.always_waits.store(true, Relaxed);
                if let Some(attributes) = &self.opened_as {
                    self.session.inner.lane.always_waits_on(attributes.fsid);
                }
                io::read_at(&granted.grant, buffer, offset).into()
            }
            Err(error) => Step::Failed(error.into()),
        }
    }

    /// Writes by the lane; `None` if there is no lane (any more). Never in part: what the kernel takes in pieces is
    /// continued, and an error ends it.
    #[inline]
    pub(crate) fn write_granted(self: &Arc<Self>, data: &[u8], offset: u64) -> Option<Result<()>> {
        let granted = self.granted.look()?;
        let place = granted.place();
        let Some(flight) = granted.grant.try_get_at(place) else { return self.leave(granted) };
        let mut done = 0;
        let result = loop {
            let (rest, at) = (&data[done..], offset.saturating_add(done as u64));
            let wrote = if granted.plain_writes {
                io::write_at(&granted.grant, rest, at)
            } else {
                self.write_by_mode(&granted, rest, at)
            };
            match wrote {
                Ok(count) => done += count,
                Err(error) => break Err(error),
            }
            if done == data.len() {
                break Ok(());
            }
        };
        granted.soil();
        drop(flight);
        self.session.inner.live.hot.write(place, done as u64);
        Some(match result {
            Ok(()) => Ok(()),
            Err(error) => Err(self.local(error)),
        })
    }

    /// Runs `f` with the granted descriptor, between `try_get` and `put`; `passed`: the descriptor goes to somebody who may
    /// write through it from now on.
    pub(super) fn lend<R>(self: &Arc<Self>, passed: bool, f: impl FnOnce(BorrowedFd<'_>) -> R) -> Option<R> {
        let granted = self.granted.look()?;
        let Some(flight) = granted.grant.try_get() else { return self.leave(granted) };
        if self.write && passed {
            granted.passed.store(true, SeqCst);
        }
        let result = f(granted.grant.as_fd());
        if self.write {
            granted.soil();
        }
        drop(flight);
        Some(result)
    }

    /// As [`Inner::lend`], for looking only.
    pub(super) fn look<R>(self: &Arc<Self>, f: impl FnOnce(BorrowedFd<'_>) -> R) -> Option<R> {
        let granted = self.granted.look()?;
        let Some(_flight) = granted.grant.try_get() else { return self.leave(granted) };
        Some(f(granted.grant.as_fd()))
    }

    /// The granted file's length.
    pub(crate) fn size_granted(self: &Arc<Self>) -> Option<Result<u64>> {
        let stat = self.look(|file| rustix::fs::fstat(file))?;
        Some(
            stat.map(|stat| u64::try_from(stat.st_size).unwrap_or(0))
                .map_err(|error| self.local(error.into())),
        )
    }

    /// Cuts the granted file off, or fills it with zeros.
    pub(crate) fn set_len_granted(self: &Arc<Self>, len: u64) -> Option<Result<()>> {
        let granted = self.granted.look()?;
        let Some(flight) = granted.grant.try_get() else { return self.leave(granted) };
        let result =
            if len > io::MAX_OFFSET { Err(Errno::FBIG) } else { rustix::fs::ftruncate(&granted.grant, len) };
        granted.soil();
        drop(flight);
        Some(result.map_err(|error| self.local(error.into())))
    }

    /// Makes what was written by the lane durable.
    pub(super) async fn sync_granted(self: &Arc<Self>) -> Result<()> {
        let dirty = self.granted.look().is_some_and(|granted| granted.is_dirty());
        if !dirty {
            return Ok(());
        }
        let file = self.clone();
        tokio::task::spawn_blocking(move || file.sync_granted_now())
            .await
            .map_err(|error| self.local(stdio::Error::other(error)))?
    }

    /// As [`Inner::sync_granted`], waiting on this thread.
    pub(crate) fn sync_granted_now(self: &Arc<Self>) -> Result<()> {
        let Some(granted) = self.granted.look() else { return Ok(()) };
        let Some(_flight) = granted.grant.try_get() else {
            // What it has unsynced is the retired grants' business now.
            return self.leave(granted).unwrap_or(Ok(()));
        };
        if granted.sync().map_err(|error| self.local(error))? {
            bump(&self.session.inner.live.lane.commits);
        }
        Ok(())
    }

    /// Syncs the grants that were given up, and says whether that ever failed.
    pub(super) async fn sync_retired(self: &Arc<Self>) -> Result<()> {
        if self.retired.lock().is_empty() {
            return self.take_lost();
        }
        let file = self.clone();
        tokio::task::spawn_blocking(move || file.sync_retired_now())
            .await
            .map_err(|error| self.local(stdio::Error::other(error)))?
    }

    /// As [`Inner::sync_retired`], waiting on this thread.
    pub(crate) fn sync_retired_now(&self) -> Result<()> {
        let retired: Vec<Arc<Granted>> = self.retired.lock().clone();
        for granted in retired {
            self.settle_once(&granted);
        }
        self.take_lost()
    }

    /// Syncs a retired grant; true if it is done with, and nothing but `granted` keeps it open.
    fn settle_once(&self, granted: &Arc<Granted>) -> bool {
        // First nobody may be in the middle of a write any more; then nothing can soil it again.
        self.granted.sweep();
        let mut retired = self.retired.lock();
        let listed = retired.iter().any(|other| Arc::ptr_eq(other, granted));
        let unused = Arc::strong_count(granted) <= 1 + usize::from(listed);
        drop(retired);
        // What the last user has done comes before what follows.
        fence(Acquire);
        match granted.sync() {
            Ok(true) => bump(&self.session.inner.live.lane.commits),
            Ok(false) => {}
            Err(error) => {
                self.lost.lock().get_or_insert(error);
            }
        }
        if granted.passed.load(SeqCst) {
            // It stays until the file is closed, for commits to come.
            return true;
        }
        if unused {
            retired = self.retired.lock();
            retired.retain(|other| !Arc::ptr_eq(other, granted));
        }
        unused
    }

    /// Gives up a grant that the server has taken back. Returns `None`, for whoever has nothing to return.
    #[cold]
    pub(super) fn leave<T>(self: &Arc<Self>, granted: Look<'_, Granted>) -> Option<T> {
        let kept = granted.to_arc();
        drop(granted);
        self.give_up(kept);
        None
    }

    #[cold]
    fn give_up(self: &Arc<Self>, granted: Arc<Granted>) {
        let keeper = &self.session.inner.lane;
        {
            // Whoever looks for unsynced writes finds the grant either here or there.
            let mut retired = self.retired.lock();
            if !self.granted.unset(&granted) {
                return;
            }
            if self.write {
                retired.push(granted.clone());
            }
        }
        bump(&self.session.inner.live.road_changes);
        if keeper.is_live(granted.lane) {
            // Only this grant was taken back: the lane may still give another, perhaps with less access.
            self.asked.store(0, SeqCst);
        } else {
            keeper.lost(granted.lane);
        }
        let file = self.clone();
        keeper.runtime().spawn_blocking(move || {
            for _ in 0..SETTLE_ROUNDS {
                if file.settle_once(&granted) {
                    return;
                }
                std::thread::sleep(SETTLE_NAP);
            }
        });
    }

    /// Gives up the grant of this lane, if the file has one: the lane is going, and this file may be idle.
    pub(crate) fn recall(self: &Arc<Self>, lane: u64) {
        if let Some(granted) = self.granted.load()
            && granted.lane == lane
        {
            self.give_up(granted);
        }
    }

    /// Finds out whether there is a road by lane now: true if there is. Asks once on every occasion.
    pub(super) async fn take_road(self: &Arc<Self>) -> Result<bool> {
        let session = &self.session;
        let keeper = &session.inner.lane;
        if keeper.mode() == LaneMode::Off {
            return Ok(false);
        }
        let Some(occasion) = session.lane_for_io().await.map_err(|error| error.about(|| self.shown()))?
        else {
            return Ok(false);
        };
        let required = keeper.mode() == LaneMode::Required;
        if self.asked.load(SeqCst) == occasion && !required {
            return Ok(self.has_grant());
        }
        // Asking is rare, and its future large.
        Box::pin(self.ask_for_road(occasion, required)).await
    }

    async fn ask_for_road(self: &Arc<Self>, occasion: u64, required: bool) -> Result<bool> {
        let (session, keeper) = (&self.session, &self.session.inner.lane);
        let _one = self.asking.lock().await;
        if self.has_grant() {
            return Ok(true);
        }
        if self.asked.swap(occasion, SeqCst) == occasion && !required {
            return Ok(false);
        }
        let target = lane::Target::Handle(self.handle.as_bytes());
        match session.ask_lane(target, &self.name, self.read, self.write).await? {
            Answer::Granted(opening) => match opening.granted {
                Some((grant, lane, verifier)) => {
                    let waits = keeper.waits_on(opening.attributes.as_ref());
                    let taken = self.change_to(Granted::new(grant, lane, verifier, waits)).await?;
                    if taken && self.wants_direct() {
                        Box::pin(self.take_direct()).await;
                    }
                    Ok(taken)
                }
                None => Ok(false),
            },
            Answer::Refused(status) => {
                *self.refused.lock() = Some(status);
                Ok(false)
            }
            Answer::None => Ok(false),
        }
    }

    /// Takes a grant into use. First everything that was written over the wire becomes durable: from here on nothing is
    /// kept, and nothing old can be written over something newer.
    async fn change_to(self: &Arc<Self>, granted: Granted) -> Result<bool> {
        let granted = Arc::new(granted);
        let _writers = self.wire_writers.write().await;
        if self.keeps_any() && !self.settle_kept(&granted).await? {
            // The wire keeps what it has, and tries for itself.
            return Ok(false);
        }
        self.granted.set(Some(granted));
        bump(&self.session.inner.live.road_changes);
        self.enlist();
        Ok(true)
    }

    /// Makes durable what was written over the wire; false if that didn't work. Nobody else writes over the wire meanwhile.
    ///
    /// A sync through the grant wouldn't do for a server that still has the data: whether some of it was lost is known to the descriptor
    /// that was open when it was written, which is the server's (fsync(2)), so that is asked by a COMMIT. What it has forgotten is
    /// written again through the grant.
    async fn settle_kept(self: &Arc<Self>, granted: &Arc<Granted>) -> Result<bool> {
        let remembered = self.kept.lock().all_under(granted.verifier);
        let again = if remembered {
            match self.commit_call().await {
                Ok(verifier) => {
                    let mut kept = self.kept.lock();
                    let mark = kept.mark();
                    kept.committed(mark, verifier)
                }
                Err(error) => {
                    tracing::debug!(file = %self.shown(), %error, "staying on the wire");
                    return Ok(false);
                }
            }
        } else {
            self.kept.lock().all()
        };
        if !again.is_empty() {
            let resent: u64 = again.iter().map(|(_, data)| data.len() as u64).sum();
            let file = granted.clone();
            let settle = move || -> stdio::Result<()> {
                let _flight = file.grant.try_get().ok_or(Errno::NXIO)?;
                for (offset, data) in &again {
                    let mut done = 0;
                    while done < data.len() {
                        done += io::write_at(&file.grant, &data[done..], offset + done as u64)?;
                    }
                }
                io::sync(&file.grant, Stability::FileSync)
            };
            match tokio::task::spawn_blocking(settle).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::debug!(file = %self.shown(), %error, "staying on the wire");
                    return Ok(false);
                }
                Err(error) => return Err(self.local(stdio::Error::other(error))),
            }
            add(&self.session.inner.live.bytes_resent, resent);
        }
        self.kept.lock().clear();
        Ok(true)
    }
}

/// What became of the first step of a read, which should not wait.
#[derive(Debug)]
pub(super) enum Step {
    Done(usize),
    NoLane,
    Miss,
    Failed(stdio::Error),
    /// It will wait, most likely, and goes another way.
    ByMode,
}

impl From<stdio::Result<usize>> for Step {
    #[inline]
    fn from(result: stdio::Result<usize>) -> Self {
        match result {
            Ok(count) => Self::Done(count),
            Err(error) => Self::Failed(error),
        }
    }
}
