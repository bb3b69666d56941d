//! What is known of a file's attributes, for how long it is good, and whether the data that the kernel has
//! cached is still the file's: nfs(5)'s attribute cache and close-to-open consistency, with the clock passed
//! in.
//!
//! A change of size, mtime or ctime is this mount's own if the reply that tells of it says that before the
//! change the file was as we knew it (weak cache consistency), or if the file was being written here; every
//! other change is somebody else's, and gives the data another version. The kernel may keep its cached data
//! at an open if that has the version of the last one.

use std::time::{Duration, Instant};

use client::{AttributeUpdate, Attributes, FileKind, PreOpAttributes, Timestamp};

use crate::settings::AttributeTimes;

/// What changes whenever a file does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    size: u64,
    mtime: Timestamp,
    ctime: Timestamp,
}

impl From<&Attributes> for Stamp {
    fn from(from: &Attributes) -> Self {
        Self { size: from.size, mtime: from.mtime, ctime: from.ctime }
    }
}

impl From<&PreOpAttributes> for Stamp {
    fn from(from: &PreOpAttributes) -> Self {
        Self { size: from.size, mtime: from.mtime, ctime: from.ctime }
    }
}

#[derive(Debug, Clone, Copy)]
struct Known {
    attributes: Attributes,
    /// When they came: what was asked later is newer.
    received: Instant,
    /// For how long from `since` on, when they were asked for.
    valid: Duration,
    since: Instant,
}

/// What one reply has taught.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lesson {
    /// Nothing new.
    Same,
    /// The file has changed, by this mount's doing.
    Own,
    /// Somebody else has changed it.
    Foreign,
}

/// One file's attributes.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    known: Option<Known>,
    /// Counts the changes by others.
    version: u64,
    /// The version of the data that the kernel may have cached.
    cached: Option<u64>,
    /// Opens for writing that live.
    writers: u32,
    /// Written here since the attributes were last asked for with no writer.
    wrote: Option<Instant>,
    /// What the kernel was last told.
    told: Option<Stamp>,
}

impl Cache {
    /// The attributes as last heard of.
    pub(crate) fn attributes(&self) -> Option<&Attributes> {
        self.known.as_ref().map(|known| &known.attributes)
    }

    /// Another number than before: somebody else has changed the file.
    pub(crate) const fn version(&self) -> u64 {
        self.version
    }

    /// Whether they were heard after `asked`.
    pub(crate) fn is_newer_than(&self, asked: Instant) -> bool {
        self.known.is_some_and(|known| known.received >= asked && known.valid > Duration::ZERO)
    }

    /// Whether they may be believed now: heard within their time, and after the last write here began. The
    /// replies to WRITEs tell them, so a writer needn't ask what it has done.
    pub(crate) fn is_good(&self, now: Instant, times: &AttributeTimes) -> bool {
        let received = self.known.map(|known| known.received);
        !self.valid(now, times).is_zero()
            && received.is_some_and(|at| self.wrote.is_none_or(|wrote| at > wrote))
    }

    /// The kernel is being told the attributes.
    pub(crate) fn tell(&mut self) {
        self.told = self.known.as_ref().map(|known| Stamp::from(&known.attributes));
    }

    /// Whether the kernel was told anything.
    pub(crate) const fn is_told(&self) -> bool {
        self.told.is_some()
    }

    /// Whether the kernel may believe something else.
    pub(crate) fn is_told_otherwise(&self) -> bool {
        self.told.is_some() && self.told != self.known.as_ref().map(|known| Stamp::from(&known.attributes))
    }

    /// For how long from now on they may be believed.
    pub(crate) fn valid(&self, now: Instant, times: &AttributeTimes) -> Duration {
        match &self.known {
            Some(known) if times.on => (known.since + known.valid).saturating_duration_since(now),
            _ => Duration::ZERO,
        }
    }

