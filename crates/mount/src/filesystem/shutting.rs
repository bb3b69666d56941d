//! Directories that not everybody may search any more.
//!
//! The kernel walks over names that it knows without asking who walks, so it may know names only where
//! everybody may search ([`Filesystem::name_valid`]). When that ends it has to forget what it knows, and can
//! be told so, name by name, only under the directory's lock, which chmod(2) itself holds until it is
//! answered. So the directory's own name goes first, under another lock and before the answer: who walks to
//! the directory from then on comes to a LOOKUP of it, which waits until the names in it are gone, too. Who
//! stands in the directory already may be quicker than that.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::Filesystem;
use super::pending::Pending;
use crate::inodes::Node;

/// How long either may hold up a request. The kernel may be about to remove or rename the directory, and hold
/// its parent's lock while it waits for the directory's: then the answer goes out first.
const PATIENCE: Duration = Duration::from_millis(100);

/// The directories, by node.
#[derive(Debug, Default)]
pub(crate) struct Shutting {
    /// Whose own names are being forgotten.
    leaving: Arc<Pending<u64>>,
    /// In which names are being forgotten.
    shutting: Arc<Pending<u64>>,
}

impl Filesystem {
    /// Has the kernel look up again what it knows of the names of a directory, and of those in it. Elsewhere,
    /// for it waits for the operations on them that are under way: this may be one.
    pub(super) fn shut(&self, node: &Node) {
        let (device, number) = (self.device.clone(), node.number);
        let own = node.state.lock().places.clone();
        let names = self.places.names_in(number);
        let left = self.shutting.leaving.begin(number);
        let shut = self.shutting.shutting.begin(number);
        tokio::task::spawn_blocking(move || {
            // What the kernel doesn't know of needs no forgetting.
            for (directory, name) in own {
                let _ = device.get_ref().expire_name(directory, &name);
            }
            drop(left);
            for name in names {
                let _ = device.get_ref().expire_name(number, &name);
            }
            drop(shut);
        });
    }

    /// Waits until nobody walks to the directory any more without asking. It may have been shut just now.
    pub(super) async fn left(&self, node: &Node) {
        let _ = timeout(PATIENCE, self.shutting.leaving.settled(&node.number)).await;
    }

    /// Somebody is about to be told of a directory: waits until the names in it are gone. As long as its own
    /// name isn't, chmod(2) hasn't returned, and who walks to it now may as well have come before.
    pub(super) async fn shut_before(&self, node: &Node) {
        if self.is_shutting(node) && !self.shutting.leaving.has(&node.number) {
            let _ = timeout(PATIENCE, self.shutting.shutting.settled(&node.number)).await;
        }
    }

    /// Whether the kernel still knows names that it mustn't.
    pub(super) fn is_shutting(&self, node: &Node) -> bool {
        self.shutting.shutting.has(&node.number)
    }
}
