//! What filesystems turned out not to do.
//!
//! A mode is a wish. Filesystems differ in what they can do, and say so only when they are asked: whoever
//! runs a plan remembers the answer, so that a filesystem is asked once, and so that an admin can see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::mode::Mode;

/// What one filesystem turned out not to do. Everybody who uses it may share what one of them has found out.
#[derive(Debug, Default)]
pub struct Refusals {
    no_dontcache: AtomicBool,
    no_alignment: AtomicBool,
    no_direct: AtomicBool,
}

/// What the filesystem turned out not to do, and how often this user of it (an export, a session) had
/// something done instead.
#[derive(Debug, Default)]
pub struct Fallbacks {
    refusals: Arc<Refusals>,
    copies: AtomicU64,
}

impl Fallbacks {
    /// For another user of a filesystem.
    #[must_use]
    pub fn on(refusals: Arc<Refusals>) -> Self {
        Self { refusals, copies: AtomicU64::new(0) }
    }

    /// `mode`, unless the filesystem is known not to do it.
    #[must_use]
    pub fn instead_of(&self, mode: Mode) -> Mode {
        let refused = match mode {
            Mode::Buffered => false,
            Mode::DontCache => self.refusals.no_dontcache.load(Relaxed),
            Mode::Direct => self.refusals.no_direct.load(Relaxed),
        };
        if refused { Mode::Buffered } else { mode }
    }

    /// It has answered that it doesn't do `mode`.
    pub fn refused(&self, mode: Mode) {
        match mode {
            Mode::Buffered => {}
            Mode::DontCache => self.refusals.no_dontcache.store(true, Relaxed),
            Mode::Direct => self.refusals.no_direct.store(true, Relaxed),
        }
    }

    /// It doesn't say how direct I/O with one of its files must be aligned.
    pub fn tells_no_alignment(&self) {
        self.refusals.no_alignment.store(true, Relaxed);
    }

    pub(crate) fn copied(&self) {
        self.copies.fetch_add(1, Relaxed);
    }

    /// How many writes had their aligned part copied because the memory it came in wasn't aligned.
    #[must_use]
    pub fn copies(&self) -> u64 {
        self.copies.load(Relaxed)
    }

    /// What is done instead of what was asked, in words for an admin; empty as long as nothing was refused.
    #[must_use]
    pub fn notes(&self) -> Vec<&'static str> {
        let known = [
            (
                &self.refusals.no_dontcache,
                "dontcache falls back to buffered: this filesystem or kernel has no RWF_DONTCACHE",
            ),
            (
                &self.refusals.no_alignment,
                "direct falls back to buffered: the filesystem tells no alignment for some of its files",
            ),
            (&self.refusals.no_direct, "direct falls back to buffered: the filesystem refused aligned I/O"),
        ];
        known.into_iter().filter(|(happened, _)| happened.load(Relaxed)).map(|(_, note)| note).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_refused_is_not_asked_for_again_by_anybody_and_is_said() {
        let refusals = Arc::new(Refusals::default());
        let [one, other] = [(); 2].map(|()| Fallbacks::on(Arc::clone(&refusals)));
        assert_eq!(one.instead_of(Mode::DontCache), Mode::DontCache);
        assert!(one.notes().is_empty());
        one.refused(Mode::DontCache);
        one.copied();
        for user in [&one, &other] {
            assert_eq!(user.instead_of(Mode::DontCache), Mode::Buffered);
            assert_eq!(user.instead_of(Mode::Direct), Mode::Direct);
            assert_eq!(user.notes().len(), 1);
        }
        assert_eq!((one.copies(), other.copies()), (1, 0));
    }
}
