//! Memory that O_DIRECT takes: aligned to a page, which suits every device, and used again, because memory
//! fresh from the kernel has to be cleared page by page.

use std::ops::{Deref, DerefMut, Range};
use std::sync::Mutex;

/// Every buffer begins at a multiple of this, in bytes.
const PAGE: usize = 4096;

/// Buffers come in multiples of this, so that they fit the next one who asks.
const STEP: usize = 64 << 10;

/// How much memory is kept for the next time, in the whole process.
const KEPT: usize = 4 << 20;

/// Buffers that nobody uses, [`KEPT`] bytes at most.
static POOL: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// A buffer that begins at a page's beginning. What it holds at first is of no meaning.
#[derive(Debug)]
pub struct AlignedBuffer {
    bytes: Vec<u8>,
    used: Range<usize>,
}

impl AlignedBuffer {
    /// A buffer of `length` bytes.
    #[must_use]
    pub fn new(length: usize) -> Self {
        let room = (length + PAGE).next_multiple_of(STEP);
        let pooled = POOL.lock().ok().and_then(|mut pool| {
            let fits = pool.iter().rposition(|bytes| bytes.len() == room)?;
            Some(pool.swap_remove(fits))
        });
        let bytes = pooled.unwrap_or_else(|| vec![0; room]);
        let start = bytes.as_ptr().addr().wrapping_neg() % PAGE;
        Self { bytes, used: start..start + length }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        if let Ok(mut pool) = POOL.lock() {
            let kept: usize = pool.iter().map(Vec::len).sum();
            if kept + bytes.len() <= KEPT {
                pool.push(bytes);
            }
        }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[self.used.clone()]
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.used.clone()]
    }
}

/// Bytes that were read into a buffer of more.
#[derive(Debug)]
pub struct Payload {
    pub(crate) buffer: AlignedBuffer,
    pub(crate) range: Range<usize>,
}

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[self.range.clone()]
    }
}

impl Deref for Payload {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_not_kept_without_end() {
        let buffers: Vec<AlignedBuffer> = (0..100).map(|n| AlignedBuffer::new(n * 1001)).collect();
        for (n, buffer) in buffers.iter().enumerate() {
            assert_eq!((buffer.len(), buffer.as_ptr().addr() % PAGE), (n * 1001, 0));
        }
        drop(buffers);
        assert!(POOL.lock().unwrap().iter().map(Vec::len).sum::<usize>() <= KEPT);
    }
}
