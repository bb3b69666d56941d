//! The errors of mounting a filesystem.

use std::io;
use std::path::PathBuf;

/// Why a filesystem couldn't be mounted, with the object, the reason and the next step.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// /dev/fuse can't be opened. `PermissionDenied`: neither this user nor fusermount3 on its behalf may
    /// open it.
    #[error("/dev/fuse: {source}")]
    NoDevice {
        /// open(2)'s error.
        source: io::Error,
    },
    /// mount(2) failed.
    #[error("mounting on {}: {source}", at.display())]
    Mount {
        /// The mountpoint.
        at: PathBuf,
        /// mount(2)'s error.
        source: io::Error,
    },
    /// fusermount3 failed, which is used where mount(2) isn't permitted.
    #[error("mounting on {} through fusermount3: {reason}", at.display())]
    Helper {
        /// The mountpoint.
        at: PathBuf,
        /// Its message.
        reason: String,
    },
    /// The kernel's FUSE version doesn't fit, or its INIT is malformed.
    #[error("the kernel's FUSE: {0}")]
    Kernel(String),
    /// The connection to the server failed, or a call to it.
    #[error("{0}")]
    Client(#[from] client::Error),
    /// The URL doesn't name a directory.
    #[error("{0} is not a directory")]
    NotDirectory(String),
    /// The runtime couldn't register the device.
    #[error("watching /dev/fuse: {0}")]
    Watch(io::Error),
    /// FUSE over io_uring is required and can't be had; with the reason and the next step.
    #[error("uring=required: {0}")]
    NoUring(String),
}
