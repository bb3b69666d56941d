//! Page-aligned memory for O_DIRECT, which suits every device. Buffers are pooled, because the kernel clears
//! fresh memory page by page.

use std::ops::{Deref, DerefMut, Range};
use std::sync::Mutex;

/// The alignment of buffers, in bytes.
const PAGE: usize = 4096;

/// Allocations are multiples of this, so that pooled ones can be reused.
const ALLOCATION_UNIT: usize = 64 << 10;

/// Maximum size of the pool, in bytes.
const MAX_POOLED: usize = 4 << 20;

/// Unused allocations, at most [`MAX_POOLED`] bytes.
static POOL: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// A page-aligned buffer. Its initial contents are unspecified.
#[derive(Debug)]
pub struct AlignedBuffer {
    bytes: Vec<u8>,
    used: Range<usize>,
}

impl AlignedBuffer {
    /// A buffer of `length` bytes.
    #[must_use]
    pub fn new(length: usize) -> Self {
        let room = (length + PAGE).next_multiple_of(ALLOCATION_UNIT);
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
            if kept + bytes.len() <= MAX_POOLED {
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

/// A part of a buffer: the bytes that a read returns.
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
    fn buffers_are_aligned_and_the_pool_is_bounded() {
        let buffers: Vec<AlignedBuffer> = (0..100).map(|n| AlignedBuffer::new(n * 1001)).collect();
        for (n, buffer) in buffers.iter().enumerate() {
            assert_eq!((buffer.len(), buffer.as_ptr().addr() % PAGE), (n * 1001, 0));
        }
        drop(buffers);
        assert!(POOL.lock().unwrap().iter().map(Vec::len).sum::<usize>() <= MAX_POOLED);
    }
}
