//! The list of mounts that MOUNT knows of, for `showmount -a` and the status only. Clients may disappear
//! without UMNT, so the list is bounded and the oldest entry is dropped first.

use std::collections::VecDeque;
use std::net::IpAddr;

use parking_lot::Mutex;

/// The maximum number of entries.
const MAX_MOUNTS: usize = 1024;

/// The list of mounts.
#[derive(Debug, Default)]
pub(crate) struct MountList {
    entries: Mutex<VecDeque<(IpAddr, Vec<u8>)>>,
}

impl MountList {
    /// Adds a mount; a duplicate replaces the older entry.
    pub(crate) fn add(&self, host: IpAddr, path: &[u8]) {
        let mut entries = self.entries.lock();
        entries.retain(|(other, at)| (*other, at.as_slice()) != (host, path));
        if entries.len() == MAX_MOUNTS {
            entries.pop_front();
        }
        entries.push_back((host, path.to_vec()));
    }

    /// Removes a mount.
    pub(crate) fn remove(&self, host: IpAddr, path: &[u8]) {
        self.entries.lock().retain(|(other, at)| (*other, at.as_slice()) != (host, path));
    }

    /// Removes all mounts of a host.
    pub(crate) fn remove_all(&self, host: IpAddr) {
        self.entries.lock().retain(|(other, _)| *other != host);
    }

    /// The mounts, oldest first: address and path.
    pub(crate) fn list(&self) -> Vec<(String, Vec<u8>)> {
        self.entries.lock().iter().map(|(host, path)| (host.to_string(), path.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_added_removed_and_bounded() {
        let (mounts, host) = (MountList::default(), IpAddr::from([127, 0, 0, 1]));
        mounts.add(host, b"/a");
        mounts.add(host, b"/a");
        mounts.add(host, b"/b");
        mounts.add([127, 0, 0, 2].into(), b"/a");
        assert_eq!(mounts.list().len(), 3);
        mounts.remove(host, b"/a");
        assert_eq!(mounts.list()[0], ("127.0.0.1".into(), b"/b".to_vec()));
        mounts.remove_all(host);
        assert_eq!(mounts.list().len(), 1);
        for number in 0..2 * MAX_MOUNTS {
            mounts.add(host, format!("/{number}").as_bytes());
        }
        assert_eq!(mounts.list().len(), MAX_MOUNTS);
    }
}