    /// A reply told of the file, received `now`.
    pub(crate) fn learn(&mut self, seen: &AttributeUpdate, now: Instant, times: &AttributeTimes) -> Lesson {
        let Some(new) = &seen.attributes else {
            // They have changed, or may have, and nobody says how.
            self.distrust();
            return Lesson::Same;
        };
        let (least, most) = bounds(new.kind, times);
        let Some(known) = &mut self.known else {
            self.known = Some(Known { attributes: *new, received: now, valid: least, since: seen.asked });
            return Lesson::Same;
        };
        let (old, stamp) = (Stamp::from(&known.attributes), Stamp::from(new));
        // Two calls crossed: the one that has seen less comes too late.
        if seen.asked < known.received && stamp.ctime < old.ctime {
            return Lesson::Same;
        }
        known.attributes = *new;
        known.received = now;
        if stamp == old {
            if seen.asked >= known.since + known.valid {
                known.valid = (known.valid * 2).clamp(least, most);
                known.since = seen.asked;
            }
            self.settle(seen.asked);
            return Lesson::Same;
        }
        (known.valid, known.since) = (least, seen.asked);
        let own =
            seen.before.as_ref().is_some_and(|before| Stamp::from(before) == old) || self.wrote.is_some();
        self.settle(seen.asked);
        if own {
            return Lesson::Own;
        }
        self.version += 1;
        Lesson::Foreign
    }

    /// Attributes that were asked for when nobody wrote any more tell what we wrote.
    fn settle(&mut self, asked: Instant) {
        if self.writers == 0 && self.wrote.is_some_and(|last| asked > last) {
            self.wrote = None;
        }
    }

    /// The file has been changed by what was done to one of its names: its link count, its ctime.
    pub(crate) fn distrust(&mut self) {
        if let Some(known) = &mut self.known {
            known.valid = Duration::ZERO;
        }
    }

    /// The file is being written here, or was until `now`.
    pub(crate) fn write(&mut self, now: Instant) {
        self.wrote = Some(now);
    }

    /// An open for writing begins.
    pub(crate) fn open_writer(&mut self) {
        self.writers += 1;
    }

    /// An open for writing ends. Where a reply to the last write, or to what came behind it, has told what
    /// was written, nobody need ask.
    pub(crate) fn close_writer(&mut self) {
        self.writers = self.writers.saturating_sub(1);
        let received = self.known.map(|known| known.received);
        if self.writers == 0 && self.wrote.is_some_and(|wrote| received.is_some_and(|at| at > wrote)) {
            self.wrote = None;
        }
    }

    /// The file is opened, its attributes having just been asked for: whether the kernel may keep the data
    /// that it has cached.
    pub(crate) fn keep_data(&mut self) -> bool {
        self.cached.replace(self.version) == Some(self.version)
    }

