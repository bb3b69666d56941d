//! Who mounted what, as far as MOUNT knows: for `showmount -a` and the status, and for nothing else. Clients
//! come and go without telling, so the oldest entry makes room for the newest.

use std::collections::VecDeque;
use std::net::IpAddr;

use parking_lot::Mutex;

/// How many entries are kept.
const MAX_MOUNTS: usize = 1024;

/// The mount table.
#[derive(Debug, Default)]
pub(crate) struct Mounts {
    entries: Mutex<VecDeque<(IpAddr, Vec<u8>)>>,
}

impl Mounts {
    /// Notes a mount; the same one twice is one.
    pub(crate) fn add(&self, host: IpAddr, path: &[u8]) {
        let mut entries = self.entries.lock();
        entries.retain(|(other, at)| (*other, at.as_slice()) != (host, path));
        if entries.len() == MAX_MOUNTS {
            entries.pop_front();
        }
        entries.push_back((host, path.to_vec()));
    }

    /// Forgets a mount.
    pub(crate) fn remove(&self, host: IpAddr, path: &[u8]) {
        self.entries.lock().retain(|(other, at)| (*other, at.as_slice()) != (host, path));
    }

    /// Forgets all mounts of a host.
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
    fn mounts_come_go_and_are_bounded() {
        let (mounts, host) = (Mounts::default(), IpAddr::from([127, 0, 0, 1]));
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
