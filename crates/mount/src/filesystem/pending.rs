//! Affairs that are under way behind a request's back, and who must not come before their end.

use std::collections::HashMap;
use std::hash::Hash;
use std::pin::pin;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// How many are under way, by what they are about.
#[derive(Debug)]
pub(super) struct Pending<K> {
    counts: Mutex<HashMap<K, u32>>,
    ended: Notify,
}

impl<K> Default for Pending<K> {
    fn default() -> Self {
        Self { counts: Mutex::default(), ended: Notify::new() }
    }
}

impl<K: Copy + Eq + Hash> Pending<K> {
    /// One begins; it ends when this is dropped.
    pub(super) fn begin(self: &Arc<Self>, about: K) -> Affair<K> {
        *self.counts.lock().entry(about).or_default() += 1;
        Affair { pending: self.clone(), about }
    }

    /// Whether any is under way.
    pub(super) fn has(&self, about: &K) -> bool {
        self.counts.lock().contains_key(about)
    }

    /// Waits until none is under way.
    pub(super) async fn settled(&self, about: &K) {
        loop {
            let mut ended = pin!(self.ended.notified());
            ended.as_mut().enable();
            if !self.has(about) {
                return;
            }
            ended.await;
        }
    }
}

/// One of them.
#[derive(Debug)]
pub(super) struct Affair<K: Copy + Eq + Hash> {
    pending: Arc<Pending<K>>,
    about: K,
}

impl<K: Copy + Eq + Hash> Drop for Affair<K> {
    fn drop(&mut self) {
        let mut counts = self.pending.counts.lock();
        if let Some(count) = counts.get_mut(&self.about) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.about);
                self.pending.ended.notify_waiters();
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
    fn who_waits_waits_for_all_that_are_about_the_same() {
        let pending = Arc::<Pending<u64>>::default();
        let (one, two, other) = (pending.begin(1), pending.begin(1), pending.begin(2));
        let mut settled = pin!(pending.settled(&1));
        let mut poll = || settled.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(poll(), Poll::Pending);
        drop(one);
        assert_eq!(poll(), Poll::Pending);
        drop(two);
        assert_eq!(poll(), Poll::Ready(()));
        assert!(pending.has(&2) && !pending.has(&1));
        drop(other);
        assert!(!pending.has(&2));
    }
}
