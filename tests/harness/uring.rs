//! The kernel's switch of FUSE over io_uring. It is one for the whole machine, and affects mounts that are
//! made while it is on.

use std::fs::{self, File};

use rustix::fs::FlockOperation;

/// A parameter of the kernel's module, `Y` or `N`.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// The switch in one position, until this is dropped. One test at a time has it, of all test programs.
#[derive(Debug)]
pub struct UringSwitch {
    before: String,
    /// Locked; the lock ends with the descriptor.
    _file: File,
}

impl UringSwitch {
    /// Waits for the switch and sets it. `None`, with a note, if this kernel has none.
    ///
    /// # Panics
    /// When it can't be set.
    pub fn set(on: bool) -> Option<Self> {
        let Ok(file) = File::open(SWITCH) else {
            eprintln!("not tested: this kernel has no FUSE over io_uring");
            return None;
        };
        rustix::fs::flock(&file, FlockOperation::LockExclusive).expect("the switch can be locked");
        let before = fs::read_to_string(SWITCH).expect("the switch can be read");
        fs::write(SWITCH, if on { "Y" } else { "N" }).expect("root sets the switch");
        Some(Self { before, _file: file })
    }
}

impl Drop for UringSwitch {
    fn drop(&mut self) {
        // A panic here would hide the test's own.
        let _ = fs::write(SWITCH, &self.before);
    }
}
