//! The I/O modes that each filesystem doesn't support, shared by all exports on it.

use std::os::fd::AsFd;
use std::sync::{Arc, Weak};

use ::io::UnsupportedModes;
use parking_lot::Mutex;

use crate::error::Result;

/// By device number, for the stores that are open now. They keep their filesystems mounted, so no device
/// number is reused meanwhile, and there are at most as many entries as stores.
static KNOWN: Mutex<Vec<(u64, Weak<UnsupportedModes>)>> = Mutex::new(Vec::new());

/// The record for the filesystem that `root` is on.
pub(crate) fn of(root: impl AsFd) -> Result<Arc<UnsupportedModes>> {
    let device = rustix::fs::fstat(root)?.st_dev;
    let mut known = KNOWN.lock();
    known.retain(|(_, refusals)| refusals.strong_count() > 0);
    let found = known.iter().find(|(other, _)| *other == device).and_then(|(_, found)| found.upgrade());
    Ok(found.unwrap_or_else(|| {
        let refusals = Arc::default();
        known.push((device, Arc::downgrade(&refusals)));
        refusals
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_on_one_filesystem_share_unsupported_modes() {
        let here = tempfile::tempdir().expect("a scratch directory");
        let below = tempfile::tempdir_in(&here).expect("another in it");
        let open = |path: &std::path::Path| {
            crate::unsupported_modes::of(std::fs::File::open(path).expect("it is there")).expect("fstat")
        };
        let (one, other, proc) = (open(here.path()), open(below.path()), open("/proc".as_ref()));
        assert!(Arc::ptr_eq(&one, &other) && !Arc::ptr_eq(&one, &proc));
        // After the last store is closed the record starts afresh.
        let before = Arc::downgrade(&proc);
        drop(proc);
        open("/proc".as_ref());
        assert!(before.upgrade().is_none());
    }
}
