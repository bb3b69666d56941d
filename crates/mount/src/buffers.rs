//! A pool of buffers for large requests and for the data of READs.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

/// Free buffers that the pool keeps.
const MAX_FREE: usize = 32;

/// Smaller buffers aren't kept; malloc(3) serves those fast. A user that needs a larger buffer lets it grow,
/// so the pool's buffers reach the sizes that are needed.
const MIN_CAPACITY: usize = 4 << 10;

/// The free buffers.
#[derive(Debug, Default)]
pub(crate) struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    /// A buffer with arbitrary contents.
    pub(crate) fn take(&self) -> Vec<u8> {
        self.0.lock().pop().unwrap_or_default()
    }

    /// Returns a buffer to the pool.
    pub(crate) fn put(&self, buffer: Vec<u8>) {
        if buffer.capacity() >= MIN_CAPACITY {
            let mut free = self.0.lock();
            if free.len() < MAX_FREE {
                free.push(buffer);
            }
        }
    }

    /// The first `len` bytes of a buffer, which returns to the pool when the last slice of them is dropped.
    pub(crate) fn share(self: &Arc<Self>, buffer: Vec<u8>, len: usize) -> Bytes {
        Bytes::from_owner(SharedBuffer { buffer, len, pool: self.clone() })
    }
}

struct SharedBuffer {
    buffer: Vec<u8>,
    len: usize,
    pool: Arc<Buffers>,
}

impl AsRef<[u8]> for SharedBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.len]
    }
}

impl Drop for SharedBuffer {
    fn drop(&mut self) {
        self.pool.put(std::mem::take(&mut self.buffer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_buffer_returns_after_its_last_slice() {
        let buffers = Arc::new(Buffers::default());
        let shared = buffers.share(vec![7; MIN_CAPACITY], 10);
        let slice = shared.slice(3..5);
        drop(shared);
        assert!(buffers.0.lock().is_empty());
        assert_eq!(&slice[..], [7, 7]);
        drop(slice);
        assert_eq!(buffers.take().len(), MIN_CAPACITY);
    }
}
