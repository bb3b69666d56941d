//! What may wait for a disk: system calls that change granted files, made where nobody else's request waits
//! with them.
//!
//! The requests of a mount share few threads, on a small machine one (`runtime`). A call on a file in memory
//! is made on them. Any other may wait, and nobody can tell for how long: for a slow disk's dirty pages, a
//! journal, a filesystem that is frozen (fsfreeze(8); not even RWF_NOWAIT comes back from that). So it is
//! made on a thread of its own. Reads don't come here: the client asks the kernel first.

use std::sync::Arc;

use client::File;
use rustix::io::Errno;
use tokio::sync::Semaphore;

/// Calls under way at once: half of the threads that a runtime has for such (tokio: 512), so that a disk that
/// never comes back leaves some for reads and for what is on other disks.
const MOST: usize = 256;

/// See the module.
#[derive(Debug)]
pub(super) struct Disks(Arc<Semaphore>);

impl Default for Disks {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MOST)))
    }
}

impl Disks {
    /// Makes `call` on a granted file; `None`: there is no grant (any more).
    ///
    /// # Errors
    /// `EIO`: the runtime is going.
    pub(super) async fn call<R: Send + 'static>(
        &self,
        file: &File,
        call: impl FnOnce(&File) -> Option<R> + Send + 'static,
    ) -> Result<Option<R>, Errno> {
        match file.is_in_memory() {
            None => Ok(None),
            Some(true) => Ok(call(file)),
            Some(false) => {
                let place = self.0.clone().acquire_owned().await.map_err(|_| Errno::IO)?;
                let file = file.clone();
                let elsewhere = tokio::task::spawn_blocking(move || {
                    let done = call(&file);
                    drop(place);
                    done
                });
                elsewhere.await.map_err(|_| Errno::IO)
            }
        }
    }
}
