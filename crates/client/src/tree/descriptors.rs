//! The `O_PATH` descriptors of a tree's files, by the identity of their handles.
//!
//! A descriptor costs little, but keeps a removed file's space in use. So their number is bounded, and those
//! that are out of use are closed from time to time ([`DescriptorCache::close_idle`]). Evicted is a
//! descriptor that hasn't been used since the last search for one (CLOCK). Descriptors are closed without the
//! lock.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ahash::RandomState;
use indexmap::IndexMap;
use parking_lot::Mutex;

use super::identity::FileIdentity;
use crate::handle::{Handle, WeakHandle};

/// A file of the tree.
#[derive(Debug)]
pub(crate) struct Descriptor {
    pub(super) file: OwnedFd,
    /// What names it.
    pub(super) identity: FileIdentity,
    /// False if that isn't known.
    pub(super) is_directory: bool,
    /// The handle that was made of it last. A cached descriptor keeps no handle in use: what is out of use
    /// needs no seal.
    pub(super) handle: Mutex<Option<WeakHandle>>,
}

impl Descriptor {
    /// Says that the file has another name now.
    pub(super) fn was_moved(&self, directory: &Handle, name: &CStr) {
        let handle = self.handle.lock().as_ref().and_then(WeakHandle::upgrade);
        if let Some(handle) = handle {
            handle.moved(directory, name.to_bytes());
        }
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A bounded set of descriptors.
#[derive(Debug)]
pub(crate) struct DescriptorCache {
    budget: usize,
    clock: Mutex<Clock>,
}

#[derive(Debug, Default)]
struct Clock {
    slots: IndexMap<FileIdentity, Slot, RandomState>,
    /// The number of slots with something else than a directory.
    files: usize,
    /// Where the next search begins.
    hand: usize,
}

#[derive(Debug)]
struct Slot {
    descriptor: Arc<Descriptor>,
    /// Used since the hand, or `close_idle`, passed.
    used: bool,
}

impl DescriptorCache {
    /// A cache of at most `budget` descriptors, and at least one.
    pub(crate) fn new(budget: usize) -> Self {
        Self { budget: budget.max(1), clock: Mutex::default() }
    }

    /// The descriptor of the file with this identity.
    pub(crate) fn get(&self, identity: &[u8]) -> Option<Arc<Descriptor>> {
        let mut clock = self.clock.lock();
        let slot = clock.slots.get_mut(identity)?;
        slot.used = true;
        Some(Arc::clone(&slot.descriptor))
    }

    /// Adds a descriptor. Returns the one that the cache has for the file from now on: another thread's, if
    /// that one was faster.
    pub(crate) fn insert(&self, new: Descriptor) -> Arc<Descriptor> {
        let mut clock = self.clock.lock();
        if let Some(slot) = clock.slots.get(&new.identity) {
            return Arc::clone(&slot.descriptor);
        }
        let evicted = if clock.slots.len() >= self.budget { clock.evict() } else { None };
        let descriptor = Arc::new(new);
        clock.files += usize::from(!descriptor.is_directory);
        clock.slots.insert(descriptor.identity, Slot { descriptor: Arc::clone(&descriptor), used: false });
        drop(clock);
        drop(evicted);
        descriptor
    }

    /// Whether an insertion evicts nothing.
    pub(crate) fn has_room(&self) -> bool {
        self.clock.lock().slots.len() < self.budget
    }

    /// Whether there are no descriptors.
    pub(crate) fn is_empty(&self) -> bool {
        self.clock.lock().slots.is_empty()
    }

    /// Whether there are descriptors of anything else than directories.
    pub(crate) fn has_files(&self) -> bool {
        self.clock.lock().files > 0
    }

    /// Removes a file's descriptor.
    pub(crate) fn remove(&self, identity: &[u8]) {
        let mut clock = self.clock.lock();
        let removed = clock.slots.get_index_of(identity).and_then(|index| clock.remove(index));
        drop(clock);
        drop(removed);
    }

    /// Removes half of the descriptors, because the process or the system has too many.
    pub(crate) fn halve(&self) {
        let mut clock = self.clock.lock();
        let evicted: Vec<_> = (0..clock.slots.len().div_ceil(2)).map_while(|_| clock.evict()).collect();
        drop(clock);
        drop(evicted);
    }

    /// Removes the descriptors that weren't used since the last call.
    pub(crate) fn close_idle(&self) {
        let mut idle = Vec::new();
        let mut clock = self.clock.lock();
        let mut index = 0;
        while let Some((_, slot)) = clock.slots.get_index_mut(index) {
            if std::mem::take(&mut slot.used) {
                index += 1;
            } else {
                idle.extend(clock.remove(index));
            }
        }
        drop(clock);
        drop(idle);
    }
}

impl Clock {
    /// Removes the first descriptor from the hand on that wasn't used since the hand passed it. `None` if
    /// there is no descriptor.
    fn evict(&mut self) -> Option<Arc<Descriptor>> {
        loop {
            if self.hand >= self.slots.len() {
                self.hand = 0;
            }
            let (_, slot) = self.slots.get_index_mut(self.hand)?;
            if !std::mem::take(&mut slot.used) {
                return self.remove(self.hand);
            }
            self.hand += 1;
        }
    }

    /// Removes a slot; the last one takes its place.
    fn remove(&mut self, index: usize) -> Option<Arc<Descriptor>> {
        let (_, Slot { descriptor, .. }) = self.slots.swap_remove_index(index)?;
        self.files -= usize::from(!descriptor.is_directory);
        Some(descriptor)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    /// Every third one is a directory's.
    fn descriptor(number: u32) -> Descriptor {
        let file = File::open("/dev/null").expect("a descriptor").into();
        let identity = FileIdentity::new(&[&number.to_be_bytes()]).expect("short");
        let is_directory = number.is_multiple_of(3);
        Descriptor { file, identity, is_directory, handle: Mutex::default() }
    }

    fn holds(cache: &DescriptorCache, number: u32) -> bool {
        cache.get(&number.to_be_bytes()).is_some()
    }

    /// The numbers below `end` that the cache has, without marking them as used.
    fn held(cache: &DescriptorCache, end: u32) -> Vec<u32> {
        let clock = cache.clock.lock();
        assert_eq!(clock.files, clock.slots.values().filter(|slot| !slot.descriptor.is_directory).count());
        (0..end).filter(|number| clock.slots.contains_key(&number.to_be_bytes()[..])).collect()
    }

    #[test]
    fn the_budget_is_never_exceeded_and_used_descriptors_stay() {
        let cache = DescriptorCache::new(10);
        cache.insert(descriptor(0));
        for number in 1..1000 {
            assert!(holds(&cache, 0), "used before each insertion");
            cache.insert(descriptor(number));
            assert!(held(&cache, 1000).len() <= 10);
        }
        assert!(!cache.has_room());
        assert!(holds(&cache, 999), "the last one");
    }

    #[test]
    fn a_file_has_one_descriptor() {
        let cache = DescriptorCache::new(10);
        let first = cache.insert(descriptor(7));
        assert!(Arc::ptr_eq(&first, &cache.insert(descriptor(7))));
        cache.remove(&7_u32.to_be_bytes());
        assert!(cache.is_empty() && !holds(&cache, 7));
        cache.remove(&7_u32.to_be_bytes());
    }

    #[test]
    fn a_removed_descriptor_stays_open_for_its_users() {
        let cache = DescriptorCache::new(1);
        let first = cache.insert(descriptor(1));
        cache.insert(descriptor(2));
        assert_eq!(held(&cache, 3), [2]);
        rustix::fs::fstat(&*first).expect("open");
    }

    #[test]
    fn idle_descriptors_are_closed_at_the_second_call() {
        let cache = DescriptorCache::new(100);
        (0..10).for_each(|number| drop(cache.insert(descriptor(number))));
        (0..10).for_each(|number| assert!(holds(&cache, number)));
        cache.close_idle();
        assert_eq!(held(&cache, 10).len(), 10, "all were used");
        assert!(holds(&cache, 3) && holds(&cache, 5));
        cache.close_idle();
        assert_eq!(held(&cache, 10), [3, 5]);
        assert!(holds(&cache, 3));
        cache.close_idle();
        assert!(!cache.has_files() && !cache.is_empty(), "a directory's");
        cache.close_idle();
        assert!(cache.is_empty());
    }

    #[test]
    fn half_is_closed_when_descriptors_are_short() {
        let cache = DescriptorCache::new(100);
        cache.halve();
        (0..7).for_each(|number| drop(cache.insert(descriptor(number))));
        cache.halve();
        assert_eq!(held(&cache, 7).len(), 3);
        cache.halve();
        cache.halve();
        assert!(cache.is_empty());
    }
}
