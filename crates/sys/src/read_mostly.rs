//! [`ReadMostly`]: an optional `Arc` that is read a million times a second and replaced once a day.
//!
//! A read costs a few plain loads and stores and no locked instruction. The reading thread stores the pointer
//! in a hazard slot of its own and then checks that the pointer is still current. A writer keeps the replaced
//! value, and releases it only when, after a [`barrier`] on all processors, no hazard slot contains it. These
//! are hazard pointers with the memory barrier moved to the rare side.
//!
//! The life of a value:
//! 1. [`ReadMostly::set`] makes it current.
//! 2. The next `set` retires it: no later read finds it.
//! 3. [`ReadMostly::reclaim`] releases it once no thread reads it. Dropping the `ReadMostly` releases the
//!    rest, which no guard can outlive.
//!
//! A read takes a lock instead where membarrier(2) isn't available, in a thread without a [`thread_slot`],
//! and while the thread holds another guard.

use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicPtr, compiler_fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::barrier::{BarrierScope, barrier, is_offered};
use crate::thread_slot::{self, THREAD_SLOTS};

/// The pointer that one thread is using.
#[repr(align(128))]
struct HazardSlot(AtomicPtr<()>);

/// By thread slot. All `ReadMostly` values of the process share the table: addresses distinguish them.
static HAZARDS: [HazardSlot; THREAD_SLOTS] = [const { HazardSlot(AtomicPtr::new(null_mut())) }; THREAD_SLOTS];

/// The protocol of a read: publish the pointer, then check that it is still current. `load` returns the
/// current pointer (`none` for no value). The compiler must not reorder `publish` with the `load` that
/// follows it; reordering by the processor is what the writer's barrier is for. The returned pointer may be
/// used until the publication is withdrawn.
///
/// A function of its own so that a model checker can run it.
#[inline]
pub fn protect<P: Copy + PartialEq>(none: P, load: impl Fn() -> P, publish: impl Fn(P)) -> Option<P> {
    let mut current = load();
    while current != none {
        publish(current);
        let now = load();
        if now == current {
            return Some(current);
        }
        current = now;
    }
    publish(none);
    None
}

/// An optional shared value that is read without locked instructions. See the module.
#[derive(Debug)]
pub struct ReadMostly<T> {
    /// Points to the current value, for reads by hazard slot.
    pointer: AtomicPtr<T>,
    /// Whether reads use hazard slots; otherwise they take the lock.
    uses_hazards: bool,
    state: Mutex<Values<T>>,
}

#[derive(Debug)]
struct Values<T> {
    current: Option<Arc<T>>,
    /// Replaced values that may still be in use.
    retired: Vec<Arc<T>>,
}

/// Keeps the value that was read alive. Belongs to the reading thread.
#[derive(Debug)]
pub struct ReadGuard<'a, T> {
    value: Protected<T>,
    _owner: PhantomData<&'a ReadMostly<T>>,
    /// The hazard slot belongs to the thread.
    _thread: PhantomData<*const ()>,
}

#[derive(Debug)]
enum Protected<T> {
    /// By the hazard slot with this index.
    Hazard(*const T, usize),
    Counted(Arc<T>),
}

impl<T> ReadMostly<T> {
    /// With a value, or none.
    #[must_use]
    pub fn new(value: Option<Arc<T>>) -> Self {
        let new = Self {
            pointer: AtomicPtr::new(null_mut()),
            uses_hazards: is_offered(BarrierScope::Process),
            state: Mutex::new(Values { current: None, retired: Vec::new() }),
        };
        new.set(value);
        new
    }

    fn values(&self) -> MutexGuard<'_, Values<T>> {
        // No code that can panic runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current value, protected by a guard.
    #[inline]
    pub fn read(&self) -> Option<ReadGuard<'_, T>> {
        if self.uses_hazards
            && let Some(slot) = thread_slot::current()
            && let word = &HAZARDS[slot].0
            && word.load(Relaxed).is_null()
        {
            let publish = |value: *mut T| {
                word.store(value.cast(), Relaxed);
                compiler_fence(SeqCst);
            };
            let value = protect(null_mut(), || self.pointer.load(Acquire), publish)?;
            return Some(ReadGuard::new(Protected::Hazard(value, slot)));
        }
        self.load().map(|value| ReadGuard::new(Protected::Counted(value)))
    }

    /// The current value, for longer use.
    #[must_use]
    pub fn load(&self) -> Option<Arc<T>> {
        self.values().current.clone()
    }

    /// Whether there is a value now.
    #[inline]
    #[must_use]
    pub fn is_some(&self) -> bool {
        if self.uses_hazards {
            !self.pointer.load(Acquire).is_null()
        } else {
            self.values().current.is_some()
        }
    }

    /// Replaces the value and returns the previous one, which stays allocated at least until
    /// [`ReadMostly::reclaim`].
    pub fn set(&self, value: Option<Arc<T>>) -> Option<Arc<T>> {
        let mut values = self.values();
        self.replace(&mut values, value)
    }

    /// Removes `value` if it is the current one, and returns whether it was.
    pub fn remove(&self, value: &Arc<T>) -> bool {
        let mut values = self.values();
        let is_current = values.current.as_ref().is_some_and(|current| Arc::ptr_eq(current, value));
        if is_current {
            self.replace(&mut values, None);
        }
        is_current
    }

    fn replace(&self, values: &mut Values<T>, value: Option<Arc<T>>) -> Option<Arc<T>> {
        let pointer = value.as_ref().map_or(null_mut(), |value| Arc::as_ptr(value).cast_mut());
        self.pointer.store(pointer, Release);
        let before = std::mem::replace(&mut values.current, value);
        if self.uses_hazards {
            values.retired.extend(before.clone());
        }
        before
    }

    /// Releases the retired values that no thread reads any more. Returns how many are still in use: all of
    /// them if the kernel refuses the barrier; those that a concurrent call is examining aren't counted. The
    /// first call in a process takes some ten milliseconds, later ones microseconds.
    pub fn reclaim(&self) -> usize {
        // The lock is not held during the barrier, so `set` and reads by the lock don't wait for it.
        let retired = std::mem::take(&mut self.values().retired);
        if retired.is_empty() {
            return 0;
        }
        let ordered = barrier(BarrierScope::Process).is_ok();
        let in_use = |value: &Arc<T>| {
            let address: *const () = Arc::as_ptr(value).cast();
            !ordered || HAZARDS.iter().any(|word| word.0.load(Acquire).cast_const() == address)
        };
        let (kept, free): (Vec<_>, Vec<_>) = retired.into_iter().partition(in_use);
        let left = kept.len();
        self.values().retired.extend(kept);
        // Destructors are foreign code, so they run without the lock.
        drop(free);
        left
    }
}

