//! Operations that outlive the request that began them, and the requests that wait for their end.

use std::collections::HashMap;
use std::hash::Hash;
use std::pin::pin;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The number of operations under way for each object.
#[derive(Debug)]
pub(crate) struct InFlight<K> {
    counts: Mutex<HashMap<K, u32>>,
    ended: Notify,
}

impl<K> Default for InFlight<K> {
    fn default() -> Self {
        Self { counts: Mutex::default(), ended: Notify::new() }
    }
}

impl<K: Clone + Eq + Hash> InFlight<K> {
    /// Begins an operation, which ends when the guard is dropped.
    pub(super) fn begin(self: &Arc<Self>, object: K) -> InFlightGuard<K> {
        *self.counts.lock().entry(object.clone()).or_default() += 1;
        InFlightGuard { operations: self.clone(), object }
    }

    /// Whether an operation is under way for the object.
    pub(super) fn contains(&self, object: &K) -> bool {
        self.counts.lock().contains_key(object)
    }

    /// Waits until no operation is under way for the object.
    pub(super) async fn wait_until_idle(&self, object: &K) {
        loop {
            let mut ended = pin!(self.ended.notified());
            ended.as_mut().enable();
            if !self.contains(object) {
                return;
            }
            ended.await;
        }
    }
}

/// An operation under way.
#[derive(Debug)]
pub(crate) struct InFlightGuard<K: Clone + Eq + Hash> {
    operations: Arc<InFlight<K>>,
    object: K,
}

impl<K: Clone + Eq + Hash> Drop for InFlightGuard<K> {
    fn drop(&mut self) {
        let mut counts = self.operations.counts.lock();
        if let Some(count) = counts.get_mut(&self.object) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.object);
                self.operations.ended.notify_waiters();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn a_waiter_waits_for_all_operations_on_its_object() {
        let operations = Arc::<InFlight<u64>>::default();
        let (one, two, other) = (operations.begin(1), operations.begin(1), operations.begin(2));
        let mut idle = pin!(operations.wait_until_idle(&1));
        let mut poll = || idle.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(poll(), Poll::Pending);
        drop(one);
        assert_eq!(poll(), Poll::Pending);
        drop(two);
        assert_eq!(poll(), Poll::Ready(()));
        assert!(operations.contains(&2) && !operations.contains(&1));
        drop(other);
        assert!(!operations.contains(&2));
    }
}
