//! Backing files: granted files that are registered with the kernel for passthrough.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use client::File;
use rustix::fs::StatVfsMountFlags;
use rustix::io::Errno;

use crate::fuse::device::Device;

/// A backing file. Dropping it ends the registration; the kernel keeps the file as long as an open uses it.
#[derive(Debug)]
pub(crate) struct Backing {
    device: Arc<Device>,
    /// The kernel's ID of the backing file.
    pub(crate) number: u32,
    /// The file as it was opened first. Its grant stays, and its descriptor tells the file's attributes.
    pub(crate) file: File,
}

impl Backing {
    /// Registers a file's grant. The kernel writes to the file with this thread's present credentials:
    /// without CAP_FSETID ([`crate::privileges`]), so that every write clears set-id bits.
    ///
    /// # Errors
    /// [`Refusal`].
    pub(crate) fn register(
        device: &Arc<Device>,
        file: &File,
        grant: BorrowedFd<'_>,
    ) -> Result<Self, Refusal> {
        let number = sys::fuse::backing_open(device, grant).map_err(Refusal::from)?;
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
        // After an unmount the registration is gone already.
        let _ = sys::fuse::backing_close(&self.device, self.number);
    }
}

/// Why the kernel doesn't register a backing file, in words for an administrator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) reason: String,
    /// The kernel will refuse every file.
    pub(crate) is_permanent: bool,
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        let (reason, is_permanent) = match errno {
            Errno::PERM => (
                "the kernel lets only a process with CAP_SYS_ADMIN in the initial user namespace pass files \
                 through: run the mount as root of the host"
                    .to_owned(),
                true,
            ),
            Errno::NOTTY => (
                "this kernel has no FUSE passthrough (Linux 6.9 with CONFIG_FUSE_PASSTHROUGH)".to_owned(),
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
        Self { reason, is_permanent }
    }
}

/// Whether a file is on a read-only mount, so that the kernel can't reopen it for writing.
pub(crate) fn is_read_only(file: BorrowedFd<'_>) -> bool {
    rustix::fs::fstatvfs(file).is_ok_and(|stat| stat.f_flag.contains(StatVfsMountFlags::RDONLY))
}
