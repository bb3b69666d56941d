//! Descriptors opened for data, one slot for each file and purpose, and the process-wide bound on them.
//!
//! A [`DataFile`] may be emptied at any time unless the file has uncommitted writes (see `uncommitted`) or a
//! lease (see `leases`).

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use ::io::Alignment;
use parking_lot::Mutex;

/// Number of data descriptors that all stores of the process keep.
static DATA_FILES: AtomicUsize = AtomicUsize::new(0);

/// Permission to keep one data descriptor, returned on drop.
#[derive(Debug)]
pub(crate) struct DataFilePermit(());

impl DataFilePermit {
    /// `None` when the process keeps `limit` descriptors already.
    pub fn take(limit: usize) -> Option<DataFilePermit> {
        let before = DATA_FILES.fetch_add(1, Ordering::Relaxed);
        // From here on, dropping `share` undoes the increment.
        let share = DataFilePermit(());
        (before < limit).then_some(share)
    }

    /// Without regard to the limit.
    fn unlimited() -> DataFilePermit {
        DATA_FILES.fetch_add(1, Ordering::Relaxed);
        DataFilePermit(())
    }
}

impl Drop for DataFilePermit {
    fn drop(&mut self) {
        DATA_FILES.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A slot for one descriptor that is open for data.
#[derive(Debug, Default)]
pub(crate) struct DataFile(Mutex<Option<(Arc<OwnedFd>, DataFilePermit)>>);

impl DataFile {
    pub fn get(&self) -> Option<Arc<OwnedFd>> {
        self.0.lock().as_ref().map(|(file, _)| Arc::clone(file))
    }

    pub fn is_kept(&self) -> bool {
        self.0.lock().is_some()
    }

    /// Keeps `file` for later calls, unless the slot is full or the process keeps `limit` already.
    pub fn keep(&self, file: &Arc<OwnedFd>, limit: usize) {
        let mut slot = self.0.lock();
        if slot.is_none() {
            *slot = DataFilePermit::take(limit).map(|share| (Arc::clone(file), share));
        }
    }

    /// Keeps `file` whatever the limit, unless the slot is full.
    pub fn hold(&self, file: &Arc<OwnedFd>) {
        let mut slot = self.0.lock();
        if slot.is_none() {
            *slot = Some((Arc::clone(file), DataFilePermit::unlimited()));
        }
    }

    pub fn take(&self) -> Option<Arc<OwnedFd>> {
        self.0.lock().take().map(|(file, _)| file)
    }
}

/// What direct I/O on a file needs: its alignment, determined once, and descriptors with `O_DIRECT`.
///
/// No promise depends on these descriptors, so they can be closed at any time: the error of a direct write is
/// returned at once, and the buffered edges of a write are synced through the ordinary descriptor.
#[derive(Debug, Default)]
pub(crate) struct DirectFiles {
    alignment: OnceLock<Option<Alignment>>,
    read: DataFile,
    write: DataFile,
}

impl DirectFiles {
    /// The alignment. The first call determines it with `ask`.
    pub fn alignment(&self, ask: impl FnOnce() -> Option<Alignment>) -> Option<Alignment> {
        *self.alignment.get_or_init(ask)
    }

    /// The descriptor for reading or for writing.
    pub fn file(&self, for_writing: bool) -> &DataFile {
        if for_writing { &self.write } else { &self.read }
    }
}
