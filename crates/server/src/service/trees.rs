//! The trees that clients have, and the cells that were taken away from exports.
//!
//! A tree ends like every grant, with the generation of its lane. Which lanes have trees of which exports is
//! recorded here, so that a change of one export recalls no other lanes.
//!
//! A client that doesn't co-operate keeps the directory that it was given. So the cell behind it becomes
//! read-only when it has been taken away, and is kept here until that has succeeded: the kernel refuses while
//! a file is open for writing through the cell.
//!
//! Every user who may mount something below an export can have its cells taken away as often as it likes, and
//! can keep a file open for writing in each. So a mount takes no cells away while an export has
//! [`MAX_BUSY_CELLS`] of these.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use lane::LaneServer;
use parking_lot::Mutex;
use rustix::io::Errno;
use store::{Cell, MountFlags};

/// The number of an export's cells that wait to become read-only from which a mount below it takes no more of
/// them away.
const MAX_BUSY_CELLS: usize = 16;
/// The pause before the second attempt to make a cell read-only. It doubles with each further attempt.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(16);

/// The trees that clients have.
#[derive(Debug)]
pub(crate) struct Trees {
    /// Whether clients may have any.
    offered: bool,
    /// By lane and export, how many.
    held: Mutex<HashMap<(u64, u32), usize>>,
    /// The lanes, once they are served.
    lanes: OnceLock<Weak<LaneServer>>,
    busy: Arc<BusyCells<Cell>>,
}

/// A client's tree. Its record ends when this is dropped.
#[derive(Debug)]
pub(crate) struct HeldTree {
    trees: Arc<Trees>,
    key: (u64, u32),
}

/// Cells that are to become read-only, while files are open for writing through them.
#[derive(Debug)]
struct BusyCells<C> {
    cells: Mutex<Vec<BusyCell<C>>>,
    /// Makes a cell read-only. False while files are open for writing through it.
    restrict: fn(&C) -> bool,
}

/// One of these cells.
#[derive(Debug)]
struct BusyCell<C> {
    /// The export that it was taken away from.
    export: u32,
    cell: Arc<C>,
    /// The time of the next attempt.
    due: Instant,
    /// The pause before that attempt.
    pause: Duration,
}

impl Trees {
    /// No trees yet; whether there will ever be any is `offered`.
    pub(crate) fn new(offered: bool) -> Arc<Self> {
        let busy = Arc::new(BusyCells::new(made_read_only));
        Arc::new(Self { offered, held: Mutex::default(), lanes: OnceLock::new(), busy })
    }

    /// Whether clients may have trees.
    pub(crate) const fn offered(&self) -> bool {
        self.offered
    }

    /// Must be called when the lane server has started.
    pub(crate) fn set_lanes(&self, lanes: &Arc<LaneServer>) {
        let _ = self.lanes.set(Arc::downgrade(lanes));
    }

    /// Records a tree of an export. From now on [`Trees::recall`] reaches the lane.
    pub(crate) fn hold(self: &Arc<Self>, lane: u64, export: u32) -> HeldTree {
        let key = (lane, export);
        *self.held.lock().entry(key).or_default() += 1;
        HeldTree { trees: Arc::clone(self), key }
    }

    /// How many trees clients have.
    pub(crate) fn count(&self) -> usize {
        self.held.lock().values().sum()
    }

    /// Whether a lane has a tree of one of the exports that `which` selects.
    pub(crate) fn has(&self, lane: u64, which: impl Fn(u32) -> bool) -> bool {
        self.held.lock().keys().any(|(holder, export)| *holder == lane && which(*export))
    }

    /// Ends the trees of the exports that `which` selects, and with them all grants of the lanes that have
    /// one: each is checked again when the client asks for it again.
    pub(crate) fn recall(&self, which: impl Fn(u32) -> bool) {
        if let Some(lanes) = self.lanes.get().and_then(Weak::upgrade) {
            lanes.recall(|lane| self.has(lane.bound.lane, &which));
        }
    }

    /// Whether so many cells of an export wait to become read-only that a mount must take no more away.
    pub(crate) fn has_busy_cells(&self, export: u32) -> bool {
        self.busy.count(export) >= MAX_BUSY_CELLS
    }

    /// Makes cells read-only that were taken away from these exports, and whose trees were recalled.
    pub(crate) fn retire(&self, cells: impl IntoIterator<Item = (u32, Arc<Cell>)>) {
        for (export, cell) in cells {
            if !made_read_only(&cell) {
                self.busy.add(export, cell);
            }
        }
    }
}

impl Drop for HeldTree {
    fn drop(&mut self) {
        let mut held = self.trees.held.lock();
        if let Some(count) = held.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.key);
            }
        }
    }
}

impl<C> BusyCells<C> {
    fn new(restrict: fn(&C) -> bool) -> Self {
        Self { cells: Mutex::default(), restrict }
    }

    /// How many were taken away from an export.
    fn count(&self, export: u32) -> usize {
        self.cells.lock().iter().filter(|busy| busy.export == export).count()
    }

