//! The files that a client has opened for writing or locked over the wire, to tell for which a write
//! delegation pays.
//!
//! A delegation costs a request when it is returned. A file that is written once, as most are, never makes up
//! for that. One that was opened for writing [`MIN_USES`] times, with each lock counted like an open, is
//! likely to be a database, a log or a mail spool. The next OPEN for writing asks for the delegation, which
//! costs nothing. A file that is locked again and again through one open gets an OPEN for that alone, after
//! [`FIRST_LOCKS`] locks; each time that this OPEN brings no delegation, the next one takes
//! [`MORE_LOCKS`] times as many locks. It is sent when the client holds no lock on the file: the kernel gives
//! a server in user space no lease on a file that is open for locks.

use std::collections::BTreeMap;

use crate::types::Handle;

/// The uses before the OPEN that asks for a delegation.
const MIN_USES: u32 = 2;

/// The locks before an OPEN that does nothing but ask for a delegation.
const FIRST_LOCKS: u32 = 4;

/// By how much that number grows when the OPEN was in vain.
const MORE_LOCKS: u32 = 4;

/// The files that are remembered: those that were used last.
const MAX_FILES: usize = 1024;

/// What is known of a file.
#[derive(Debug)]
struct Uses {
    /// Opens for writing and locks.
    count: u32,
    locks: u32,
    /// The locks after which an OPEN asks.
    ask_at: u32,
    /// The number of the last use of any file.
    last: u64,
}

/// The files that the client has written or locked.
#[derive(Debug, Default)]
pub(super) struct RewrittenFiles {
    files: BTreeMap<Handle, Uses>,
    by_last_use: BTreeMap<u64, Handle>,
    last_use: u64,
}

impl RewrittenFiles {
    /// Whether an OPEN for writing is to ask for a delegation.
    pub(super) fn is_worth_a_delegation(&self, file: &Handle) -> bool {
        self.files.get(file).is_some_and(|uses| uses.count >= MIN_USES)
    }

    /// The server has opened the file for writing.
    pub(super) fn opened(&mut self, file: &Handle) {
        self.count(file);
    }

    /// The server is asked for a lock; the file `is_free` if it has no others. Returns whether to ask for a
    /// delegation first.
    pub(super) fn locked(&mut self, file: &Handle, is_free: bool) -> bool {
        let uses = self.count(file);
        uses.locks = uses.locks.saturating_add(1);
        let asks = is_free && uses.locks >= uses.ask_at;
        if asks {
            uses.locks = 0;
            uses.ask_at = uses.ask_at.saturating_mul(MORE_LOCKS);
        }
        asks
    }

    /// The file was recalled: others use it, too. Counting begins again.
    pub(super) fn forget(&mut self, file: &Handle) {
        if let Some(uses) = self.files.remove(file) {
            self.by_last_use.remove(&uses.last);
        }
    }

    fn count(&mut self, file: &Handle) -> &mut Uses {
        self.last_use += 1;
        if let Some(uses) = self.files.get(file) {
            self.by_last_use.remove(&uses.last);
        } else if self.files.len() >= MAX_FILES
            && let Some((_, oldest)) = self.by_last_use.pop_first()
        {
            self.files.remove(&oldest);
        }
        self.by_last_use.insert(self.last_use, file.clone());
        let new = Uses { count: 0, locks: 0, ask_at: FIRST_LOCKS, last: 0 };
        let uses = self.files.entry(file.clone()).or_insert(new);
        (uses.count, uses.last) = (uses.count.saturating_add(1), self.last_use);
        uses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(number: u16) -> Handle {
        Handle::new(&number.to_be_bytes()).expect("it is short")
    }

    #[test]
    fn the_third_open_asks_and_one_after_a_lock() {
        let mut files = RewrittenFiles::default();
        files.opened(&file(1));
        assert!(!files.is_worth_a_delegation(&file(1)));
        files.opened(&file(1));
        assert!(files.is_worth_a_delegation(&file(1)) && !files.is_worth_a_delegation(&file(2)));
        files.opened(&file(2));
        assert!(!files.locked(&file(2), true));
        assert!(files.is_worth_a_delegation(&file(2)));
        files.forget(&file(2));
        assert!(!files.is_worth_a_delegation(&file(2)));
    }

    #[test]
    fn locks_ask_less_and_less_often() {
        let mut files = RewrittenFiles::default();
        let asked: Vec<_> = (1..=100).filter(|_| files.locked(&file(1), true)).collect();
        assert_eq!(asked, [4, 20, 84]);
        for _ in 0..10 {
            assert!(!files.locked(&file(2), false));
        }
        assert!(files.locked(&file(2), true));
    }

    #[test]
    fn the_files_used_last_are_remembered() {
        let mut files = RewrittenFiles::default();
        for number in 0..2 * MAX_FILES as u16 {
            files.opened(&file(number));
            files.opened(&file(0));
        }
        assert_eq!((files.files.len(), files.by_last_use.len()), (MAX_FILES, MAX_FILES));
        assert!(files.is_worth_a_delegation(&file(0)));
        files.opened(&file(1));
        assert!(!files.is_worth_a_delegation(&file(1)), "it was forgotten");
    }
}
