//! Atomic integers shared by two processes, of which neither can crash the other.
//!
//! The memory is a memfd, sealed against shrinking (access to a mapped page beyond the end raises SIGBUS) and
//! growing. A process that receives one checks seals, size and filesystem before mapping it. Only atomics are
//! accessible: the peer may write anything at any time, and a value must be loaded once and validated like
//! any external input.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

/// How many integers of each width there are. The 32-bit ones come first, then, at the next multiple of 8
/// bytes, the 64-bit ones, so that no byte belongs to both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Number of 32-bit values; number `i` is at byte `4 * i`.
    pub narrow: u16,
    /// Number of 64-bit values; number `i` is at byte [`Layout::wide_start`]` + 8 * i`.
    pub wide: u16,
}

impl Layout {
    /// Where the 64-bit values start, in bytes.
    #[must_use]
    pub const fn wide_start(self) -> usize {
        (self.narrow as usize * size_of::<u32>()).next_multiple_of(size_of::<u64>())
    }

    /// Size of the whole memory in bytes.
    #[must_use]
    pub const fn size(self) -> usize {
        self.wide_start() + self.wide as usize * size_of::<u64>()
    }
}

/// Why a peer's memory was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvalidMemory {
    /// Not a memfd of ordinary pages.
    NotMemory,
    /// Not sealed against shrinking and growing.
    NotSealed,
    /// Not the size of the layout.
    WrongSize,
    /// It can't be mapped for reading and writing.
    NotMappable(Errno),
}

impl std::fmt::Display for InvalidMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            InvalidMemory::NotMemory => f.write_str("the descriptor isn't a memfd of ordinary pages"),
            InvalidMemory::NotSealed => f.write_str("the memory isn't sealed against a change of its size"),
            InvalidMemory::WrongSize => f.write_str("the memory hasn't the agreed size"),
            InvalidMemory::NotMappable(errno) => write!(f, "the memory can't be mapped: {errno}"),
        }
    }
}

impl std::error::Error for InvalidMemory {}

/// Memory shared with another process, accessible as atomic integers.
#[derive(Debug)]
pub struct SharedMemory {
    start: NonNull<u8>,
    layout: Layout,
    file: OwnedFd,
}

// SAFETY: this value owns the mapping, which lives as long as the value and is only accessed through atomics.
unsafe impl Send for SharedMemory {}
// SAFETY: as for `Send`.
unsafe impl Sync for SharedMemory {}

const SIZE_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

impl SharedMemory {
    /// New memory, zeroed and sealed, to be sent to the peer with [`SharedMemory::as_fd`].
    ///
    /// # Errors
    /// Those of memfd_create(2), fallocate(2), fcntl(2) and mmap(2); `EINVAL` for an empty layout.
    pub fn create(name: &str, layout: Layout) -> rustix::io::Result<SharedMemory> {
        if layout.size() == 0 {
            return Err(Errno::INVAL);
        }
        let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        // Allocated in advance: a page that can't be allocated later would raise SIGBUS, too.
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, layout.size() as u64)?;
        rustix::fs::fcntl_add_seals(&file, SIZE_SEALS | SealFlags::SEAL)?;
        let start = map(file.as_fd(), layout)?;
        Ok(SharedMemory { start, layout, file })
    }

    /// Memory received from a peer.
    ///
    /// # Errors
    /// [`InvalidMemory`] when the peer could crash this process through it, or it isn't as agreed.
    pub fn from_peer(file: OwnedFd, layout: Layout) -> Result<SharedMemory, InvalidMemory> {
        /// `TMPFS_MAGIC`, the filesystem of a memfd with ordinary pages. (Huge pages are on hugetlbfs, which
        /// may run out of them.)
        const TMPFS: i64 = 0x0102_1994;
        let seals = rustix::fs::fcntl_get_seals(&file).map_err(|_| InvalidMemory::NotMemory)?;
        let kind = rustix::fs::fstatfs(&file).map_err(|_| InvalidMemory::NotMemory)?;
        #[allow(clippy::unnecessary_cast)] // the type differs between architectures
        if kind.f_type as i64 != TMPFS {
            return Err(InvalidMemory::NotMemory);
        }
        if !seals.contains(SIZE_SEALS) {
            return Err(InvalidMemory::NotSealed);
        }
        let size = rustix::fs::fstat(&file).map_err(|_| InvalidMemory::NotMemory)?.st_size;
        if layout.size() == 0 || u64::try_from(size).ok() != Some(layout.size() as u64) {
            return Err(InvalidMemory::WrongSize);
        }
        let start = map(file.as_fd(), layout).map_err(InvalidMemory::NotMappable)?;
        Ok(SharedMemory { start, layout, file })
    }

    /// The layout it was created with.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The 32-bit number `index`; `None` beyond the layout.
    #[must_use]
    pub fn narrow(&self, index: u16) -> Option<&AtomicU32> {
        if index >= self.layout.narrow {
            return None;
        }
        // SAFETY: the address is inside the mapping (the index was checked, and the file has the layout's
        // size and is sealed against shrinking), aligned (the mapping is page-aligned and 4 divides the
        // offset), and valid as long as `self`. These bytes are only accessed as this AtomicU32.
        Some(unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(usize::from(index) * 4).cast()) })
    }

    /// The 64-bit number `index`; `None` beyond the layout.
    #[must_use]
    pub fn wide(&self, index: u16) -> Option<&AtomicU64> {
        if index >= self.layout.wide {
            return None;
        }
        let offset = self.layout.wide_start() + usize::from(index) * 8;
        // SAFETY: as in `narrow`; 8 divides the offset.
        Some(unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(offset).cast()) })
    }
}

