//! The trees that the demo copies: a generated one with difficult cases, and a part of a real one.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::exit::Failure;

/// A tree that most Linux machines have, with many small files, links and directories.
const REAL: &str = "/usr/share/doc";

/// The most files to copy of it.
const MAX_FILES: u64 = 2000;
/// The most bytes to copy of it.
const MAX_BYTES: u64 = 32 << 20;

/// Directories of the real tree within these bounds; none if there is no such tree.
pub fn real() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(REAL) else { return Vec::new() };
    let mut candidates: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect();
    candidates.sort();
    let (mut chosen, mut files, mut bytes) = (Vec::new(), 0, 0);
    for candidate in candidates {
        if files >= MAX_FILES || bytes >= MAX_BYTES {
            break;
        }
        // A directory that can't be read, or is too large, is skipped.
        let mut size = TreeSize { files: 0, bytes: 0 };
        if add_tree_size(&candidate, &mut size).is_ok() && bytes + size.bytes <= MAX_BYTES {
            files += size.files;
            bytes += size.bytes;
            chosen.push(candidate);
        }
    }
    chosen
}

struct TreeSize {
    files: u64,
    bytes: u64,
}

fn add_tree_size(directory: &Path, size: &mut TreeSize) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            add_tree_size(&entry.path(), size)?;
        } else if kind.is_file() {
            fs::File::open(entry.path())?; // is it readable?
            size.files += 1;
            size.bytes += entry.metadata()?.len();
        }
        if size.files > MAX_FILES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
    }
    Ok(())
}

/// Makes a tree in the new directory `root`: small, large and empty files, odd names, links and modes.
pub fn generate(root: &Path) -> Result<(), Failure> {
    create_tree(root).map_err(|error| Failure::new(root.display().to_string(), error))
}

fn create_tree(root: &Path) -> io::Result<()> {
    let mut noise = Noise(0x2026_1120);
    fs::create_dir(root)?;
    for branch in 0..10 {
        for twig in 0..10 {
            let directory = root.join(format!("branch-{branch}/twig-{twig}"));
            fs::create_dir_all(&directory)?;
            for leaf in 0..12 {
                let size = noise.next() % 16_384;
                fs::write(directory.join(format!("leaf-{leaf}")), noise.bytes(size as usize))?;
            }
        }
    }
    for large in 0..6 {
        fs::write(root.join(format!("large-{large}")), noise.bytes((2 << 20) + large * 4097))?;
    }
    fs::write(root.join("empty"), b"")?;
    fs::create_dir(root.join("empty directory"))?;
    fs::write(root.join("grüße, 世界"), b"UTF-8")?;
    fs::write(root.join(OsStr::from_bytes(b"no UTF-8: \xff\xfe")), b"bytes")?;
    fs::write(root.join("n".repeat(255)), b"the longest name")?;
    symlink("large-0", root.join("link to a file"))?;
    symlink("/nowhere/at/all", root.join("link to nowhere"))?;
    for mode in [0o400, 0o444, 0o600, 0o755, 0o777] {
        let path = root.join(format!("mode-{mode:o}"));
        fs::write(&path, format!("{mode:o}"))?;
        fs::set_permissions(&path, Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// Reproducible bytes that compress badly (xorshift64*).
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }
}
