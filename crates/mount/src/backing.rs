//! A granted file that the kernel has taken as a backing file.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use client::File;
use rustix::fs::StatVfsMountFlags;
use rustix::io::Errno;

use crate::fuse::device::Device;

/// A backing file, registered with the kernel until this is dropped; the kernel keeps it as long as an open
/// uses it.
#[derive(Debug)]
pub(crate) struct Backing {
    device: Arc<tokio::io::unix::AsyncFd<Device>>,
    /// The kernel's number for it.
    pub(crate) number: u32,
    /// The file as it was opened first: what is passed through has no other witness.
    pub(crate) file: File,
}

impl Backing {
    /// Registers a file's grant. The kernel writes to the file with the rights that this thread has now:
    /// without CAP_FSETID ([`crate::privileges`]), so that set-id bits go with the next write, whoever
    /// writes.
    ///
    /// # Errors
    /// Why not, in words for an admin, and whether it will be so for every file.
    pub(crate) fn register(
        device: &Arc<tokio::io::unix::AsyncFd<Device>>,
        file: &File,
        grant: BorrowedFd<'_>,
    ) -> Result<Self, Refusal> {
        let number = sys::fuse::backing_open(device.get_ref(), grant).map_err(Refusal::from)?;
        Ok(Self { device: device.clone(), number, file: file.clone() })
    }
}

impl PartialEq for Backing {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Backing {}

impl Drop for Backing {
    fn drop(&mut self) {
        // After the mount is gone there is nothing to take back.
        let _ = sys::fuse::backing_close(self.device.get_ref(), self.number);
    }
}

/// Why the kernel takes no backing file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) reason: String,
    /// The next file will be refused, too.
    pub(crate) for_good: bool,
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        let (reason, for_good) = match errno {
            Errno::PERM => (
                "the kernel lets only a process with CAP_SYS_ADMIN in the initial user namespace pass files \
                 through: run the mount as root of the host"
                    .to_owned(),
                true,
            ),
            Errno::NOTTY => (
                "this kernel has no FUSE passthrough (Linux 6.9 with \
                  CONFIG_FUSE_PASSTHROUGH)"
                    .to_owned(),
                true,
            ),
            Errno::LOOP => (
                "the file is on a stacked filesystem (overlayfs), and passthrough would be one level too \
                 many: export from a volume instead"
                    .to_owned(),
                false,
            ),
            other => (format!("the kernel takes no backing file: {other}"), false),
        };
        Self { reason, for_good }
    }
}

/// Whether a descriptor is of a mount that is read-only: it can't be opened again for writing.
pub(crate) fn is_read_only(file: BorrowedFd<'_>) -> bool {
    rustix::fs::fstatvfs(file).is_ok_and(|stat| stat.f_flag.contains(StatVfsMountFlags::RDONLY))
}
