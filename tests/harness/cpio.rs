//! The archive format of an initramfs ("newc"), as far as booting needs it: directories, files, links and
//! device nodes.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::process::run_ok;

/// An archive under construction.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;
const CHARACTER: u32 = 0o020_000;

impl Archive {
    /// An empty archive.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a directory; parents must come first.
    pub fn directory(&mut self, path: &str) {
        self.entry(path, DIRECTORY | 0o755, (0, 0), &[]);
    }

    /// Adds a file with the permissions `mode`.
    pub fn file(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.entry(path, REGULAR | mode, (0, 0), content);
    }

    /// Adds a program and the shared libraries that it is linked with, at the paths where it expects them.
    ///
    /// # Panics
    /// When they don't exist or can't be read.
    pub fn program(&mut self, path: &str, program: &Path) {
        let read = |path: &Path| fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        self.file(path, 0o755, &read(program));
        // "NAME => PATH (ADDRESS)" or "PATH (ADDRESS)".
        let linked = run_ok(Command::new("ldd").arg(program));
        assert!(!linked.contains("not found"), "{}: run scripts/setup test\n{linked}", program.display());
        for library in linked.split_whitespace().filter(|word| word.starts_with('/')) {
            let inside = library.trim_start_matches('/');
            for (at, _) in inside.match_indices('/') {
                self.directory(&inside[..at]);
            }
            self.file(inside, 0o755, &read(Path::new(library)));
        }
    }

    /// Adds a symbolic link.
    pub fn symlink(&mut self, path: &str, target: &str) {
        self.entry(path, SYMLINK | 0o777, (0, 0), target.as_bytes());
    }

    /// Adds a character device.
    pub fn character_device(&mut self, path: &str, major: u32, minor: u32) {
        self.entry(path, CHARACTER | 0o600, (major, minor), &[]);
    }

    /// Completes the archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        self.entries += 1;
        let size = u32::try_from(content.len()).expect("an initramfs has no files of 4 GiB");
        let name_size = u32::try_from(path.len() + 1).expect("nor names");
        // ino, mode, uid, gid, nlink, mtime, filesize, dev (2), rdev (2), namesize, check
        let fields = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, device.0, device.1, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        while !self.bytes.len().is_multiple_of(4) {
            self.bytes.push(0);
        }
    }
}
