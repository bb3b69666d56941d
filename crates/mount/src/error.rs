//! What can go wrong when a filesystem is mounted.

use std::io;
use std::path::PathBuf;

/// Why a mount didn't come about, with the object, the reason and the next step.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// /dev/fuse can't be opened.
    #[error("/dev/fuse: {source}; load the module (modprobe fuse), or in a container add --device /dev/fuse")]
    NoDevice {
        /// What open(2) said.
        source: io::Error,
    },
    /// mount(2) failed.
    #[error("mounting on {}: {source}", at.display())]
    Mount {
        /// Where.
        at: PathBuf,
        /// What mount(2) said.
        source: io::Error,
    },
    /// fusermount3 failed; it is asked where mount(2) isn't permitted.
    #[error("mounting on {} through fusermount3: {reason}", at.display())]
    Helper {
        /// Where.
        at: PathBuf,
        /// What it said.
        reason: String,
    },
    /// The kernel and we don't understand each other.
    #[error("the kernel's FUSE: {0}")]
    Kernel(String),
    /// The server could be reached, but its root's attributes couldn't be had.
    #[error("{0}")]
    Client(#[from] client::Error),
    /// What is to be mounted can be reached, but isn't a directory.
    #[error("{0} is not a directory")]
    NotDirectory(String),
    /// The runtime couldn't take the device.
    #[error("watching /dev/fuse: {0}")]
    Watch(io::Error),
}
