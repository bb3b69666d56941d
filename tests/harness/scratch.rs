//! Temporary directories.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A temporary directory that every user may enter (servers act as other users). Removed when dropped.
#[derive(Debug)]
pub struct Scratch {
    dir: tempfile::TempDir,
}

impl Scratch {
    /// Creates one under the system's temporary directory.
    ///
    /// # Panics
    /// When it can't be created.
    pub fn new() -> Self {
        Self::under(&std::env::temp_dir())
    }

    /// Creates one in memory (tmpfs), for measurements that the disk would dominate.
    ///
    /// # Panics
    /// When it can't be created.
    pub fn in_memory() -> Self {
        Self::under(Path::new("/dev/shm"))
    }

    /// Creates one in `parent`.
    ///
    /// # Panics
    /// When it can't be created.
    pub fn under(parent: &Path) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("samehost-test-")
            .tempdir_in(parent)
            .unwrap_or_else(|e| panic!("no temporary directory in {}: {e}", parent.display()));
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).expect("own directory");
        Self { dir }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A path in it.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path().join(name)
    }

    /// Creates a directory in it, with mode 0755 even where a server in this process has made the umask 0.
    /// Returns its path.
    ///
    /// # Panics
    /// When it can't be created.
    pub fn mkdir(&self, name: &str) -> PathBuf {
        let path = self.join(name);
        let mode = Permissions::from_mode(0o755);
        fs::create_dir_all(&path)
            .and_then(|()| fs::set_permissions(&path, mode))
            .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        path
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

/// `length` pseudo-random bytes, the same for the same `seed`: test data to write and compare later.
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        bytes.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
