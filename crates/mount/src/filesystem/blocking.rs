//! System calls that change granted files and may wait for a disk, run where no other request waits for them.
//!
//! The requests of a mount share few threads, on a small machine one (`runtime`). A call on a file in memory
//! runs on them. Any other may block for an unknown time: for a slow disk's dirty pages, a journal, or a
//! filesystem that is frozen (fsfreeze(8); even RWF_NOWAIT blocks there). Such a call runs on a thread that
//! may wait ([`disk_waits`]). Reads don't come here: the client asks the kernel first.

use std::sync::Arc;

use client::{File, disk_waits};
use rustix::io::Errno;
use tokio::sync::Semaphore;

/// Calls on threads of their own at once. That is half of tokio's limit for such threads (512), so that a
/// disk that never answers leaves some for reads and for other disks.
const MAX_CALLS: usize = 256;

/// The calls under way.
#[derive(Debug)]
pub(super) struct BlockingCalls(Arc<Semaphore>);

impl Default for BlockingCalls {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_CALLS)))
    }
}

impl BlockingCalls {
    /// Runs `call` on a granted file; `None`: there is no grant (any more).
    ///
    /// # Errors
    /// `EIO`: the runtime shuts down.
    pub(super) async fn run<R: Send + 'static>(
        &self,
        file: &File,
        call: impl FnOnce(&File) -> Option<R> + Send + 'static,
    ) -> Result<Option<R>, Errno> {
        match file.is_in_memory() {
            None => Ok(None),
            Some(true) => Ok(call(file)),
            Some(false) => {
                let permit = self.0.clone().acquire_owned().await.map_err(|_| Errno::IO)?;
                let file = file.clone();
                let result = disk_waits::run(move || {
                    let result = call(&file);
                    drop(permit);
                    result
                });
                result.await.map_err(|_| Errno::IO)
            }
        }
    }
}
