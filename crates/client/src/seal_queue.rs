//! Handles that were made in a tree and have no seal yet.
//!
//! Without a tree, the session needs sealed handles. A file that still has the name by which it was found
//! gets its seal when a call needs it (`wire`). That fails for a file that another client has renamed or
//! removed in the meantime. Therefore handles are sealed in the background, once no new ones have been made
//! for [`QUIET_TIME`], so that the calls don't slow down the program that makes them, or after [`MAX_DELAY`]
//! or when [`MAX_WAITING`] of them wait. Most handles of a program that walks a tree don't live that long,
//! and cost the server nothing.
//!
//! The server may keep a file open that it has sealed. If the client then removes the file in the tree, its
//! space is free only when the server notices that, which takes seconds. So the server is asked for the
//! attributes of large files that were removed: it closes a file that has no name any more.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream;
use parking_lot::Mutex;
use tokio::runtime::Handle as Runtime;
use tokio::sync::Semaphore;

use crate::handle::{Handle, WeakHandle};
use crate::operations::Operations as _;
use crate::wire::{Wire, WireCaller};

/// How long no new handles are made before the others are sealed.
const QUIET_TIME: Duration = Duration::from_secs(1);

/// How long a handle waits if new ones are made all the time.
const MAX_DELAY: Duration = Duration::from_secs(10);

/// The most handles that wait. More of them are sealed when a call needs them.
const MAX_WAITING: usize = 65_536;

/// The number of LOOKUPs under way at once.
const MAX_CALLS: usize = 16;

/// The space of a removed file in bytes from which on the server is asked about it.
const LARGE: u64 = 1 << 20;

/// The most removed files that the server is asked about at once. It notices the others by itself.
const MAX_REMOVED: usize = 64;

#[derive(Debug, Default)]
struct Waiting {
    handles: VecDeque<WeakHandle>,
    /// When the first of them and the last one were added.
    added: Option<(Instant, Instant)>,
    /// Whether the task runs that seals them.
    has_task: bool,
}

impl Waiting {
    /// Takes the handles if it is time to seal them.
    fn take_due(&mut self, now: Instant) -> Option<VecDeque<WeakHandle>> {
        let (first, last) = self.added?;
        let since = |then| now.saturating_duration_since(then);
        let is_full = self.handles.len() >= MAX_WAITING;
        (is_full || since(last) >= QUIET_TIME || since(first) >= MAX_DELAY).then(|| {
            self.added = None;
            std::mem::take(&mut self.handles)
        })
    }
}

/// The handles of a session that wait for their seals.
#[derive(Debug)]
pub(crate) struct SealQueue {
    runtime: Runtime,
    wire: OnceLock<Weak<Wire>>,
    waiting: Mutex<Waiting>,
    removed: Arc<Semaphore>,
}

impl SealQueue {
    /// An empty queue. Must run in a tokio runtime.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            runtime: Runtime::current(),
            wire: OnceLock::new(),
            waiting: Mutex::default(),
            removed: Arc::new(Semaphore::new(MAX_REMOVED)),
        })
    }

    /// Says over what the handles are sealed.
    pub(crate) fn set_wire(&self, wire: &Arc<Wire>) {
        let _ = self.wire.set(Arc::downgrade(wire));
    }

    /// Adds a handle, which is sealed later if it is still in use then.
    pub(crate) fn push(self: &Arc<Self>, handle: &Handle) {
        let Some(weak) = handle.downgrade().filter(|_| !handle.is_sealed()) else { return };
        let now = Instant::now();
        let mut waiting = self.waiting.lock();
        if waiting.handles.len() >= MAX_WAITING {
            return;
        }
        waiting.handles.push_back(weak);
        waiting.added = Some((waiting.added.map_or(now, |(first, _)| first), now));
        if !waiting.has_task {
            waiting.has_task = true;
            self.runtime.spawn(Arc::clone(self).seal_all());
        }
    }

    /// Lets the server close a file that occupies `space` bytes, and whose last name was removed in the tree.
    pub(crate) fn removed(&self, handle: &Handle, space: u64) {
        if space < LARGE || !handle.is_sealed() {
            return;
        }
        let Some(wire) = self.wire.get().and_then(Weak::upgrade) else { return };
        let Ok(permit) = self.removed.clone().try_acquire_owned() else { return };
        let handle = handle.clone();
        self.runtime.spawn(async move {
            // It answers NFS3ERR_STALE.
            let _ = wire.protocol.attributes(&wire.owner, &handle).await;
            drop(permit);
        });
    }

    /// Seals the waiting handles in rounds, until there are none.
    async fn seal_all(self: Arc<Self>) {
        loop {
            tokio::time::sleep(QUIET_TIME).await;
            let handles = {
                let mut waiting = self.waiting.lock();
                if waiting.handles.is_empty() {
                    waiting.has_task = false;
                    return;
                }
                match waiting.take_due(Instant::now()) {
                    Some(handles) => handles,
                    None => continue,
                }
            };
            let Some(wire) = self.wire.get().and_then(Weak::upgrade) else { return };
            let caller = WireCaller { user: wire.owner.clone(), wire };
            let unsealed = stream::iter(handles.iter().filter_map(WeakHandle::upgrade));
            let sealing = unsealed.for_each_concurrent(MAX_CALLS, |handle| {
                let caller = &caller;
                async move {
                    if let Err(error) = caller.seal(&[&handle]).await {
                        tracing::debug!(?handle, %error, "not sealed");
                    }
                }
            });
            sealing.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_due_when_no_more_are_made_or_after_a_while() {
        let start = Instant::now();
        let added = |first, last| Some((start + first, start + last));
        let seconds = Duration::from_secs;
        let mut waiting = Waiting::default();
        assert!(waiting.take_due(start).is_none());
        waiting.added = added(seconds(0), seconds(5));
        assert!(waiting.take_due(start + Duration::from_millis(5999)).is_none());
        assert!(waiting.take_due(start + seconds(6)).is_some() && waiting.added.is_none());
        waiting.added = added(seconds(0), seconds(10));
        assert!(waiting.take_due(start + seconds(10)).is_some());
        waiting.added = added(seconds(0), seconds(0));
        waiting.handles.extend((1..MAX_WAITING).map(|_| WeakHandle::of_no_file()));
        assert!(waiting.take_due(start).is_none());
        waiting.handles.push_back(WeakHandle::of_no_file());
        assert!(waiting.take_due(start).is_some());
    }
}
