//! Fallbacks for I/O modes that a filesystem doesn't support.
//!
//! Filesystems report an unsupported mode only when it is used. The first failure is remembered, so that the
//! mode isn't tried again and the administrator can see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::IoMode;

/// The modes that one filesystem doesn't support, shared by all its users.
#[derive(Debug, Default)]
pub struct UnsupportedModes {
    no_dontcache: AtomicBool,
    no_alignment: AtomicBool,
    no_direct: AtomicBool,
}

/// The unsupported modes of a filesystem, and how often this user of it (an export, a session) used a
/// fallback.
#[derive(Debug, Default)]
pub struct IoFallbacks {
    refusals: Arc<UnsupportedModes>,
    copies: AtomicU64,
}

impl IoFallbacks {
    /// For another user of a filesystem.
    #[must_use]
    pub fn on(refusals: Arc<UnsupportedModes>) -> Self {
        Self { refusals, copies: AtomicU64::new(0) }
    }

    /// `mode`, or buffered if the filesystem is known not to support it.
    #[must_use]
    pub fn instead_of(&self, mode: IoMode) -> IoMode {
        let refused = match mode {
            IoMode::Buffered => false,
            IoMode::DontCache => self.refusals.no_dontcache.load(Relaxed),
            IoMode::Direct => self.refusals.no_direct.load(Relaxed),
        };
        if refused { IoMode::Buffered } else { mode }
    }

    /// Records that the filesystem doesn't support `mode`.
    pub fn refused(&self, mode: IoMode) {
        match mode {
            IoMode::Buffered => {}
            IoMode::DontCache => self.refusals.no_dontcache.store(true, Relaxed),
            IoMode::Direct => self.refusals.no_direct.store(true, Relaxed),
        }
    }

    /// Records that the filesystem doesn't report the alignment for direct I/O with one of its files.
    pub fn alignment_unknown(&self) {
        self.refusals.no_alignment.store(true, Relaxed);
    }

    pub(crate) fn copied(&self) {
        self.copies.fetch_add(1, Relaxed);
    }

    /// How many writes had their direct part copied, because their memory wasn't aligned.
    #[must_use]
    pub fn copies(&self) -> u64 {
        self.copies.load(Relaxed)
    }

    /// The fallbacks in use, for the administrator; empty while nothing was refused.
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
    fn a_refused_mode_is_shared_and_reported() {
        let refusals = Arc::new(UnsupportedModes::default());
        let [one, other] = [(); 2].map(|()| IoFallbacks::on(Arc::clone(&refusals)));
        assert_eq!(one.instead_of(IoMode::DontCache), IoMode::DontCache);
        assert!(one.notes().is_empty());
        one.refused(IoMode::DontCache);
        one.copied();
        for user in [&one, &other] {
            assert_eq!(user.instead_of(IoMode::DontCache), IoMode::Buffered);
            assert_eq!(user.instead_of(IoMode::Direct), IoMode::Direct);
            assert_eq!(user.notes().len(), 1);
        }
        assert_eq!((one.copies(), other.copies()), (1, 0));
    }
}
