//! The attribute cache of one file (nfs(5), acregmin and the like) and the version of its data, by which
//! close-to-open consistency keeps or drops the kernel's cached data. The clock is passed in.
//!
//! A reply shows a change by the change attribute, or by the size, mtime or ctime. The change is this mount's
//! own in two cases: the reply says that nothing else came between the cached attributes and its own (weak
//! cache consistency), or the file was being written here. Every other change is foreign and increments the
//! version. At an open the kernel may keep its cached data if the version is that of the last open.

use std::cmp::Ordering;
use std::time::{Duration, Instant};

use client::{AttributeUpdate, Attributes, FileKind, PreOpAttributes, Timestamp};

use crate::settings::AttributeTimes;

/// The attributes that show that a file has changed. Of an NFSv4 server the change attribute should do, but
/// some break the promise: nfs-ganesha makes it of the ctime or, in some versions, of a later mtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    change: u64,
    size: u64,
    mtime: Timestamp,
    ctime: Timestamp,
}

impl From<&Attributes> for Stamp {
    fn from(from: &Attributes) -> Self {
        Self { change: from.change, size: from.size, mtime: from.mtime, ctime: from.ctime }
    }
}

impl Stamp {
    /// The order in which a file had two states, as far as they tell. Two WRITEs may have the same ctime; the
    /// file was longer after the second one. Within one ctime most servers' change attributes grow. A server
    /// need not say so (RFC 7862 section 12.2.3), and Linux's, which counts changes, doesn't.
    fn order(&self, other: &Self, is_being_written: bool) -> Ordering {
        let by_size = if is_being_written { self.size.cmp(&other.size) } else { Ordering::Equal };
        self.ctime.cmp(&other.ctime).then(by_size).then(self.change.cmp(&other.change))
    }
}

/// Whether an operation of this mount has made the `new` attributes of the `cached` ones, and nothing else
/// came between.
fn is_only_change(operation: &PreOpAttributes, cached: &Attributes, new: &Attributes) -> bool {
    match *operation {
        PreOpAttributes::Times { size, mtime, ctime } => {
            (cached.size, cached.mtime, cached.ctime) == (size, mtime, ctime)
        }
        // The attributes were read after the operation.
        PreOpAttributes::Change { before, after } => (cached.change, new.change) == (before, after),
    }
}

#[derive(Debug, Clone, Copy)]
struct CachedAttributes {
    attributes: Attributes,
    /// When the reply arrived. Attributes that were requested later are newer.
    received: Instant,
    /// For how long the attributes are valid from `since` on.
    valid: Duration,
    /// When they were requested.
    since: Instant,
    /// The same for the last reply that confirmed them.
    asked: Instant,
    /// When the first reply with this change attribute, size and times arrived.
    seen: Instant,
}

/// What a reply shows to have happened to the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// Nothing.
    None,
    /// This mount has changed it.
    Own,
    /// Another client, or a process on the server, has changed it.
    Foreign,
}

/// The attribute cache of one file.
#[derive(Debug, Default)]
pub(crate) struct AttributeCache {
    known: Option<CachedAttributes>,
    /// The number of foreign changes.
    version: u64,
    /// The version of the data that the kernel may have cached.
    cached: Option<u64>,
    /// Opens for writing.
    writers: u32,
    /// The last write here, until attributes arrive that were requested after it and after the last close.
    wrote: Option<Instant>,
    /// When the attributes last expired. Those that were requested before have expired too.
    expired: Option<Instant>,
    /// What the kernel was last told; `None` if it has no attributes.
    reported: Option<Stamp>,
}

impl AttributeCache {
    /// The cached attributes, however old.
    pub(crate) fn get(&self) -> Option<&Attributes> {
        self.known.as_ref().map(|known| &known.attributes)
    }

    /// Whether these attributes of a reply are the cached ones, but for the time of access.
    pub(crate) fn are(&self, attributes: &Attributes) -> bool {
        let permissions = |attributes: &Attributes| (attributes.mode, attributes.uid, attributes.gid);
        self.get().is_some_and(|known| {
            Stamp::from(known) == Stamp::from(attributes) && permissions(known) == permissions(attributes)
        })
    }

