//! Directories of a test's own.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A temporary directory that anybody may enter (servers act as other users) and that goes with the value.
#[derive(Debug)]
pub struct Scratch {
    dir: tempfile::TempDir,
}

impl Scratch {
    /// A new one under the system's temporary directory.
    ///
    /// # Panics
    /// When it can't be made.
    pub fn new() -> Self {
        Self::under(&std::env::temp_dir())
    }

    /// A new one in memory (tmpfs), for what would only measure the disk otherwise.
    ///
    /// # Panics
    /// When it can't be made.
    pub fn in_memory() -> Self {
        Self::under(Path::new("/dev/shm"))
    }

    /// A new one in `parent`.
    ///
    /// # Panics
    /// When it can't be made.
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

    /// Makes a directory in it, with mode 0755, and gives its path.
    ///
    /// # Panics
    /// When it can't be made.
    pub fn mkdir(&self, name: &str) -> PathBuf {
        let path = self.join(name);
        fs::create_dir_all(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        path
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

/// `length` bytes that look random, the same for the same `seed`: what a test writes and later compares.
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