impl AsFd for SharedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: `map` created exactly this mapping, and all references into it borrowed `self`, so none is
        // left.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.layout.size()) };
    }
}

/// Maps the whole layout, shared.
fn map(file: BorrowedFd<'_>, layout: Layout) -> rustix::io::Result<NonNull<u8>> {
    // SAFETY: a new mapping at an address that the kernel chooses replaces no existing one.
    let start = unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            layout.size(),
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            file,
            0,
        )
    }?;
    NonNull::new(start.cast()).ok_or(Errno::NOMEM)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::SeqCst;

    const LAYOUT: Layout = Layout { narrow: 3, wide: 2 };

    #[test]
    fn both_ends_see_the_same_numbers() {
        let ours = SharedMemory::create("test", LAYOUT).expect("makes");
        let theirs =
            SharedMemory::from_peer(ours.as_fd().try_clone_to_owned().expect("dup"), LAYOUT).expect("takes");
        ours.narrow(2).expect("there").store(7, SeqCst);
        theirs.wide(0).expect("there").fetch_add(9, SeqCst);
        assert_eq!(theirs.narrow(2).expect("there").load(SeqCst), 7);
        assert_eq!(ours.wide(0).expect("there").load(SeqCst), 9);
        assert_eq!(ours.wide(1).expect("there").load(SeqCst), 0);
        assert!(ours.narrow(3).is_none() && ours.wide(2).is_none());
        assert_eq!((LAYOUT.wide_start(), LAYOUT.size()), (16, 32));
    }

    #[test]
    fn sealed_memory_keeps_its_size() {
        let memory = SharedMemory::create("test", LAYOUT).expect("makes");
        assert_eq!(rustix::fs::ftruncate(&memory, 0), Err(Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(&memory, 4096), Err(Errno::PERM));
    }

    #[test]
    fn unsafe_memory_is_refused() {
        let unsealed =
            rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("makes");
        rustix::fs::ftruncate(&unsealed, LAYOUT.size() as u64).expect("sizes");
        let dup = |fd: &OwnedFd| fd.try_clone().expect("dup");
        assert_eq!(SharedMemory::from_peer(dup(&unsealed), LAYOUT).err(), Some(InvalidMemory::NotSealed));
        rustix::fs::fcntl_add_seals(&unsealed, SealFlags::SHRINK).expect("seals");
        assert_eq!(SharedMemory::from_peer(dup(&unsealed), LAYOUT).err(), Some(InvalidMemory::NotSealed));
        rustix::fs::fcntl_add_seals(&unsealed, SealFlags::GROW).expect("seals");
        let larger = Layout { narrow: 3, wide: 3 };
        assert_eq!(SharedMemory::from_peer(dup(&unsealed), larger).err(), Some(InvalidMemory::WrongSize));
        rustix::fs::fcntl_add_seals(&unsealed, SealFlags::FUTURE_WRITE).expect("seals");
        assert_eq!(
            SharedMemory::from_peer(unsealed, LAYOUT).err(),
            Some(InvalidMemory::NotMappable(Errno::PERM))
        );
        let file: OwnedFd = tempfile::tempfile().expect("a file").into();
        // On tmpfs, where /tmp is since Debian 13, the file is memory that can't be sealed.
        let refused = SharedMemory::from_peer(file, LAYOUT).err();
        assert!(matches!(refused, Some(InvalidMemory::NotMemory | InvalidMemory::NotSealed)), "{refused:?}");
        let (a, _b) = rustix::pipe::pipe().expect("a pipe");
        assert_eq!(SharedMemory::from_peer(a, LAYOUT).err(), Some(InvalidMemory::NotMemory));
    }
}
