//! A small number for every thread, so that what many threads write often can have a cache line for each of
//! them.
//!
//! A thread gets its place when it first asks, keeps it until it ends, and is alone there. The first
//! [`PLACES`] threads that live at a time have one; the others, and a thread that is just ending, have none
//! and share something else.

use std::sync::Mutex;

/// How many places there are.
pub const PLACES: usize = 64;

/// Given back, and the first that was never given. Bounded by [`PLACES`].
struct Free {
    given_back: Vec<usize>,
    next: usize,
}

static FREE: Mutex<Free> = Mutex::new(Free { given_back: Vec::new(), next: 0 });

/// A thread's own; its end gives it back.
struct Place(Option<usize>);

impl Place {
    fn take() -> Self {
        let mut free = FREE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        Self(free.given_back.pop().or_else(|| {
            let place = free.next;
            (place < PLACES).then(|| {
                free.next += 1;
                place
            })
        }))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            FREE.lock().unwrap_or_else(std::sync::PoisonError::into_inner).given_back.push(place);
        }
    }
}

thread_local! {
    static PLACE: Place = Place::take();
}

/// This thread's place, below [`PLACES`], if it has one. Stays the same as long as the thread lives.
#[inline]
#[must_use]
pub fn of_this_thread() -> Option<usize> {
    PLACE.try_with(|place| place.0).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::Barrier;

    #[test]
    fn threads_that_live_together_have_different_places() {
        for _ in 0..3 {
            let all_here = Barrier::new(PLACES + 20);
            let places: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..PLACES + 20)
                    .map(|_| {
                        scope.spawn(|| {
                            let place = of_this_thread();
                            all_here.wait();
                            assert_eq!(of_this_thread(), place);
                            place
                        })
                    })
                    .collect();
                threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
            });
            let some: Vec<_> = places.iter().flatten().collect();
            assert!(some.iter().all(|place| **place < PLACES));
            assert_eq!(some.iter().collect::<HashSet<_>>().len(), some.len());
            // Other tests' threads may have a few.
            assert!(some.len() > PLACES / 2, "{}", some.len());
        }
    }
}
