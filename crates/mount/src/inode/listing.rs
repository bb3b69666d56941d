//! The listing of a directory that the kernel may have cached (FOPEN_CACHE_DIR).
//!
//! The kernel adds the replies to READDIR and READDIRPLUS to a cache of the directory, and serves later
//! listings from it. It drops the listing when a process changes the directory through this mount. Other
//! changes show in the directory's attributes only. Each open of the directory therefore decides whether the
//! kernel keeps its listing: the directory must be unchanged since before the listing was requested.

use std::time::{Duration, Instant, SystemTime};

use client::{Attributes, Timestamp};

use super::attributes::Stamp;

/// The directory's state when its last listing was requested.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CachedListing {
    before: Stamp,
    requested: Instant,
    /// The directory had changed so shortly before that it may have changed again and look unchanged.
    is_recent_change: bool,
    /// The cookie verifier of the first page.
    pub(crate) verifier: [u8; 8],
}

impl CachedListing {
    /// A listing whose first page was requested at `requested` and `time`, when the directory had the
    /// attributes `before`.
    pub(crate) fn new(
        before: &Attributes,
        (requested, time): (Instant, SystemTime),
        verifier: [u8; 8],
    ) -> Self {
        let is_recent_change = is_recent(before.ctime, time, before.settling_time());
        Self { before: Stamp::from(before), requested, is_recent_change, verifier }
    }

    /// Whether the kernel may use the listing at `now` if the directory is found unchanged. The listing of a
    /// directory brings the attributes of its files as well, so the listing isn't kept for longer than the
    /// attributes are valid.
    pub(crate) fn may_be_kept(&self, now: Instant, max_age: Duration) -> bool {
        !self.is_recent_change && now.saturating_duration_since(self.requested) < max_age
    }

    /// Whether the directory is unchanged, by attributes that were just fetched.
    pub(crate) fn is_unchanged(&self, attributes: &Attributes) -> bool {
        self.before == Stamp::from(attributes)
    }
}

/// Whether a change at `change` is less than `time` away from `now`.
fn is_recent(change: Timestamp, now: SystemTime, time: Duration) -> bool {
    if time.is_zero() {
        return false;
    }
    let Ok(now) = now.duration_since(SystemTime::UNIX_EPOCH) else { return true };
    let Ok(seconds) = u64::try_from(change.seconds) else { return false };
    let change = Duration::new(seconds, change.nanoseconds);
    now.abs_diff(change) < time
}

#[cfg(test)]
mod tests {
    use client::FileKind;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn changed_at(time: Duration) -> Attributes {
        let time =
            Timestamp { seconds: time.as_secs().try_into().unwrap(), nanoseconds: time.subsec_nanos() };
        Attributes {
            kind: FileKind::Directory,
            mode: 0o755,
            nlink: 2,
            uid: 0,
            gid: 0,
            size: 4096,
            used: 4096,
            rdev: (0, 0),
            fsid: 1,
            fileid: 2,
            atime: time,
            mtime: time,
            ctime: time,
            change: time.settled_change(),
        }
    }

    #[test]
    fn a_listing_is_kept_for_its_time_while_the_directory_is_unchanged() {
        let (start, time) = (Instant::now(), SystemTime::UNIX_EPOCH + 1000 * SECOND);
        let directory = changed_at(900 * SECOND);
        let listing = CachedListing::new(&directory, (start, time), [7; 8]);
        assert!(listing.may_be_kept(start + 2 * SECOND, 3 * SECOND));
        assert!(!listing.may_be_kept(start + 3 * SECOND, 3 * SECOND));
        assert!(!listing.may_be_kept(start, Duration::ZERO), "noac");
        assert!(listing.is_unchanged(&directory));
        assert!(!listing.is_unchanged(&changed_at(901 * SECOND)));
    }

    #[test]
    fn a_directory_that_has_just_changed_is_listed_again() {
        let (start, time) = (Instant::now(), SystemTime::UNIX_EPOCH + 1000 * SECOND);
        for (milliseconds, is_kept) in
            [(999_900, true), (999_990, false), (1_000_010, false), (998_000, false), (997_000, true)]
        {
            let change = Duration::from_millis(milliseconds);
            let listing = CachedListing::new(&changed_at(change), (start, time), [0; 8]);
            assert_eq!(listing.may_be_kept(start, SECOND), is_kept, "{change:?}");
        }
        let counted = Attributes { change: 7, ..changed_at(1000 * SECOND) };
        let listing = CachedListing::new(&counted, (start, time), [0; 8]);
        assert!(listing.may_be_kept(start, SECOND), "another change has another change attribute");
        assert!(!listing.is_unchanged(&Attributes { change: 8, ..counted }));
    }
}
