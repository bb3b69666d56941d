//! What outlives a run of the server: the key that seals file handles.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The key's file: 16 random bytes, readable by the server's user only.
const KEY_FILE: &str = "handle-key";

/// Where something went wrong, and what.
pub(crate) type Failure = (PathBuf, io::Error);

/// Reads the key from `directory`, or makes directory and key. Of two servers that start at the same time both get
/// the same key.
pub(crate) fn handle_key(directory: &Path) -> Result<[u8; 16], Failure> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|error| (directory.to_owned(), error))?;
    let path = directory.join(KEY_FILE);
    let failed = |error: io::Error| (path.clone(), error);
    match read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        other => return other.map_err(failed),
    }
    let mut key = [0; 16];
    getrandom::fill(&mut key).map_err(|error| failed(error.into()))?;
    let fresh = directory.join(format!(
        ".{KEY_FILE}.{}.{:x}",
        std::process::id(),
        u32::from_ne_bytes([key[0], key[1], key[2], key[3]])
    ));
    let written = write(&fresh, &key).and_then(|()| match fs::hard_link(&fresh, &path) {
        // Another server was quicker: its key is everybody's.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    });
    let _ = fs::remove_file(&fresh);
    written.map_err(failed)?;
    read(&path).map_err(failed)
}

fn read(path: &Path) -> io::Result<[u8; 16]> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(17).read_to_end(&mut bytes)?;
    bytes.try_into().map_err(|_| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "not a key of 16 bytes; remove it and every client mounts anew",
        )
    })
}

fn write(path: &Path, key: &[u8; 16]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(key)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_key_stays_and_is_private() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path().join("a/b");
        let key = handle_key(&directory).unwrap();
        assert_eq!(handle_key(&directory).unwrap(), key);
        assert_ne!(handle_key(&scratch.path().join("c")).unwrap(), key);
        let mode = fs::metadata(directory.join(KEY_FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
    }

    #[test]
    fn a_damaged_key_is_an_error() {
        let scratch = tempfile::tempdir().unwrap();
        for bytes in [&[0; 15][..], &[0; 17], &[]] {
            fs::write(scratch.path().join(KEY_FILE), bytes).unwrap();
            assert_eq!(handle_key(scratch.path()).unwrap_err().1.kind(), io::ErrorKind::InvalidData);
        }
    }
}
