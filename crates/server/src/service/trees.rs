//! The trees that clients have, and the cells that were taken away from exports.
//!
//! A tree ends like every grant, with the generation of its lane. Which lanes have trees of which exports is
//! recorded here, so that a change of one export recalls no other lanes.
//!
//! A client that doesn't co-operate keeps the directory that it was given. So the cell behind it becomes
//! read-only when it has been taken away, and is kept here until that has succeeded: the kernel refuses while
//! a file is open for writing through the cell.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use lane::LaneServer;
use parking_lot::Mutex;
use rustix::io::Errno;
use store::{Cell, MountFlags};

/// The interval between two attempts to make a cell read-only.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// The trees that clients have.
#[derive(Debug)]
pub(crate) struct Trees {
    /// Whether clients may have any.
    offered: bool,
    /// By lane and export, how many.
    held: Mutex<HashMap<(u64, u32), usize>>,
    /// The lanes, once they are served.
    lanes: OnceLock<Weak<LaneServer>>,
    busy: Arc<BusyCells>,
}

/// A client's tree. Its record ends when this is dropped.
#[derive(Debug)]
pub(crate) struct HeldTree {
    trees: Arc<Trees>,
    key: (u64, u32),
}

/// Cells that are to become read-only, while files are open for writing through them.
#[derive(Debug, Default)]
struct BusyCells(Mutex<Vec<Arc<Cell>>>);

impl Trees {
    /// No trees yet; whether there will ever be any is `offered`.
    pub(crate) fn new(offered: bool) -> Arc<Self> {
        Arc::new(Self { offered, held: Mutex::default(), lanes: OnceLock::new(), busy: Arc::default() })
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

    /// Makes cells read-only that were taken away from an export, and whose trees were recalled.
    pub(crate) fn retire(&self, cells: impl IntoIterator<Item = Arc<Cell>>) {
        for cell in cells {
            if !made_read_only(&cell) {
                self.busy.add(cell);
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

impl BusyCells {
    /// Tries again from time to time, on a thread that lives as long as there are busy cells.
    fn add(self: &Arc<Self>, cell: Arc<Cell>) {
        let mut cells = self.0.lock();
        cells.push(cell);
        if cells.len() > 1 {
            return;
        }
        let busy = Arc::clone(self);
        let started = std::thread::Builder::new().name("cells".into()).spawn(move || {
            loop {
                std::thread::sleep(RETRY_INTERVAL);
                let mut cells = busy.0.lock();
                cells.retain(|cell| !made_read_only(cell));
                if cells.is_empty() {
                    return;
                }
            }
        });
        if let Err(error) = started {
            tracing::error!(%error, "a cell can't be made read-only: clients that keep it can write there");
            cells.clear();
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
