//! Buffers that go round: large requests are read into them, and what is read from files.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

/// Buffers that are kept for the next one.
const KEPT: usize = 32;

/// A smaller one isn't worth keeping: malloc(3) has those at hand. Whoever gets one that is too small for it
/// lets it grow, and so they become what is needed.
const WORTH: usize = 4 << 10;

/// Buffers that are free.
#[derive(Debug, Default)]
pub(crate) struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    /// A buffer with anything in it.
    pub(crate) fn take(&self) -> Vec<u8> {
        self.0.lock().pop().unwrap_or_default()
    }

    /// Takes one back.
    pub(crate) fn give(&self, buffer: Vec<u8>) {
        if buffer.capacity() >= WORTH {
            let mut kept = self.0.lock();
            if kept.len() < KEPT {
                kept.push(buffer);
            }
        }
    }

    /// The first `len` bytes of a buffer, which comes back when nobody has any of them any more.
    pub(crate) fn lend(self: &Arc<Self>, buffer: Vec<u8>, len: usize) -> Bytes {
        Bytes::from_owner(Lent { buffer, len, home: self.clone() })
    }
}

struct Lent {
    buffer: Vec<u8>,
    len: usize,
    home: Arc<Buffers>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.len]
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.home.give(std::mem::take(&mut self.buffer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lent_buffer_comes_back_after_its_last_slice() {
        let buffers = Arc::new(Buffers::default());
        let lent = buffers.lend(vec![7; WORTH], 10);
        let slice = lent.slice(3..5);
        drop(lent);
        assert!(buffers.0.lock().is_empty());
        assert_eq!(&slice[..], [7, 7]);
        drop(slice);
        assert_eq!(buffers.take().len(), WORTH);
    }
}
