//! A place for one shared value or none, that is looked at a million times a second and changed once a day.
//!
//! A look costs a few plain loads and stores and no locked instruction: the thread *announces* in a word of
//! its own what it is about to use, and looks again whether it is still there. Whoever changes the switch
//! keeps the old value, and lets go of it only when, after a [`barrier`] on all processors, no word announces
//! it (hazard pointers, with the barrier on the rare side).
//!
//! A value's life:
//! 1. [`Switch::set`] puts it there;
//! 2. the next `set` moves it to the old ones: no later look finds it;
//! 3. [`Switch::sweep`] lets go of it when nobody uses it; at the latest the switch's own end does, which
//!    nobody's use can outlive.
//!
//! Without membarrier(2), for a thread without a [`place`], and for a look inside a look, there's a lock.

use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicPtr, compiler_fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::barrier::{Reach, barrier, is_offered};
use crate::place::{self, PLACES};

/// What a thread is using.
#[repr(align(128))]
struct Announced(AtomicPtr<()>);

/// By place. One table for all switches of the process: addresses tell them apart.
static ANNOUNCED: [Announced; PLACES] = [const { Announced(AtomicPtr::new(null_mut())) }; PLACES];

/// The order of things in a look: announce, then look again. `load` says what is there now (`none` for
/// nothing), `announce` must not be reordered by the compiler with the `load` that follows; that the
/// processor reorders them is what the other side's barrier is for. Returns what may be used until the
/// announcement is taken back.
///
/// Apart from its use so that a model checker can run it.
#[inline]
pub fn announce_and_look<P: Copy + PartialEq>(
    none: P,
    load: impl Fn() -> P,
    announce: impl Fn(P),
) -> Option<P> {
    let mut there = load();
    while there != none {
        announce(there);
        let now = load();
        if now == there {
            return Some(there);
        }
        there = now;
    }
    announce(none);
    None
}

/// See the module.
#[derive(Debug)]
pub struct Switch<T> {
    /// Where `there` points, if looks announce themselves.
    fast: AtomicPtr<T>,
    /// Whether they do: otherwise they go by the lock.
    announces: bool,
    state: Mutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    there: Option<Arc<T>>,
    /// What was there before and may be in use.
    old: Vec<Arc<T>>,
}

/// A look at what is there; it stays alive meanwhile. Belongs to the thread that looks.
#[derive(Debug)]
pub struct Look<'a, T> {
    value: Held<T>,
    _switch: PhantomData<&'a Switch<T>>,
    /// The announcement is the thread's.
    _thread: PhantomData<*const ()>,
}

#[derive(Debug)]
enum Held<T> {
    /// By the announcement at this place.
    Announced(*const T, usize),
    Counted(Arc<T>),
}

impl<T> Switch<T> {
    /// With something there, or nothing.
    #[must_use]
    pub fn new(value: Option<Arc<T>>) -> Self {
        let switch = Self {
            fast: AtomicPtr::new(null_mut()),
            announces: is_offered(Reach::Process),
            state: Mutex::new(State { there: None, old: Vec::new() }),
        };
        switch.set(value);
        switch
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        // Nothing that can panic happens under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is there now.
    #[inline]
    pub fn look(&self) -> Option<Look<'_, T>> {
        if self.announces
            && let Some(place) = place::of_this_thread()
            && let word = &ANNOUNCED[place].0
            && word.load(Relaxed).is_null()
        {
            let announce = |value: *mut T| {
                word.store(value.cast(), Relaxed);
                compiler_fence(SeqCst);
            };
            let value = announce_and_look(null_mut(), || self.fast.load(Acquire), announce)?;
            return Some(Look::new(Held::Announced(value, place)));
        }
        self.load().map(|value| Look::new(Held::Counted(value)))
    }

    /// What is there now, to keep.
    #[must_use]
    pub fn load(&self) -> Option<Arc<T>> {
        self.state().there.clone()
    }

    /// Whether there is anything now.
    #[inline]
    #[must_use]
    pub fn is_some(&self) -> bool {
        if self.announces { !self.fast.load(Acquire).is_null() } else { self.state().there.is_some() }
    }

    /// Puts something else there, or nothing, and returns what was there. That stays alive until
    /// [`Switch::sweep`] at least: look whether nobody uses it any more.
    pub fn set(&self, value: Option<Arc<T>>) -> Option<Arc<T>> {
        let mut state = self.state();
        self.change(&mut state, value)
    }

    /// Takes `value` away if it is what is there; says whether it was.
    pub fn unset(&self, value: &Arc<T>) -> bool {
        let mut state = self.state();
        let is = state.there.as_ref().is_some_and(|there| Arc::ptr_eq(there, value));
        if is {
            self.change(&mut state, None);
        }
        is
    }

    fn change(&self, state: &mut State<T>, value: Option<Arc<T>>) -> Option<Arc<T>> {
        let pointer = value.as_ref().map_or(null_mut(), |value| Arc::as_ptr(value).cast_mut());
        self.fast.store(pointer, Release);
        let before = std::mem::replace(&mut state.there, value);
        if self.announces {
            state.old.extend(before.clone());
        }
        before
    }

