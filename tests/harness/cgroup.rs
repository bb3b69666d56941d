//! A control group with a memory limit, of version 2 or 1, whichever this machine has.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::process::wait_for;

/// A control group with a limit on memory, page cache included. Removed when dropped, after its processes.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    peak: &'static str,
}

impl Cgroup {
    /// Creates a group limited to this many bytes.
    ///
    /// # Errors
    /// When this machine has no usable memory controller, or this process lacks the privilege.
    pub fn limited(bytes: u64) -> std::io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("samehost-test-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let unified = fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").is_ok();
        let (parent, limit, peak) = if unified {
            // Enables the controller in the root's children.
            fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+memory")?;
            ("/sys/fs/cgroup", "memory.max", "memory.peak")
        } else {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes")
        };
        let group = Self { path: PathBuf::from(parent).join(name), peak };
        fs::create_dir(&group.path)?;
        fs::write(group.path.join(limit), bytes.to_string())?;
        Ok(group)
    }

    /// A command prefix that starts a command inside the group.
    pub fn prefix(&self) -> Vec<String> {
        let enter = format!("echo $$ >{}/cgroup.procs && exec \"$@\"", self.path.display());
        ["sh", "-c", &enter, "sh"].map(str::to_owned).to_vec()
    }

    /// The peak memory use, in bytes, page cache included.
    ///
    /// # Errors
    /// When the kernel doesn't report it (version 2 before Linux 5.19).
    pub fn peak(&self) -> std::io::Result<u64> {
        let text = fs::read_to_string(self.path.join(self.peak))?;
        text.trim().parse().map_err(std::io::Error::other)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        wait_for("the control group to be empty", || fs::remove_dir(&self.path).ok());
    }
}