    /// Whether any change since `asked` has given the file another change attribute than the cached one.
    pub(super) fn is_settled(&self, asked: Instant) -> bool {
        self.known.is_some_and(|known| {
            asked.saturating_duration_since(known.seen) >= known.attributes.settling_time()
        })
    }

    /// The number of foreign changes: another number than before means that the file has changed.
    pub(crate) const fn version(&self) -> u64 {
        self.version
    }

    /// Whether the attributes were requested at `asked` or later.
    pub(crate) fn is_newer_than(&self, asked: Instant) -> bool {
        self.known.is_some_and(|known| known.asked >= asked && known.valid > Duration::ZERO)
    }

    /// Whether the attributes are current: within their time, and requested after the last write here began
    /// or, if no reply brings its result, ended. Replies to WRITEs carry attributes, so a writer needs no
    /// GETATTR for its own changes.
    pub(crate) fn is_current(&self, now: Instant, times: &AttributeTimes) -> bool {
        !self.valid(now, times).is_zero() && self.includes_last_write()
    }

    /// Whether the attributes were requested after the last write here. When they arrived doesn't tell: the
    /// reply to an earlier request may overtake a write, above all one over the lane.
    fn includes_last_write(&self) -> bool {
        self.known.is_some_and(|known| self.wrote.is_none_or(|wrote| known.asked >= wrote))
    }

    /// The attributes, if they were requested at `since` or later, and after the last write here.
    pub(crate) fn unchanged_here_since(&self, since: Instant) -> Option<&Attributes> {
        let known = self.known.as_ref()?;
        let is_current = known.asked >= since && !known.valid.is_zero() && self.includes_last_write();
        is_current.then_some(&known.attributes)
    }

    /// The kernel is told the cached attributes.
    pub(crate) fn report(&mut self) {
        self.reported = self.known.as_ref().map(|known| Stamp::from(&known.attributes));
    }

    /// The kernel has forgotten what it was told.
    pub(crate) fn forget_report(&mut self) {
        self.reported = None;
    }

    /// Whether the kernel was told any attributes, and may still have them.
    pub(crate) const fn is_reported(&self) -> bool {
        self.reported.is_some()
    }

    /// Whether the kernel probably has the cached attributes, and will at `now` for at least half of the time
    /// that new ones would be valid.
    pub(crate) fn is_known_to_kernel(&self, now: Instant, times: &AttributeTimes) -> bool {
        let Some(known) = &self.known else { return false };
        let (min, _) = bounds(known.attributes.kind, times);
        self.reported == Some(Stamp::from(&known.attributes)) && self.valid(now, times) >= min / 2
    }

    /// Whether the kernel was told other attributes than the cached ones.
    pub(crate) fn is_reported_otherwise(&self) -> bool {
        self.reported.is_some()
            && self.reported != self.known.as_ref().map(|known| Stamp::from(&known.attributes))
    }

    /// For how long from `now` on the attributes are valid.
    pub(crate) fn valid(&self, now: Instant, times: &AttributeTimes) -> Duration {
        match &self.known {
            Some(known) if times.on => (known.since + known.valid).saturating_duration_since(now),
            _ => Duration::ZERO,
        }
    }

    /// Enters the attributes of a reply that arrived at `now`.
    pub(crate) fn update(
        &mut self,
        update: &AttributeUpdate,
        now: Instant,
        times: &AttributeTimes,
    ) -> Change {
        let Some(new) = &update.attributes else {
            // They may have changed.
            self.expire(now);
            return Change::None;
        };
        let (min, max) = match self.expired {
            Some(expired) if update.asked <= expired => (Duration::ZERO, Duration::ZERO),
            _ => bounds(new.kind, times),
        };
        let Some(known) = &mut self.known else {
            let (since, asked) = (update.asked, update.asked);
            let (attributes, received, seen) = (*new, now, now);
            self.known = Some(CachedAttributes { attributes, received, valid: min, since, asked, seen });
            return Change::None;
        };
        let (old, stamp) = (Stamp::from(&known.attributes), Stamp::from(new));
        let is_being_written = self.wrote.is_some();
        let is_next = update.before.is_some_and(|before| is_only_change(&before, &known.attributes, new));
        let is_own = is_next || is_being_written;
        // Of two calls that overlapped, either reply may show the later state.
        let overlapped = update.asked < known.received && !is_next;
        let is_uncertain =
            overlapped && !is_being_written && stamp.ctime == old.ctime && stamp.change != old.change;
        if overlapped && stamp.order(&old, is_being_written).is_lt() {
            if is_uncertain {
                known.valid = Duration::ZERO;
            }
            return Change::None;
        }
        known.attributes = *new;
        known.received = now;
        known.asked = known.asked.max(update.asked);
        if stamp == old {
            if update.asked >= known.since + known.valid {
                known.valid = (known.valid * 2).clamp(min, max);
                known.since = update.asked;
            }
            self.end_write(update.asked);
            return Change::None;
        }
        let valid = if is_uncertain { Duration::ZERO } else { min };
        (known.valid, known.since, known.seen) = (valid, update.asked, now);
        self.end_write(update.asked);
        if is_own {
            return Change::Own;
        }
        self.version += 1;
        Change::Foreign
    }

