//! What a server said of a file that doesn't change without its change attribute: its access control lists,
//! the names of its extended attributes.
//!
//! It belongs to the attributes that the file had then, and holds as long as they are valid and show the same
//! change attribute, times, owner and mode.

use std::time::Instant;

use super::search::MAX_AGE;

/// The cached value.
#[derive(Debug)]
pub(crate) struct ByChange<T> {
    /// With the time until which it holds, if that is limited.
    known: Option<(T, Option<Instant>)>,
    /// When a process of this mount last changed it.
    changed: Option<Instant>,
}

impl<T> Default for ByChange<T> {
    fn default() -> Self {
        Self { known: None, changed: None }
    }
}

impl<T> ByChange<T> {
    /// The value, if it is known.
    pub(crate) fn get(&self, now: Instant) -> Option<&T> {
        let known = self.known.as_ref().filter(|(_, until)| until.is_none_or(|until| now < until));
        known.map(|(value, _)| value)
    }

    /// Enters the value of a reply to a request of `asked`, when the file had the cached attributes.
    ///
    /// A later change shows in the change attribute if that `is_settled`. Otherwise it may be one within the
    /// same tick of the clock, and the value doesn't hold for long.
    ///
    /// Returns whether it is still true: it isn't if a process of this mount has changed it since.
    pub(crate) fn enter(&mut self, value: T, is_settled: bool, asked: Instant) -> bool {
        let is_true = self.changed.is_none_or(|changed| changed < asked);
        if is_true {
            self.known = Some((value, (!is_settled).then(|| asked + MAX_AGE)));
        }
        is_true
    }

    /// The file has another change attribute because of what this mount did by `now`. Another client may have
    /// changed the value meanwhile.
    pub(super) fn limit(&mut self, now: Instant) {
        if let Some((_, until)) = &mut self.known {
            until.get_or_insert(now + MAX_AGE);
        }
    }

    /// The attributes show that the value may have changed.
    pub(super) fn clear(&mut self) {
        self.known = None;
    }

    /// A process of this mount has changed the value by `now`.
    pub(crate) fn forget(&mut self, now: Instant) {
        self.clear();
        self.changed = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_value_is_known_until_it_may_have_changed() {
        let (now, mut cache) = (Instant::now(), ByChange::default());
        assert_eq!(cache.get(now), None);
        cache.enter(1, false, now);
        assert_eq!(cache.get(now), Some(&1));
        assert_eq!(cache.get(now + MAX_AGE), None, "a change within one tick of the clock");
        cache.enter(2, true, now);
        assert_eq!(cache.get(now + 2 * MAX_AGE), Some(&2));
        cache.limit(now);
        assert_eq!((cache.get(now), cache.get(now + MAX_AGE)), (Some(&2), None));
        cache.clear();
        assert_eq!(cache.get(now), None);
        cache.forget(now);
        assert!(!cache.enter(3, true, now), "a reply that the change has overtaken");
        assert_eq!(cache.get(now), None);
        assert!(cache.enter(4, true, now + Duration::from_secs(1)));
        assert_eq!(cache.get(now), Some(&4));
    }
}
