//! The end of a grant, and what was written through it: synced before it is closed, whoever took it back.

use std::io as stdio;
use std::sync::Arc;
use std::sync::atomic::{Ordering::Acquire, Ordering::SeqCst, fence};
use std::time::Duration;

use sys::read_mostly::ReadGuard;

use super::Inner;
use super::granted::FileGrant;
use crate::counters::bump;
use crate::error::Result;
use crate::lane::GrantHolder;

/// How long a retired grant is waited for before the next commit or close has to deal with it.
const SETTLE_ROUNDS: u32 = 500;

/// Between two looks at it.
const SETTLE_NAP: Duration = Duration::from_millis(10);

impl Inner {
    /// Makes what was written by the lane durable.
    pub(super) async fn sync_granted(self: &Arc<Self>) -> Result<()> {
        let dirty = self.granted.read().is_some_and(|granted| granted.is_dirty());
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
        let Some(granted) = self.granted.read() else { return Ok(()) };
        let Some(_flight) = granted.grant.try_get() else {
            // What it has unsynced is the retired grants' business now.
            return self.leave(granted).unwrap_or(Ok(()));
        };
        if granted.sync(&self.handle).map_err(|error| self.local(error))? {
            bump(&self.session.inner.counters.lane.commits);
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
        let retired: Vec<Arc<FileGrant>> = self.retired.lock().clone();
        for granted in retired {
            self.settle_once(&granted);
        }
        self.take_lost()
    }

    /// Syncs a retired grant; true if it is done with, and nothing but `granted` keeps it open.
    fn settle_once(&self, granted: &Arc<FileGrant>) -> bool {
        // First nobody may be in the middle of a write any more; then nothing can soil it again.
        self.granted.reclaim();
        let mut retired = self.retired.lock();
        let listed = retired.iter().any(|other| Arc::ptr_eq(other, granted));
        let unused = Arc::strong_count(granted) <= 1 + usize::from(listed);
        drop(retired);
        // What the last user has done comes before what follows.
        fence(Acquire);
        match granted.sync(&self.handle) {
            Ok(true) => bump(&self.session.inner.counters.lane.commits),
            Ok(false) => {}
            Err(error) => {
                self.lost.lock().get_or_insert(error);
            }
        }
        if granted.is_passed_on() {
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
    pub(super) fn leave<T>(self: &Arc<Self>, granted: ReadGuard<'_, FileGrant>) -> Option<T> {
        let kept = granted.to_arc();
        drop(granted);
        self.give_up(kept);
        None
    }

    #[cold]
    fn give_up(self: &Arc<Self>, granted: Arc<FileGrant>) {
        let manager = &self.session.inner.lane;
        {
            // Whoever looks for unsynced writes finds the grant either here or there.
            let mut retired = self.retired.lock();
            if !self.granted.remove(&granted) {
                return;
            }
            if self.write {
                retired.push(granted.clone());
            }
        }
        bump(&self.session.inner.counters.data_path_changes);
        if manager.is_live(granted.lane) {
            // Only this grant was taken back: the lane may still give another, perhaps with less access.
            self.asked.store(0, SeqCst);
        } else {
            manager.lost(granted.lane);
        }
        let file = self.clone();
        manager.runtime().spawn_blocking(move || {
            for _ in 0..SETTLE_ROUNDS {
                if file.settle_once(&granted) {
                    return;
                }
                std::thread::sleep(SETTLE_NAP);
            }
        });
    }
}

impl GrantHolder for Inner {
    fn release_grant(self: Arc<Self>, lane: u64) {
        if let Some(granted) = self.granted.load()
            && granted.lane == lane
        {
            self.give_up(granted);
        }
    }
}