    /// Whether the kernel may have data cached that isn't the file's any more; it is taken to be told now.
    pub(crate) fn take_stale(&mut self) -> bool {
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
            change: time.as_change(),
        }
    }

    fn before(of: &Attributes) -> PreOpAttributes {
        PreOpAttributes { size: of.size, mtime: of.mtime, ctime: of.ctime }
    }

    fn asked(attributes: Attributes, at: Instant) -> AttributeUpdate {
        AttributeUpdate { before: None, attributes: Some(attributes), asked: at }
    }

    #[test]
    fn an_unchanged_file_is_believed_ever_longer_and_a_changed_one_not() {
        let mut now = Instant::now();
        let mut cache = Cache::default();
        let mut valid = Vec::new();
        for _ in 0..7 {
            cache.learn(&asked(file(1, 1), now), now, &TIMES);
            valid.push(cache.valid(now, &TIMES).as_secs());
            now += cache.valid(now, &TIMES);
        }
        assert_eq!(valid, [3, 6, 12, 24, 48, 60, 60]);
        assert_eq!(cache.valid(now, &TIMES), Duration::ZERO);
        cache.learn(&asked(file(2, 2), now), now, &TIMES);
        assert_eq!(cache.valid(now, &TIMES).as_secs(), 3);
        assert_eq!(cache.valid(now, &AttributeTimes { on: false, ..TIMES }), Duration::ZERO);
    }

    #[test]
    fn data_is_kept_until_somebody_else_changes_the_file() {
        let now = Instant::now();
        let mut cache = Cache::default();
        cache.learn(&asked(file(1, 1), now), now, &TIMES);
        assert!(!cache.keep_data(), "nothing is known of what was cached before");
        assert!(cache.keep_data());
        let own = AttributeUpdate { before: Some(before(&file(1, 1))), ..asked(file(2, 2), now) };
        assert_eq!(cache.learn(&own, now, &TIMES), Lesson::Own);
        assert!(cache.keep_data());
        assert_eq!(cache.learn(&asked(file(2, 3), now), now, &TIMES), Lesson::Foreign);
        assert!(!cache.keep_data());
        assert!(!cache.take_stale());
        let other = AttributeUpdate { before: Some(before(&file(2, 4))), ..asked(file(2, 5), now) };
        assert_eq!(cache.learn(&other, now, &TIMES), Lesson::Foreign);
        assert!(cache.take_stale() && !cache.take_stale());
    }

    #[test]
    fn what_changes_while_it_is_written_here_is_ours() {
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        let mut cache = Cache::default();
        cache.learn(&asked(file(1, 1), now), now, &TIMES);
        cache.keep_data();
        cache.open_writer();
        cache.write(now);
        assert_eq!(cache.learn(&asked(file(5, 5), now), now, &TIMES), Lesson::Own);
        cache.close_writer();
        assert_eq!(cache.learn(&asked(file(6, 6), now), now, &TIMES), Lesson::Own, "asked too early to tell");
        assert_eq!(cache.learn(&asked(file(6, 7), later), later, &TIMES), Lesson::Own);
        assert_eq!(cache.learn(&asked(file(6, 8), later), later, &TIMES), Lesson::Foreign);
    }

    #[test]
    fn attributes_are_good_until_their_time_is_over_or_something_is_written() {
        let now = Instant::now();
        let after = |millis| now + Duration::from_millis(millis);
        let mut cache = Cache::default();
        assert!(!cache.is_good(now, &TIMES));
        cache.learn(&asked(file(1, 1), now), now, &TIMES);
        assert!(cache.is_good(after(2_999), &TIMES) && !cache.is_good(after(3_000), &TIMES));
        cache.open_writer();
        cache.write(after(10));
        assert!(!cache.is_good(after(11), &TIMES), "nobody has said what it did");
        let own = AttributeUpdate { before: Some(before(&file(1, 1))), ..asked(file(2, 2), after(10)) };
        cache.learn(&own, after(12), &TIMES);
        assert!(cache.is_good(after(13), &TIMES));
        assert!(!cache.is_good(after(13), &AttributeTimes { on: false, ..TIMES }));
    }

    #[test]
    fn what_the_last_write_told_is_good_when_the_file_is_closed() {
        let now = Instant::now();
        let after = |millis| now + Duration::from_millis(millis);
        let mut cache = Cache::default();
        cache.learn(&asked(file(0, 1), now), now, &TIMES);
        cache.open_writer();
        cache.write(after(10));
        let own = AttributeUpdate { before: Some(before(&file(0, 1))), ..asked(file(2, 2), after(10)) };
        assert_eq!(cache.learn(&own, after(11), &TIMES), Lesson::Own);
        cache.close_writer();
        assert!(cache.is_good(after(12), &TIMES));
        assert_eq!(cache.learn(&asked(file(2, 3), after(12)), after(13), &TIMES), Lesson::Foreign);
    }

    #[test]
    fn a_reply_that_was_overtaken_teaches_nothing() {
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        let mut cache = Cache::default();
        cache.learn(&asked(file(1, 1), now), now, &TIMES);
        cache.learn(
            &AttributeUpdate { before: Some(before(&file(1, 1))), ..asked(file(9, 9), now) },
            later,
            &TIMES,
        );
        assert_eq!(cache.learn(&asked(file(1, 1), now), later, &TIMES), Lesson::Same);
        assert_eq!(cache.attributes().unwrap().size, 9);
        // A server whose clock went back is believed when it was asked afterwards.
        let last = later + Duration::from_secs(1);
        assert_eq!(cache.learn(&asked(file(1, 1), last), last, &TIMES), Lesson::Foreign);
    }

    #[test]
    fn without_attributes_the_old_ones_expire() {
        let now = Instant::now();
        let mut cache = Cache::default();
        cache.learn(&asked(file(1, 1), now), now, &TIMES);
        cache.learn(&AttributeUpdate { before: None, attributes: None, asked: now }, now, &TIMES);
        assert_eq!(cache.valid(now, &TIMES), Duration::ZERO);
        assert!(cache.attributes().is_some());
    }
}
