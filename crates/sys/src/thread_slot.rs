//! Small numbers for threads, so that counters written often can have a cache line per thread.
//!
//! A thread gets its slot at its first call, keeps it until it ends, and never shares it. At most
//! [`THREAD_SLOTS`] threads have a slot at any time. The others, and a thread whose thread-local storage is
//! already destroyed, have none and must use shared state instead.

use std::sync::Mutex;

/// Number of slots.
pub const THREAD_SLOTS: usize = 64;

/// The free slots: those returned by ended threads, and all from `next` on.
struct FreeSlots {
    returned: Vec<usize>,
    next: usize,
}

static FREE: Mutex<FreeSlots> = Mutex::new(FreeSlots { returned: Vec::new(), next: 0 });

/// A thread's own slot, returned when the thread ends.
struct Slot(Option<usize>);

impl Slot {
    fn take() -> Self {
        let mut free = FREE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        Self(free.returned.pop().or_else(|| {
            let slot = free.next;
            (slot < THREAD_SLOTS).then(|| {
                free.next += 1;
                slot
            })
        }))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(slot) = self.0 {
            FREE.lock().unwrap_or_else(std::sync::PoisonError::into_inner).returned.push(slot);
        }
    }
}

thread_local! {
    static SLOT: Slot = Slot::take();
}

/// This thread's slot, below [`THREAD_SLOTS`], if it has one. It stays the same for the thread's life.
#[inline]
#[must_use]
pub fn current() -> Option<usize> {
    SLOT.try_with(|slot| slot.0).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::Barrier;

    #[test]
    fn concurrent_threads_have_different_slots() {
        for _ in 0..3 {
            let all_here = Barrier::new(THREAD_SLOTS + 20);
            let slots: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..THREAD_SLOTS + 20)
                    .map(|_| {
                        scope.spawn(|| {
                            let slot = current();
                            all_here.wait();
                            assert_eq!(current(), slot);
                            slot
                        })
                    })
                    .collect();
                threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
            });
            let some: Vec<_> = slots.iter().flatten().collect();
            assert!(some.iter().all(|slot| **slot < THREAD_SLOTS));
            assert_eq!(some.iter().collect::<HashSet<_>>().len(), some.len());
            // Threads of other tests may hold a few.
            assert!(some.len() > THREAD_SLOTS / 2, "{}", some.len());
        }
    }
}
