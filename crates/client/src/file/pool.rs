//! What a session keeps of unstable data, over all its files: how much, whose, and no more than
//! [`Options::unstable_max`](crate::Options::unstable_max).
//!
//! Room is reserved before a WRITE goes out and held until what it wrote is kept or durable. Who finds none
//! commits: its own file first, then the one that keeps most. If that doesn't help, it writes stably and
//! keeps nothing; nobody waits for anybody else's room.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::kept::UncommittedWrites;
use crate::types::Handle;

/// A session's unstable data.
#[derive(Debug)]
pub(crate) struct UncommittedPool {
    max: usize,
    /// Bytes kept, and reserved.
    bytes: AtomicUsize,
    /// The files that keep any, and those that are open and did. Their opens bound them.
    files: Mutex<HashMap<Handle, Weak<UncommittedWrites>>>,
}

impl UncommittedPool {
    /// An empty one for `max` bytes.
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, bytes: AtomicUsize::new(0), files: Mutex::default() })
    }

    /// What is kept of this file, by whichever open; made if there is nothing. `name`: what errors call it.
    pub(super) fn file(self: &Arc<Self>, handle: &Handle, name: &[u8]) -> Arc<UncommittedWrites> {
        let mut files = self.files.lock();
        if let Some(kept) = files.get(handle).and_then(Weak::upgrade) {
            return kept;
        }
        let kept = Arc::new(UncommittedWrites::new(self.clone(), *handle, name));
        files.insert(*handle, Arc::downgrade(&kept));
        kept
    }

    /// What is kept of this file, if any of it is, or may be in a moment.
    #[inline]
    pub(crate) fn find(&self, handle: &Handle) -> Option<Arc<UncommittedWrites>> {
        if self.bytes.load(Relaxed) == 0 { None } else { self.look_up(handle) }
    }

    #[cold]
    fn look_up(&self, handle: &Handle) -> Option<Arc<UncommittedWrites>> {
        self.files.lock().get(handle).and_then(Weak::upgrade)
    }

    /// The file that keeps most.
    pub(super) fn largest(&self) -> Option<Arc<UncommittedWrites>> {
        let files: Vec<_> = self.files.lock().values().filter_map(Weak::upgrade).collect();
        files.into_iter().max_by_key(|kept| kept.bytes())
    }

    /// Room for `len` bytes, if there is.
    pub(super) fn reserve(self: &Arc<Self>, len: usize) -> Option<Reserved> {
        let more = |bytes: usize| bytes.checked_add(len).filter(|sum| *sum <= self.max);
        self.bytes.fetch_update(SeqCst, SeqCst, more).ok()?;
        Some(Reserved { pool: self.clone(), len })
    }

    /// A file keeps `after` bytes instead of `before`.
    pub(super) fn adjust(&self, before: usize, after: usize) {
        if after >= before {
            self.bytes.fetch_add(after - before, SeqCst);
        } else {
            self.bytes.fetch_sub(before - after, SeqCst);
        }
    }

    /// A file is gone, unless another entry stands for it by now.
    pub(super) fn forget(&self, handle: &Handle) {
        let mut files = self.files.lock();
        if files.get(handle).is_some_and(|kept| kept.strong_count() == 0) {
            files.remove(handle);
        }
    }
}

/// Room that is reserved until this is dropped.
#[derive(Debug)]
pub(super) struct Reserved {
    pool: Arc<UncommittedPool>,
    len: usize,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.pool.adjust(self.len, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(byte: u8) -> Handle {
        Handle::new(&[byte; 8]).unwrap()
    }

    #[test]
    fn room_is_bounded_and_comes_back() {
        let pool = UncommittedPool::new(100);
        let (first, second) = (pool.reserve(60).unwrap(), pool.reserve(40).unwrap());
        assert!(pool.reserve(1).is_none());
        drop(first);
        assert!(pool.reserve(61).is_none() && pool.reserve(60).is_some());
        drop(second);
        assert!(pool.reserve(usize::MAX).is_none() && pool.reserve(100).is_some());
    }

    #[test]
    fn a_file_is_one_for_all_its_opens_and_goes_with_the_last() {
        let pool = UncommittedPool::new(100);
        let one = pool.file(&handle(1), b"one");
        assert!(Arc::ptr_eq(&one, &pool.file(&handle(1), b"other name")));
        assert!(pool.find(&handle(1)).is_none(), "nothing is kept anywhere");
        let room = pool.reserve(10).unwrap();
        assert!(pool.find(&handle(1)).is_some() && pool.find(&handle(2)).is_none());
        drop(one);
        assert!(pool.find(&handle(1)).is_none() && pool.files.lock().is_empty());
        drop(room);
        assert_eq!(pool.bytes.load(SeqCst), 0);
    }
}