    /// Attributes that were requested after the last writer was done include its writes.
    fn end_write(&mut self, asked: Instant) {
        if self.writers == 0 && self.wrote.is_some_and(|last| asked > last) {
            self.wrote = None;
        }
    }

    /// An operation on one of the file's names has changed its link count and ctime: the attributes expire,
    /// and so do those of replies that are still under way at `now`.
    pub(crate) fn expire(&mut self, now: Instant) {
        self.expired = Some(now);
        if let Some(known) = &mut self.known {
            known.valid = Duration::ZERO;
        }
    }

    /// The file may have been changed elsewhere: the attributes expire, and names that were found in a
    /// directory must be looked up again.
    pub(crate) fn distrust(&mut self, now: Instant) {
        self.expire(now);
        self.version += 1;
    }

    /// The file is being written here, or was until `now`.
    pub(crate) fn note_write(&mut self, now: Instant) {
        self.wrote = Some(now);
    }

    /// An open for writing begins.
    pub(crate) fn open_writer(&mut self) {
        self.writers += 1;
    }

    /// An open for writing ends. If the reply to the last write, or to a later request, has brought
    /// attributes, those are current.
    pub(crate) fn close_writer(&mut self) {
        self.writers = self.writers.saturating_sub(1);
        if self.writers == 0 && self.includes_last_write() {
            self.wrote = None;
        }
    }

    /// The file is opened, and its attributes were just fetched. Returns whether the kernel may keep its
    /// cached data.
    pub(crate) fn open_cached(&mut self) -> bool {
        self.cached.replace(self.version) == Some(self.version)
    }

    /// Whether the kernel may have stale data cached; the caller invalidates it.
    pub(crate) fn take_stale_data(&mut self) -> bool {
        match &mut self.cached {
            Some(cached) if *cached != self.version => {
                *cached = self.version;
                true
            }
            _ => false,
        }
    }
}

