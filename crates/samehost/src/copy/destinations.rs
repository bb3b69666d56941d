//! The files that a copy is writing. Two names at the goal may be those of one file: hard links, or names
//! that the filesystem doesn't distinguish, such as `a` and `A`. Jobs write such a file one after the other,
//! so that it ends with the contents of one source.
//!
//! A job knows its file only when it is open, and the open has truncated it. So another job may have been
//! writing it, and may even have ended, while the open was under way: the later job truncates it once more.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::ancestors::FileId;

/// The files that are opened and written.
#[derive(Default)]
pub struct Destinations(RefCell<Writers>);

#[derive(Default)]
struct Writers {
    /// Counts the opens and the ends of writers.
    clock: u64,
    /// When the opens that are under way began.
    opening: BTreeSet<u64>,
    /// The files that are written. Who writes or waits has a reference to the lock, too.
    writing: HashMap<FileId, Arc<Mutex<()>>>,
    /// When writers have ended during an open that is under way, oldest first.
    ended: VecDeque<(u64, FileId)>,
    /// The same by file: the last end of each.
    last_end: HashMap<FileId, u64>,
}

/// An open that is under way.
pub struct Opening<'a> {
    files: &'a RefCell<Writers>,
    began: u64,
}

/// An open file that no other job writes.
pub struct Writing<'a> {
    files: &'a RefCell<Writers>,
    file: FileId,
    turn: Option<OwnedMutexGuard<()>>,
    /// Another job may have written it since it was opened.
    pub overlapped: bool,
}

impl Destinations {
    /// Notes that a file is about to be opened.
    pub fn opening(&self) -> Opening<'_> {
        let mut files = self.0.borrow_mut();
        let began = files.tick();
        files.opening.insert(began);
        Opening { files: &self.0, began }
    }
}

impl<'a> Opening<'a> {
    /// Waits until no other job writes `file`, which has been opened.
    pub async fn opened(self, file: FileId) -> Writing<'a> {
        let files = self.files;
        let (turn, overlapped) = {
            let mut files = files.borrow_mut();
            let overlapped =
                files.writing.contains_key(&file) || files.last_end.get(&file) > Some(&self.began);
            (files.writing.entry(file).or_default().clone(), overlapped)
        };
        drop(self);
        Writing { files, file, turn: Some(turn.lock_owned().await), overlapped }
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        let mut files = self.files.borrow_mut();
        files.opening.remove(&self.began);
        files.forget();
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let Self { files, file, turn, .. } = self;
        drop(turn.take());
        let mut files = files.borrow_mut();
        if files.writing.get(file).is_some_and(|turn| Arc::strong_count(turn) == 1) {
            files.writing.remove(file);
        }
        let now = files.tick();
        files.ended.push_back((now, *file));
        files.last_end.insert(*file, now);
        files.forget();
    }
}

impl Writers {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Forgets the ends before all opens that are under way.
    fn forget(&mut self) {
        let oldest = self.opening.first().copied().unwrap_or(u64::MAX);
        while let Some((at, file)) = self.ended.front().copied().filter(|(at, _)| *at < oldest) {
            self.ended.pop_front();
            if self.last_end.get(&file) == Some(&at) {
                self.last_end.remove(&file);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const FILE: FileId = (1, 1);
    const OTHER: FileId = (1, 2);

    fn is_empty(destinations: &Destinations) -> bool {
        let files = destinations.0.borrow();
        files.opening.is_empty()
            && files.writing.is_empty()
            && files.ended.is_empty()
            && files.last_end.is_empty()
    }

    #[test]
    fn one_file_has_one_writer() {
        let destinations = Destinations::default();
        let (first, second) = (destinations.opening(), destinations.opening());
        let first = first.opened(FILE).now_or_never().expect("nobody has it");
        let mut second = Box::pin(second.opened(FILE));
        let mut third = Box::pin(destinations.opening().opened(FILE));
        assert!((&mut second).now_or_never().is_none() && (&mut third).now_or_never().is_none());
        let other = destinations.opening().opened(OTHER).now_or_never().expect("another file");
        assert!(!first.overlapped && !other.overlapped);
        drop(first);
        assert!((&mut third).now_or_never().is_none());
        let second = second.now_or_never().expect("it is its turn");
        assert!(second.overlapped);
        drop(second);
        let third = third.now_or_never().expect("it is its turn");
        assert!(third.overlapped);
        drop((third, other));
        assert!(is_empty(&destinations));
    }

    #[test]
    fn a_writer_that_ended_during_an_open_counts() {
        let destinations = Destinations::default();
        let (slow, quick) = (destinations.opening(), destinations.opening());
        drop(quick.opened(FILE).now_or_never());
        let later = destinations.opening().opened(FILE).now_or_never().expect("nobody has it");
        assert!(!later.overlapped, "it was opened after the end");
        drop(later);
        let slow = slow.opened(FILE).now_or_never().expect("nobody has it");
        assert!(slow.overlapped);
        drop(slow);
        // One that fails.
        drop(destinations.opening());
        assert!(is_empty(&destinations));
    }
}
