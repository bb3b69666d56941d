//! Revocation of names that the kernel has cached in a directory which not everybody may search any more.
//!
//! The kernel resolves cached names without asking the filesystem, so it may have names only in directories
//! that everybody may search ([`super::Filesystem::name_validity`]). When that ends, each name has to be
//! invalidated. That takes the directory's lock, which chmod(2) itself holds until its reply. So the
//! directory's own name goes first, under its parent's lock and before the reply: every later path walk to
//! the directory is a LOOKUP, which waits until the names in it are gone, too. A process whose working
//! directory it is may still be faster than that.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::in_flight::InFlight;
use crate::fuse::device::Device;
use crate::inode::{Inode, NameRef};

/// How long a request waits for a revocation. The kernel may be about to remove or rename the directory, and
/// hold its parent's lock while it waits for the directory's: then the reply goes out first.
const WAIT_TIMEOUT: Duration = Duration::from_millis(100);

/// The revocations under way, by directory.
#[derive(Debug)]
pub(super) struct SearchRevocation {
    device: Arc<Device>,
    /// The directory's own names are being invalidated.
    own_names: Arc<InFlight<u64>>,
    /// The names in the directory are being invalidated.
    entries: Arc<InFlight<u64>>,
}

impl SearchRevocation {
    pub(super) fn new(device: Arc<Device>) -> Self {
        Self { device, own_names: Arc::default(), entries: Arc::default() }
    }

    /// Makes the kernel look up again the directory's own names and then the names in it. Runs on a thread of
    /// its own, because a notification waits for operations on the directory, and the caller may be one.
    pub(super) fn begin(&self, directory: &Inode, own_names: Vec<NameRef>, entries: Vec<Arc<[u8]>>) {
        let (device, number) = (self.device.clone(), directory.number);
        let own_guard = self.own_names.begin(number);
        let entries_guard = self.entries.begin(number);
        tokio::task::spawn_blocking(move || {
            // An error means that the kernel doesn't know the name any more.
            for (parent, name) in own_names {
                let _ = device.expire_name(parent, &name);
            }
            drop(own_guard);
            for name in entries {
                let _ = device.expire_name(number, &name);
            }
            drop(entries_guard);
        });
    }

    /// Whether the kernel may still have names in the directory that it must not use.
    pub(super) fn is_under_way(&self, directory: &Inode) -> bool {
        self.entries.contains(&directory.number)
    }

    /// Waits until every path walk to the directory is a LOOKUP. Called before the reply to a change that may
    /// have begun a revocation.
    pub(super) async fn wait_for_own_names(&self, directory: &Inode) {
        if self.own_names.contains(&directory.number) {
            let idle = self.own_names.wait_until_idle(&directory.number);
            let _ = Box::pin(timeout(WAIT_TIMEOUT, idle)).await;
        }
    }

    /// Waits, before a reply that names the directory, until the names in it are invalidated. While its own
    /// names aren't, chmod(2) hasn't returned, and the path walk may as well have come before it.
    pub(super) async fn wait_for_entries(&self, directory: &Inode) {
        if self.is_under_way(directory) && !self.own_names.contains(&directory.number) {
            let idle = self.entries.wait_until_idle(&directory.number);
            let _ = Box::pin(timeout(WAIT_TIMEOUT, idle)).await;
        }
    }
}
