//! Descriptors opened for data, one slot for each file and purpose, and the process-wide bound on them.
//!
//! A [`DataFile`] may be emptied at any time unless the file has uncommitted writes (see `uncommitted`) or a
//! lease (see `leases`).

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use ::io::Alignment;
use parking_lot::Mutex;

/// How many data descriptors all stores of the process hold.
static DATA_FILES: AtomicUsize = AtomicUsize::new(0);

/// One of the data descriptors that the process may keep, for as long as this lives.
#[derive(Debug)]
pub(crate) struct DataFilePermit(());

impl DataFilePermit {
    /// `None` when the process keeps `limit` already.
    pub fn take(limit: usize) -> Option<DataFilePermit> {
        let before = DATA_FILES.fetch_add(1, Ordering::Relaxed);
        // From here on it is given back.
        let share = DataFilePermit(());
        (before < limit).then_some(share)
    }

    /// Beyond any limit.
    fn insist() -> DataFilePermit {
        DATA_FILES.fetch_add(1, Ordering::Relaxed);
        DataFilePermit(())
    }
}

impl Drop for DataFilePermit {
    fn drop(&mut self) {
        DATA_FILES.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A slot for one descriptor that was opened for data.
#[derive(Debug, Default)]
pub(crate) struct DataFile(Mutex<Option<(Arc<OwnedFd>, DataFilePermit)>>);

impl DataFile {
    pub fn get(&self) -> Option<Arc<OwnedFd>> {
        self.0.lock().as_ref().map(|(file, _)| Arc::clone(file))
    }

    pub fn is_kept(&self) -> bool {
        self.0.lock().is_some()
    }

    /// Keeps `file` for the next time, unless the process keeps `limit` already.
    pub fn keep(&self, file: &Arc<OwnedFd>, limit: usize) {
        let mut slot = self.0.lock();
        if slot.is_none() {
            *slot = DataFilePermit::take(limit).map(|share| (Arc::clone(file), share));
        }
    }

    /// Keeps `file` unless there is another, whatever the limit.
    pub fn hold(&self, file: &Arc<OwnedFd>) {
        let mut slot = self.0.lock();
        if slot.is_none() {
            *slot = Some((Arc::clone(file), DataFilePermit::insist()));
        }
    }

    pub fn take(&self) -> Option<Arc<OwnedFd>> {
        self.0.lock().take().map(|(file, _)| file)
    }
}

/// A file's alignment, once it was asked for, and its direct descriptors.
#[derive(Debug, Default)]
pub(crate) struct DirectFiles {
    alignment: OnceLock<Option<Alignment>>,
    read: DataFile,
    write: DataFile,
}

impl DirectFiles {
    /// The alignment; `ask` is called the first time.
    pub fn alignment(&self, ask: impl FnOnce() -> Option<Alignment>) -> Option<Alignment> {
        *self.alignment.get_or_init(ask)
    }

    /// The descriptor for reading or for writing.
    pub fn file(&self, for_writing: bool) -> &DataFile {
        if for_writing { &self.write } else { &self.read }
    }
}
