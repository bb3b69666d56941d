//! The files of the repository, tracked by git or not yet, found by walking its directories.

use std::fs;
use std::path::{Path, PathBuf};

/// Files above this size, in bytes, are data, not text.
const MAX_FILE: u64 = 4 << 20;

/// One file.
pub struct File {
    /// Its path in the repository.
    pub path: String,
    /// Its contents.
    pub bytes: Vec<u8>,
}

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ has a parent").to_path_buf()
}

/// All files sorted by path, except those that git and cargo create.
pub fn all() -> Vec<File> {
    let mut files = Vec::new();
    walk(&root(), "", &mut files);
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

fn walk(folder: &Path, path: &str, files: &mut Vec<File>) {
    // Cargo marks its target directories, wherever they are.
    if folder.join("CACHEDIR.TAG").exists() || path == "fuzz/artifacts" {
        return;
    }
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    for entry in entries.map(|entry| entry.expect("a directory can be read on")) {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == ".git" {
            continue;
        }
        let path = if path.is_empty() { name } else { format!("{path}/{name}") };
        // Editors and compilers may remove a temporary file meanwhile.
        let Ok(metadata) = entry.path().symlink_metadata() else { continue };
        if metadata.is_dir() {
            walk(&entry.path(), &path, files);
        } else if metadata.is_file()
            && metadata.len() <= MAX_FILE
            && let Ok(bytes) = fs::read(entry.path())
        {
            files.push(File { path, bytes });
        }
    }
}