    /// Lets go of what was there before and isn't looked at any more. Returns how many are still looked at
    /// (all, if the kernel refuses the barrier; what another sweep has in hands doesn't count). The first
    /// call in a process takes some ten milliseconds, others microseconds.
    pub fn sweep(&self) -> usize {
        // Nobody waits for the barrier: `set` and looks by the lock go on meanwhile.
        let old = std::mem::take(&mut self.state().old);
        if old.is_empty() {
            return 0;
        }
        let ordered = barrier(Reach::Process).is_ok();
        let in_use = |value: &Arc<T>| {
            let address: *const () = Arc::as_ptr(value).cast();
            !ordered || ANNOUNCED.iter().any(|word| word.0.load(Acquire).cast_const() == address)
        };
        let (kept, free): (Vec<_>, Vec<_>) = old.into_iter().partition(in_use);
        let left = kept.len();
        self.state().old.extend(kept);
        // Dropping a value is its owner's code: not under the lock.
        drop(free);
        left
    }
}

impl<T> Look<'_, T> {
    /// The [`place`] of the thread that looks, if it is known: to save asking again.
    #[inline]
    #[must_use]
    pub fn place(&self) -> Option<usize> {
        match self.value {
            Held::Announced(_, place) => Some(place),
            Held::Counted(_) => None,
        }
    }

    fn new(value: Held<T>) -> Self {
        Self { value, _switch: PhantomData, _thread: PhantomData }
    }

    /// The value, to keep longer than the look.
    #[must_use]
    pub fn to_arc(&self) -> Arc<T> {
        match &self.value {
            // SAFETY: the pointer came from an `Arc`, which the switch keeps as long as it is announced
            // (below); so the count is at least one and may be raised, and `from_raw` takes what was raised.
            Held::Announced(value, _) => unsafe {
                Arc::increment_strong_count(*value);
                Arc::from_raw(*value)
            },
            Held::Counted(value) => value.clone(),
        }
    }
}

impl<T> Deref for Look<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match &self.value {
            // SAFETY: when the announcement had been stored, the value was (still) there. So it was not yet
            // among the old ones, or will be found announced by the sweep that comes after its removal: the
            // barrier there puts the announcement before the reading of it. It stays announced until this
            // look is dropped, by this thread (a look isn't `Send`), and the switch, which this look borrows,
            // keeps it.
            Held::Announced(value, _) => unsafe { &**value },
            Held::Counted(value) => value,
        }
    }
}

impl<T> Drop for Look<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if let Held::Announced(_, place) = self.value {
            // Everything done with the value comes before.
            ANNOUNCED[place].0.store(null_mut(), Release);
        }
    }
}

// SAFETY: a switch is a shared `Arc<T>` behind a lock; the bare pointer beside it is only followed while the
// lock's owner keeps the `Arc`.
unsafe impl<T: Send + Sync> Send for Switch<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Switch<T> {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize};

    #[test]
    fn a_value_that_is_looked_at_stays() {
        let switch = Switch::new(Some(Arc::new(1)));
        let look = switch.look().expect("something");
        let again = switch.look().expect("a look inside a look");
        let one = switch.set(Some(Arc::new(2))).expect("one");
        assert_eq!((*look, *again, *one), (1, 1, 1));
        assert_eq!(*switch.look().expect("something"), 2);
        // Not without membarrier(2), nor when another test's threads have all the places.
        let announced = usize::from(look.place().is_some());
        assert_eq!(switch.sweep(), announced);
        drop((look, again));
        assert_eq!(switch.sweep(), 0);
        assert_eq!(Arc::strong_count(&one), 1);
        assert!(!switch.unset(&one));
        let two = switch.look().expect("something").to_arc();
        assert!(switch.unset(&two) && !switch.is_some() && switch.look().is_none());
        drop(switch);
        assert_eq!(Arc::strong_count(&two), 1);
    }

    /// Counts itself while it lives.
    struct Counted<'a>(&'a AtomicUsize, u64);

    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.1 = u64::MAX;
            self.0.fetch_sub(1, Relaxed);
        }
    }

    #[test]
    fn many_look_while_one_changes() {
        let alive = AtomicUsize::new(0);
        let value = |number| {
            alive.fetch_add(1, Relaxed);
            Some(Arc::new(Counted(&alive, number)))
        };
        let switch = Switch::new(value(0));
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut last = 0;
                    while !over.load(Relaxed) {
                        if let Some(look) = switch.look() {
                            // Never a dead one, and never back.
                            assert!(look.1 >= last && look.1 < 10_000);
                            last = look.1;
                        }
                    }
                });
            }
            for number in 1..2_000 {
                switch.set(if number % 7 == 0 { None } else { value(number) });
                switch.sweep();
            }
            over.store(true, Relaxed);
        });
        switch.set(None);
        assert_eq!(switch.sweep(), 0);
        assert_eq!(alive.load(Relaxed), 0);
    }
}