impl<T> ReadGuard<'_, T> {
    /// The [`thread_slot`] of the reading thread, if the read used it. Saves another look-up.
    #[inline]
    #[must_use]
    pub fn thread_slot(&self) -> Option<usize> {
        match self.value {
            Protected::Hazard(_, slot) => Some(slot),
            Protected::Counted(_) => None,
        }
    }

    fn new(value: Protected<T>) -> Self {
        Self { value, _owner: PhantomData, _thread: PhantomData }
    }

    /// The value, for longer than the guard lives.
    #[must_use]
    pub fn to_arc(&self) -> Arc<T> {
        match &self.value {
            // SAFETY: the pointer came from an `Arc` that the `ReadMostly` keeps while a hazard slot contains
            // it (see `deref`), so the strong count is at least one. `from_raw` takes over the count that
            // `increment_strong_count` added.
            Protected::Hazard(value, _) => unsafe {
                Arc::increment_strong_count(*value);
                Arc::from_raw(*value)
            },
            Protected::Counted(value) => value.clone(),
        }
    }
}

impl<T> Deref for ReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match &self.value {
            // SAFETY: the value must be alive. It was current after the hazard slot had been stored, so it
            // was either not retired then, or is found in the slot by the `reclaim` that follows its
            // retirement: the barrier there orders this thread's store before the scan of the slots. The slot
            // keeps the pointer until this guard is dropped by this thread (a guard isn't `Send`), and the
            // `ReadMostly`, which the guard borrows, keeps the `Arc`.
            Protected::Hazard(value, _) => unsafe { &**value },
            Protected::Counted(value) => value,
        }
    }
}

impl<T> Drop for ReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if let Protected::Hazard(_, slot) = self.value {
            // Release: all uses of the value come before.
            HAZARDS[slot].0.store(null_mut(), Release);
        }
    }
}

// SAFETY: a `ReadMostly` shares `Arc<T>`s, which needs `T: Send + Sync`. The raw pointer beside them is only
// followed while the `ReadMostly` keeps the `Arc`.
unsafe impl<T: Send + Sync> Send for ReadMostly<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Send + Sync> Sync for ReadMostly<T> {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize};

    #[test]
    fn a_guarded_value_stays_allocated() {
        let cell = ReadMostly::new(Some(Arc::new(1)));
        let guard = cell.read().expect("a value");
        let nested = cell.read().expect("a nested read");
        let one = cell.set(Some(Arc::new(2))).expect("one");
        assert_eq!((*guard, *nested, *one), (1, 1, 1));
        assert_eq!(*cell.read().expect("a value"), 2);
        // Zero without membarrier(2), or when threads of other tests hold all slots.
        let hazards = usize::from(guard.thread_slot().is_some());
        assert_eq!(cell.reclaim(), hazards);
        drop((guard, nested));
        assert_eq!(cell.reclaim(), 0);
        assert_eq!(Arc::strong_count(&one), 1);
        assert!(!cell.remove(&one));
        let two = cell.read().expect("a value").to_arc();
        assert!(cell.remove(&two) && !cell.is_some() && cell.read().is_none());
        drop(cell);
        assert_eq!(Arc::strong_count(&two), 1);
    }

    /// Counts the live values.
    struct Counted<'a>(&'a AtomicUsize, u64);

    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.1 = u64::MAX;
            self.0.fetch_sub(1, Relaxed);
        }
    }

    #[test]
    fn concurrent_reads_see_live_values_in_order() {
        let alive = AtomicUsize::new(0);
        let value = |number| {
            alive.fetch_add(1, Relaxed);
            Some(Arc::new(Counted(&alive, number)))
        };
        let cell = ReadMostly::new(value(0));
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut last = 0;
                    while !over.load(Relaxed) {
                        if let Some(guard) = cell.read() {
                            // Neither a dropped value nor an older one.
                            assert!(guard.1 >= last && guard.1 < 10_000);
                            last = guard.1;
                        }
                    }
                });
            }
            for number in 1..2_000 {
                cell.set(if number % 7 == 0 { None } else { value(number) });
                cell.reclaim();
            }
            over.store(true, Relaxed);
        });
        cell.set(None);
        assert_eq!(cell.reclaim(), 0);
        assert_eq!(alive.load(Relaxed), 0);
    }
}
