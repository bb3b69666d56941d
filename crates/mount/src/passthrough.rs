//! Whether opens are passed through in the kernel, and the results of those that were tried.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::backing::Refusal;

/// The state of passthrough.
#[derive(Debug)]
pub(crate) struct Passthrough {
    allowed: AtomicBool,
    reasons: Mutex<Reasons>,
    passed: AtomicU64,
    refused: AtomicU64,
}

#[derive(Debug, Default)]
struct Reasons {
    /// Why the last open wasn't passed through; `None` if it was.
    last: Option<String>,
    /// The last reason in the log.
    logged: Option<String>,
}

impl Passthrough {
    /// Allowed, unless there is a reason against it.
    pub(crate) fn new(reason: Option<String>) -> Self {
        Self {
            allowed: AtomicBool::new(reason.is_none()),
            reasons: Mutex::new(Reasons { last: reason, logged: None }),
            passed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    pub(crate) fn is_allowed(&self) -> bool {
        self.allowed.load(Relaxed)
    }

    /// An open was passed through.
    pub(crate) fn note_passed(&self) {
        self.passed.fetch_add(1, Relaxed);
        self.reasons.lock().last = None;
    }

    /// The kernel refused a backing file.
    pub(crate) fn note_refused(&self, refusal: Refusal) {
        self.refused.fetch_add(1, Relaxed);
        if refusal.is_permanent {
            self.allowed.store(false, Relaxed);
        }
        let mut reasons = self.reasons.lock();
        if reasons.logged.as_ref() != Some(&refusal.reason) {
            tracing::info!(
                reason = %refusal.reason,
                "not passed through: this process reads and writes granted files"
            );
            reasons.logged = Some(refusal.reason.clone());
        }
        reasons.last = Some(refusal.reason);
    }

    /// Why the last open wasn't passed through, the number of opens that were, and of those that the kernel
    /// refused.
    pub(crate) fn results(&self) -> (Option<String>, u64, u64) {
        (self.reasons.lock().last.clone(), self.passed.load(Relaxed), self.refused.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(reason: &str, is_permanent: bool) -> Refusal {
        Refusal { reason: reason.to_owned(), is_permanent }
    }

    #[test]
    fn the_last_open_determines_the_reason() {
        let passthrough = Passthrough::new(None);
        assert_eq!(passthrough.results(), (None, 0, 0));
        passthrough.note_refused(refusal("too deep", false));
        assert_eq!(passthrough.results(), (Some("too deep".to_owned()), 0, 1));
        assert!(passthrough.is_allowed(), "the next file may be on another filesystem");
        passthrough.note_passed();
        assert_eq!(passthrough.results(), (None, 1, 1));
        passthrough.note_refused(refusal("not permitted", true));
        assert_eq!(passthrough.results(), (Some("not permitted".to_owned()), 1, 2));
        assert!(!passthrough.is_allowed());
    }
}