fn bounds(kind: FileKind, times: &AttributeTimes) -> (Duration, Duration) {
    match kind {
        FileKind::Directory => (times.directory_min, times.directory_max.max(times.directory_min)),
        _ => (times.file_min, times.file_max.max(times.file_min)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: AttributeTimes = AttributeTimes {
        on: true,
        file_min: Duration::from_secs(3),
        file_max: Duration::from_secs(60),
        directory_min: Duration::from_secs(30),
        directory_max: Duration::from_secs(60),
    };

    fn file(size: u64, time: i64) -> Attributes {
        let time = Timestamp { seconds: time, nanoseconds: 0 };
        Attributes {
            kind: FileKind::Regular,
            mode: 0o644,
            nlink: 1,
            uid: 0,
            gid: 0,
            size,
            used: size,
            rdev: (0, 0),
            fsid: 1,
            fileid: 1,
            atime: time,
            mtime: time,
            ctime: time,
            change: time.settled_change(),
        }
    }

    fn before(of: &Attributes) -> PreOpAttributes {
        PreOpAttributes::Times { size: of.size, mtime: of.mtime, ctime: of.ctime }
    }

    fn asked(attributes: Attributes, at: Instant) -> AttributeUpdate {
        AttributeUpdate { before: None, attributes: Some(attributes), asked: at }
    }

    #[test]
    fn validity_doubles_while_a_file_is_unchanged() {
        let mut now = Instant::now();
        let mut cache = AttributeCache::default();
        let mut valid = Vec::new();
        for _ in 0..7 {
            cache.update(&asked(file(1, 1), now), now, &TIMES);
            valid.push(cache.valid(now, &TIMES).as_secs());
            now += cache.valid(now, &TIMES);
        }
        assert_eq!(valid, [3, 6, 12, 24, 48, 60, 60]);
        assert_eq!(cache.valid(now, &TIMES), Duration::ZERO);
        cache.update(&asked(file(2, 2), now), now, &TIMES);
        assert_eq!(cache.valid(now, &TIMES).as_secs(), 3);
        assert_eq!(cache.valid(now, &AttributeTimes { on: false, ..TIMES }), Duration::ZERO);
    }

    #[test]
    fn cached_data_is_kept_until_a_foreign_change() {
        let now = Instant::now();
        let mut cache = AttributeCache::default();
        cache.update(&asked(file(1, 1), now), now, &TIMES);
        assert!(!cache.open_cached(), "the version of what was cached before is unknown");
        assert!(cache.open_cached());
        let own = AttributeUpdate { before: Some(before(&file(1, 1))), ..asked(file(2, 2), now) };
        assert_eq!(cache.update(&own, now, &TIMES), Change::Own);
        assert!(cache.open_cached());
        assert_eq!(cache.update(&asked(file(2, 3), now), now, &TIMES), Change::Foreign);
        assert!(!cache.open_cached());
        assert!(!cache.take_stale_data());
        let other = AttributeUpdate { before: Some(before(&file(2, 4))), ..asked(file(2, 5), now) };
        assert_eq!(cache.update(&other, now, &TIMES), Change::Foreign);
        assert!(cache.take_stale_data() && !cache.take_stale_data());
    }

    #[test]
    fn the_change_attribute_alone_shows_a_change() {
        let now = Instant::now();
        let counted = |change| Attributes { change, ..file(1, 1) };
        let mut cache = AttributeCache::default();
        cache.update(&asked(counted(7), now), now, &TIMES);
        cache.open_cached();
        let read = Attributes { atime: Timestamp { seconds: 9, nanoseconds: 0 }, ..counted(7) };
        assert_eq!(cache.update(&asked(read, now), now, &TIMES), Change::None);
        assert!(cache.are(&counted(7)) && cache.open_cached(), "nothing but the time of access differs");
        let version = cache.version();
        assert_eq!(cache.update(&asked(counted(8), now), now, &TIMES), Change::Foreign);
        assert!(!cache.are(&counted(7)) && cache.version() > version && !cache.open_cached());
    }

    /// Between an operation and the attributes in its reply there may be another client's.
    #[test]
    fn an_operation_is_the_only_change_if_the_change_attributes_join() {
        let now = Instant::now();
        let counted = |change| Attributes { change, ..file(1, 1) };
        let by_operation = |before, after, shown| AttributeUpdate {
            before: Some(PreOpAttributes::Change { before, after }),
            ..asked(counted(shown), now)
        };
        let mut cache = AttributeCache::default();
        cache.update(&asked(counted(7), now), now, &TIMES);
        for (update, change) in [
            (by_operation(7, 8, 8), Change::Own),
            (by_operation(9, 10, 10), Change::Foreign),
            (by_operation(10, 11, 12), Change::Foreign),
            (by_operation(12, 13, 13), Change::Own),
        ] {
            assert_eq!(cache.update(&update, now, &TIMES), change, "{update:?}");
        }
    }

    /// Two states within one tick of the server's clock.
    #[test]
    fn of_overlapping_replies_with_one_ctime_the_one_with_the_greater_change_attribute_counts() {
        let now = Instant::now();
        let after = |millis| now + Duration::from_millis(millis);
        let counted = |change| Attributes { change, ..file(1, 1) };
        for (first, second) in [(8, 9), (9, 8)] {
            let mut cache = AttributeCache::default();
            cache.update(&asked(counted(7), now), now, &TIMES);
            cache.update(&asked(counted(first), after(1)), after(3), &TIMES);
            cache.update(&asked(counted(second), after(2)), after(4), &TIMES);
            assert_eq!(cache.get().unwrap().change, 9);
            assert!(!cache.is_newer_than(after(2)), "not every server's grows: it is asked again");
            cache.update(&asked(counted(8), after(5)), after(6), &TIMES);
            assert_eq!(cache.get().unwrap().change, 8, "a later request counts");
            assert!(cache.is_current(after(6), &TIMES));
        }
        // An operation of this mount, at a server whose change attribute doesn't grow.
        let mut cache = AttributeCache::default();
        cache.update(&asked(counted(7), now), after(2), &TIMES);
        let before = Some(PreOpAttributes::Change { before: 7, after: 5 });
        let removed = AttributeUpdate { before, ..asked(counted(5), after(1)) };
        assert_eq!(cache.update(&removed, after(3), &TIMES), Change::Own);
        assert!(cache.get().unwrap().change == 5 && cache.is_current(after(3), &TIMES));
        // This mount's own WRITEs.
        let mut cache = AttributeCache::default();
        cache.update(&asked(counted(7), now), now, &TIMES);
        cache.open_writer();
        cache.note_write(after(1));
        for (change, size, arrived) in [(9, 5, 3), (8, 5, 4), (8, 4, 5)] {
            let attributes = Attributes { size, ..counted(change) };
            cache.update(&asked(attributes, after(2)), after(arrived), &TIMES);
            assert_eq!(cache.get().map(|known| (known.change, known.size)), Some((9, 5)));
            assert!(cache.is_current(after(arrived), &TIMES), "a writer needs no GETATTR");
        }
        cache.close_writer();
        assert_eq!(
            cache.update(&asked(Attributes { size: 5, ..counted(9) }, after(6)), after(7), &TIMES),
            Change::None
        );
    }

    #[test]
    fn a_change_attribute_that_is_made_of_the_ctime_settles() {
        let now = Instant::now();
        let after = |millis| now + Duration::from_millis(millis);
        let fine = Timestamp { seconds: 5, nanoseconds: 7 };
        for (attributes, millis) in [
            (file(1, 1), 2050),
            (Attributes { ctime: fine, change: fine.settled_change(), ..file(1, 1) }, 50),
            (Attributes { change: 12, ..file(1, 1) }, 0),
        ] {
            let mut cache = AttributeCache::default();
            cache.update(&asked(attributes, now), now, &TIMES);
            assert!(cache.is_settled(after(millis)), "{attributes:?}");
            assert!(millis == 0 || !cache.is_settled(after(millis - 1)), "{attributes:?}");
        }
    }

    #[test]
    fn changes_during_writes_are_own() {
        let now = Instant::now();
        let after = |millis| now + Duration::from_millis(millis);
        let mut cache = AttributeCache::default();
        cache.update(&asked(file(1, 1), now), now, &TIMES);
        cache.open_cached();
        cache.open_writer();
        cache.note_write(after(10));
        assert_eq!(cache.update(&asked(file(5, 5), after(5)), after(11), &TIMES), Change::Own);
        cache.close_writer();
        assert_eq!(
            cache.update(&asked(file(6, 6), after(6)), after(12), &TIMES),
            Change::Own,
            "requested before the write"
        );
        assert_eq!(cache.update(&asked(file(6, 7), after(20)), after(21), &TIMES), Change::Own);
        assert_eq!(cache.update(&asked(file(6, 8), after(22)), after(23), &TIMES), Change::Foreign);
    }

    #[test]
    fn attributes_are_current_until_they_expire_or_the_file_is_written() {
        let now = Instant::now();
        let after = |millis| now + Duration::from_millis(millis);
        let mut cache = AttributeCache::default();
        assert!(!cache.is_current(now, &TIMES));
        cache.update(&asked(file(1, 1), now), now, &TIMES);
        assert!(cache.is_current(after(2_999), &TIMES) && !cache.is_current(after(3_000), &TIMES));
        cache.open_writer();
        cache.note_write(after(10));
        assert!(!cache.is_current(after(11), &TIMES), "no reply has brought the result");
        let own = AttributeUpdate { before: Some(before(&file(1, 1))), ..asked(file(2, 2), after(10)) };
        cache.update(&own, after(12), &TIMES);
        assert!(cache.is_current(after(13), &TIMES));
        assert!(!cache.is_current(after(13), &AttributeTimes { on: false, ..TIMES }));
    }

    #[test]
    fn attributes_that_were_requested_before_a_write_are_stale_whenever_they_arrive() {
        let now = Instant::now();
        let after = |millis| now + Duration::from_millis(millis);
        let mut cache = AttributeCache::default();
        cache.open_writer();
        // Written over the lane between the request and its reply.
        cache.note_write(after(10));
        cache.update(&asked(file(1, 1), after(5)), after(11), &TIMES);
        assert!(!cache.is_current(after(12), &TIMES), "an append would go to the old end");
        cache.close_writer();
        assert!(!cache.is_current(after(13), &TIMES));
        assert_eq!(cache.unchanged_here_since(now), None);
        cache.update(&asked(file(2, 2), after(14)), after(15), &TIMES);
        assert!(cache.is_current(after(16), &TIMES));
        assert_eq!(cache.unchanged_here_since(now).map(|attributes| attributes.size), Some(2));
    }

    #[test]
    fn attributes_of_the_last_write_are_current_after_close() {
        let now = Instant::now();
        let after = |millis| now + Duration::from_millis(millis);
        let mut cache = AttributeCache::default();
        cache.update(&asked(file(0, 1), now), now, &TIMES);
        cache.open_writer();
        cache.note_write(after(10));
        let own = AttributeUpdate { before: Some(before(&file(0, 1))), ..asked(file(2, 2), after(10)) };
        assert_eq!(cache.update(&own, after(11), &TIMES), Change::Own);
        cache.close_writer();
        assert!(cache.is_current(after(12), &TIMES));
        assert_eq!(cache.update(&asked(file(2, 3), after(12)), after(13), &TIMES), Change::Foreign);
    }

    #[test]
    fn an_overtaken_reply_is_ignored() {
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        let mut cache = AttributeCache::default();
        cache.update(&asked(file(1, 1), now), now, &TIMES);
        cache.update(
            &AttributeUpdate { before: Some(before(&file(1, 1))), ..asked(file(9, 9), now) },
            later,
            &TIMES,
        );
        assert_eq!(cache.update(&asked(file(1, 1), now), later, &TIMES), Change::None);
        assert_eq!(cache.get().unwrap().size, 9);
        // The server's clock may have been set back: a later request counts.
        let last = later + Duration::from_secs(1);
        assert_eq!(cache.update(&asked(file(1, 1), last), last, &TIMES), Change::Foreign);
    }

    #[test]
    fn attributes_that_were_requested_before_an_expiry_are_expired() {
        let now = Instant::now();
        let after = |millis| now + Duration::from_millis(millis);
        let mut cache = AttributeCache::default();
        cache.expire(after(1));
        cache.update(&asked(file(1, 1), now), after(2), &TIMES);
        assert_eq!(cache.valid(after(2), &TIMES), Duration::ZERO);
        cache.update(&asked(file(1, 1), after(3)), after(4), &TIMES);
        assert!(cache.is_current(after(5), &TIMES));
        cache.expire(after(6));
        for old in [file(1, 1), file(2, 2)] {
            cache.update(&asked(old, after(5)), after(7), &TIMES);
            assert!(!cache.is_current(after(7), &TIMES) && !cache.is_newer_than(after(5)));
        }
        cache.update(&asked(file(2, 2), after(8)), after(9), &TIMES);
        assert!(cache.is_current(after(10), &TIMES));
    }

    #[test]
    fn attributes_that_the_kernel_has_dropped_are_not_reported() {
        let now = Instant::now();
        let mut cache = AttributeCache::default();
        cache.update(&asked(file(1, 1), now), now, &TIMES);
        assert!(!cache.is_reported());
        cache.report();
        assert!(cache.is_known_to_kernel(now, &TIMES) && !cache.is_reported_otherwise());
        cache.update(&asked(file(2, 2), now), now, &TIMES);
        assert!(cache.is_reported_otherwise());
        cache.forget_report();
        assert!(!cache.is_reported() && !cache.is_reported_otherwise());
        cache.report();
        assert!(cache.is_known_to_kernel(now, &TIMES));
    }

    #[test]
    fn an_update_without_attributes_expires_the_cache() {
        let now = Instant::now();
        let mut cache = AttributeCache::default();
        cache.update(&asked(file(1, 1), now), now, &TIMES);
        cache.update(&AttributeUpdate { before: None, attributes: None, asked: now }, now, &TIMES);
        assert_eq!(cache.valid(now, &TIMES), Duration::ZERO);
        assert!(cache.get().is_some());
    }
}
