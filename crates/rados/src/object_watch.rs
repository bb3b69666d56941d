//! A watch of an object that survives lost connections.
//!
//! Invariant: after a notification, or a time in which one may have been lost, [`ObjectWatch::wait`] returns
//! at once, once. So a caller that reads the object after each return never misses a change for longer than
//! its own timeout, and that only while the cluster can't be reached.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use sys::librados::{Watch, WatchEvent};

use crate::{ObjectError, ObjectNamespace};

/// The time in seconds after which the cluster ends the watch of a process that it doesn't hear of.
const LOST_AFTER: u32 = 30;

/// What has happened since the last return of [`ObjectWatch::wait`].
#[derive(Debug, Default)]
struct Events {
    wakes: bool,
    is_broken: bool,
}

/// Ends a wait early. Clones wake the same wait.
#[derive(Debug, Clone, Default)]
pub struct Waker {
    shared: Arc<(Mutex<Events>, Condvar)>,
}

impl Waker {
    /// Ends the wait, or the next one.
    pub fn wake(&self) {
        let (events, changed) = &*self.shared;
        events.lock().wakes = true;
        changed.notify_all();
    }

    fn on_event(&self, event: WatchEvent) {
        if let WatchEvent::Broken(_) = event {
            self.shared.0.lock().is_broken = true;
        }
        self.wake();
    }
}

/// A watch of an object.
#[derive(Debug)]
pub struct ObjectWatch {
    watch: Watch,
    waker: Waker,
    namespace: ObjectNamespace,
    object: String,
}

impl ObjectNamespace {
    /// Watches an object.
    ///
    /// # Errors
    /// [`Reason::Missing`](crate::Reason::Missing) and others.
    pub fn watch(&self, object: &str) -> Result<ObjectWatch, ObjectError> {
        let waker = Waker::default();
        let events = waker.clone();
        let watch = self.session.watch(&self.name(object)?, Box::new(move |event| events.on_event(event)));
        let watch = ObjectWatch { watch, waker, namespace: self.clone(), object: object.to_owned() };
        watch.establish()?;
        Ok(watch)
    }
}

impl ObjectWatch {
    /// What ends a wait early.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn establish(&self) -> Result<(), ObjectError> {
        let established = self.watch.establish(LOST_AFTER, self.namespace.timeout);
        established.map_err(|error| self.namespace.error(&self.object, "watch", error))
    }

    /// Waits until a notification arrives, the [`Waker`] is used, or the time is up. A watch that has ended
    /// is established again first, which may take [`Settings::timeout`](crate::Settings::timeout) longer.
    ///
    /// # Errors
    /// If it has ended and can't be established again, after waiting for `timeout`.
    pub fn wait(&self, timeout: Duration) -> Result<(), ObjectError> {
        let (events, changed) = &*self.waker.shared;
        let end = Instant::now() + timeout;
        let is_broken = std::mem::take(&mut events.lock().is_broken) || self.watch.age().is_err();
        let mut result = Ok(());
        if is_broken {
            result = self.establish();
            if result.is_ok() {
                // What was announced meanwhile hasn't been heard.
                self.waker.wake();
            }
        }
        let mut events = events.lock();
        while !events.wakes && !changed.wait_until(&mut events, end).timed_out() {}
        events.wakes = false;
        result
    }
}