    /// Adds a cell after a first attempt. Returns whether it is the only one.
    fn push(&self, export: u32, cell: Arc<C>, now: Instant) -> bool {
        let mut cells = self.cells.lock();
        cells.push(BusyCell { export, cell, due: now + FIRST_PAUSE, pause: FIRST_PAUSE });
        cells.len() == 1
    }

    /// Tries again with the cells that are due. Returns whether there are busy cells left.
    fn attempt(&self, now: Instant) -> bool {
        let due = |busy: &&BusyCell<C>| busy.due <= now;
        let due: Vec<_> = self.cells.lock().iter().filter(due).map(|busy| Arc::clone(&busy.cell)).collect();
        // Without the lock: an attempt takes a thread, and others add cells while an export is changed.
        let (restricted, busy): (Vec<_>, Vec<_>) = due.into_iter().partition(|cell| (self.restrict)(cell));
        let is_one_of = |cells: &[Arc<C>], cell: &Arc<C>| cells.iter().any(|one| Arc::ptr_eq(one, cell));
        let mut cells = self.cells.lock();
        cells.retain(|cell| !is_one_of(&restricted, &cell.cell));
        for cell in cells.iter_mut().filter(|cell| is_one_of(&busy, &cell.cell)) {
            cell.pause = (cell.pause * 2).min(LONGEST_PAUSE);
            cell.due = now + cell.pause;
        }
        !cells.is_empty()
    }
}

impl BusyCells<Cell> {
    /// Tries again from time to time, on a thread that lives as long as there are busy cells.
    fn add(self: &Arc<Self>, export: u32, cell: Arc<Cell>) {
        if !self.push(export, cell, Instant::now()) {
            return;
        }
        let busy = Arc::clone(self);
        let started = std::thread::Builder::new().name("cells".into()).spawn(move || {
            loop {
                std::thread::sleep(FIRST_PAUSE);
                if !busy.attempt(Instant::now()) {
                    return;
                }
            }
        });
        if let Err(error) = started {
            tracing::error!(%error, "a cell can't be made read-only: clients that keep it can write there");
            self.cells.lock().clear();
        }
    }
}

/// Makes a cell read-only. False while files are open for writing through it.
fn made_read_only(cell: &Cell) -> bool {
    match cell.restrict(MountFlags { read_only: true, no_exec: false }) {
        Ok(()) => true,
        Err(Errno::BUSY | Errno::AGAIN) => false,
        Err(errno) => {
            tracing::error!(%errno, "a cell can't be made read-only: clients that keep it can write there");
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;

    /// A cell in which a file may be open for writing.
    #[derive(Default)]
    struct Fake {
        has_writer: AtomicBool,
        attempts: AtomicUsize,
    }

    impl Fake {
        fn busy() -> Arc<Self> {
            Arc::new(Self { has_writer: AtomicBool::new(true), ..Self::default() })
        }

        fn restrict(&self) -> bool {
            self.attempts.fetch_add(1, Ordering::Relaxed);
            !self.has_writer.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn busy_cells_are_tried_less_and_less_often_until_they_are_free() {
        let (busy, start) = (BusyCells::new(Fake::restrict), Instant::now());
        let (kept, closed) = (Fake::busy(), Fake::busy());
        assert!(busy.push(1, Arc::clone(&kept), start), "the thread starts");
        assert!(!busy.push(2, Arc::clone(&closed), start), "it runs");
        let mut attempted = Vec::new();
        for tick in 1..=140 {
            let (before, at) = (kept.attempts.load(Ordering::Relaxed), FIRST_PAUSE * tick);
            closed.has_writer.store(tick < 3, Ordering::Relaxed);
            assert!(busy.attempt(start + at));
            if kept.attempts.load(Ordering::Relaxed) > before {
                attempted.push(at.as_millis());
            }
        }
        assert_eq!(attempted, [500, 1500, 3500, 7500, 15_500, 31_500, 47_500, 63_500]);
        assert_eq!((busy.count(1), busy.count(2), closed.attempts.load(Ordering::Relaxed)), (1, 0, 2));
        assert_eq!(Arc::strong_count(&closed), 1, "it is let go");
        kept.has_writer.store(false, Ordering::Relaxed);
        assert!(!busy.attempt(start + LONGEST_PAUSE * 10), "the thread ends");
        assert!(busy.push(1, kept, start), "another one starts");
    }

    #[test]
    fn cells_are_counted_and_added_during_an_attempt() {
        /// Where an attempt waits for the test, twice.
        type Pausing = Barrier;
        let busy = BusyCells::new(|cell: &Pausing| {
            cell.wait();
            cell.wait();
            true
        });
        let (cell, start) = (Arc::new(Pausing::new(2)), Instant::now());
        busy.push(1, Arc::clone(&cell), start);
        std::thread::scope(|scope| {
            let attempt = scope.spawn(|| busy.attempt(start + FIRST_PAUSE));
            cell.wait();
            assert_eq!(busy.count(1), 1);
            busy.push(1, Arc::new(Pausing::new(2)), start + FIRST_PAUSE);
            assert_eq!(busy.count(1), 2);
            cell.wait();
            assert!(attempt.join().unwrap(), "the second is left");
        });
        assert_eq!(busy.count(1), 1);
    }
}
